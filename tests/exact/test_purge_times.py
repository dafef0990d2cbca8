"""Purges under way: what is asked after one is told from what was asked before."""

from __future__ import annotations

from trivet.exact.purge_times import PurgeTimes

NOW = 1_000_000.0


class Clock:
    now = NOW

    def __call__(self) -> float:
        return self.now


def test_a_tenant_that_was_not_purged_has_no_mark() -> None:
    times = PurgeTimes(Clock())
    assert times.mark("a") == b""
    times.add("b", NOW)
    assert times.mark("a") == b""


def test_each_purge_changes_the_mark() -> None:
    times = PurgeTimes(Clock())
    marks = set()
    for step in range(3):
        times.add("a", NOW + step)
        marks.add(times.mark("a"))
    assert len(marks) == 3


def test_processes_agree_in_whatever_order_they_hear_of_purges() -> None:
    one, two = PurgeTimes(Clock()), PurgeTimes(Clock())
    for at in (NOW, NOW + 1):
        one.add("a", at)
    for at in (NOW + 1, NOW):
        two.add("a", at)
    assert one.mark("a") == two.mark("a") != b""


def test_old_purges_are_forgotten() -> None:
    clock = Clock()
    times = PurgeTimes(clock)
    times.add("a", NOW)
    times.miss(7)
    clock.now += 3601
    assert times.mark("a") == b""
    assert times._at == {}


def test_purges_that_were_missed_may_have_been_anybodys() -> None:
    times = PurgeTimes(Clock())
    times.miss(7)
    seven = times.mark("a")
    times.miss(9)
    assert b"" != seven != times.mark("a") != b""


def test_purges_that_are_too_many_to_remember_count_for_everybody() -> None:
    times = PurgeTimes(Clock())
    for number in range(16385):
        times.add(f"t{number}", NOW + number)
    assert len(times._at) == 16384
    assert times.mark("t0") == times.mark("nobody") != b""
    assert times.mark("t16384") != times.mark("t0")


def test_a_place_of_any_size_has_a_mark() -> None:
    """A feed's cursor grows by 2^63 with each SQLite file that is replaced."""
    times = PurgeTimes()
    marks = set()
    for cursor in (1, 1 << 63, (1 << 63) + 1, 1 << 70):
        times.miss(cursor)
        marks.add(times.mark("a"))
    assert len(marks) == 4

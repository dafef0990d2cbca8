"""What earlier requests showed."""

from __future__ import annotations

from math import inf
from threading import Thread
from typing import Any

from cache_builders import block, claude, user

from trivet.messages import Api
from trivet.prefix.backends.base import Marked
from trivet.prefix.markers.gaps import Habit
from trivet.prefix.markers.rules import rules_for
from trivet.prefix.markers.stability import (
    NOTHING_SEEN,
    Seen,
    Stability,
    alive,
    last_asked,
    level_end,
    prompt_of,
    turn_before,
)
from trivet.prefix.prompts.outline import Level, Outline, outline_of

RULES = rules_for("anthropic", "claude-opus-5-5")
SYSTEM = [block("rules", 1_000), block("more", 1_000)]
ANSWER = {"role": "assistant", "content": [block("answer", 20)]}


def talk(*messages: dict[str, Any], system: list[Any] = SYSTEM) -> Outline:
    body = {"model": "claude-opus-5-5", "system": system, "messages": list(messages)}
    return outline_of(Api.MESSAGES, body)


ONE = talk(user(block("one", 50)))
TWO = talk(user(block("one", 50)), ANSWER, user(block("two", 50)))


def see(
    stability: Stability,
    outline: Outline,
    now: float,
    *marks: int,
    ttl: str = "",
    tenant: str = "a",
) -> None:
    places = [Marked(outline.parts[at].place, ttl) for at in marks]
    stability.see(prompt_of(tenant, "r", outline, now), RULES, places)


def view(stability: Stability, outline: Outline, now: float, tenant: str = "a") -> Seen:
    return stability.view(prompt_of(tenant, "r", outline, now))


def test_a_prompt_is_known_up_to_where_an_earlier_one_was_the_same() -> None:
    stability = Stability()
    assert view(stability, TWO, 0) == Seen((None,) * 5)
    see(stability, ONE, 5)
    seen = view(stability, TWO, 9)
    assert [sight is not None for sight in seen.sights] == [True, True, True, False, False]
    assert seen.at(0) is not None
    assert NOTHING_SEEN.at(3) is None


def test_other_tenants_and_routes_are_not_seen() -> None:
    stability = Stability()
    see(stability, ONE, 0)
    assert not any(view(stability, ONE, 1, "b").sights)
    assert not any(stability.view(prompt_of("a", "other", ONE, 1)).sights)


def test_what_was_written_expires_and_reads_renew_it() -> None:
    stability = Stability()
    see(stability, ONE, 0, 1, 2)
    assert alive(view(stability, TWO, 299).sights, 299) == 2
    assert alive(view(stability, TWO, 300).sights, 300) == -1
    see(stability, TWO, 200, 4)
    assert alive(view(stability, TWO, 499).sights, 499) == 4
    assert alive(view(stability, ONE, 499).sights, 499) == 2


def test_a_prefix_below_the_minimum_is_not_believed_to_be_there() -> None:
    stability = Stability()
    small = talk(user(block("one", 50)), system=[block("rules", 100)])
    see(stability, small, 0, 0, 1)
    assert alive(view(stability, small, 1).sights, 1) == -1


def test_a_breakpoint_before_what_is_read_lives_as_long_as_that() -> None:
    stability = Stability()
    see(stability, ONE, 0, 2, ttl="1h")
    see(stability, ONE, 10, 0, 2)
    assert alive(view(stability, ONE, 3_000).sights, 3_000, 3_600) == 2
    sight = view(stability, ONE, 10).at(0)
    assert sight is not None
    assert (sight.expires, sight.lasts) == (3_610, 3_600)


def test_the_callers_own_breakpoints_count() -> None:
    stability = Stability()
    own = claude(block("one", 50), system=[block("rules", 2_000, "1h")])
    see(stability, own, 0)
    assert alive(view(stability, own, 3_000).sights, 3_000) == 0


def test_a_prompt_that_goes_on_is_a_gap() -> None:
    stability = Stability()
    see(stability, ONE, 0)
    see(stability, TWO, 40)
    assert view(stability, ONE, 100).turns == Habit((40.0,), (60.0,))


def test_the_prompt_that_is_looked_at_has_just_come() -> None:
    stability = Stability()
    see(stability, ONE, 0)
    assert view(stability, TWO, 400).turns == Habit((400.0,), ())


def test_levels_that_come_again_or_do_not() -> None:
    stability = Stability()
    see(stability, ONE, 0)
    see(stability, talk(user(block("other", 50))), 30)
    see(stability, talk(user(block("one", 50)), system=[*SYSTEM[:1], block("clock", 9)]), 50)
    assert view(stability, ONE, 60).system.came == (30.0, inf)


def test_few_shots_before_the_question_are_seen_to_come_again() -> None:
    stability = Stability()
    for number in range(3):
        shots = talk(user(block("shot", 500)), ANSWER, user(block(f"q{number}", 50)))
        see(stability, shots, 10.0 * number)
    assert view(stability, ONE, 30).history.came == (10.0, 10.0)


def test_it_is_bounded_and_the_least_recently_seen_goes_first() -> None:
    stability = Stability(ends=30, routes=4)
    for number in range(100):
        see(stability, talk(user(block(f"q{number}", 50))), float(number), tenant=f"t{number}")
    assert len(stability) == 30
    newest = talk(user(block("q99", 50)))
    assert all(view(stability, newest, 100, "t99").sights)
    assert not any(view(stability, ONE, 100, "t1").sights)


def test_several_threads_may_use_it() -> None:
    stability = Stability(ends=50)

    def work(tenant: str) -> None:
        for number in range(60):
            outline = talk(user(block(f"q{number}", 50)))
            view(stability, outline, float(number), tenant)
            see(stability, outline, float(number), 1, tenant=tenant)

    threads = [Thread(target=work, args=(f"t{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(stability) == 50


def test_where_a_prompt_ends_and_where_the_one_before_it_ended() -> None:
    parts = TWO.parts
    assert (last_asked(parts), turn_before(parts)) == (4, 2)
    assert (last_asked(ONE.parts), turn_before(ONE.parts)) == (2, -1)
    assert (last_asked(()), turn_before(())) == (-1, -1)
    assert level_end(parts, Level.SYSTEM) == 1
    assert level_end(parts, Level.TOOLS) == -1


def test_a_prompt_without_parts_is_passed_over() -> None:
    stability = Stability()
    see(stability, outline_of(Api.MESSAGES, {"model": "m"}), 0)
    assert len(stability) == 0

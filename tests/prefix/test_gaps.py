"""When a write pays, and for which lifetime."""

from __future__ import annotations

from math import inf

import pytest

from trivet.prefix.markers.gaps import (
    AGENT,
    SHARED,
    SINGLE,
    Growth,
    Guess,
    Habit,
    cheapest,
    for_turn,
    least_share,
    use_cost,
    warming,
)
from trivet.prefix.markers.rules import rules_for

CLAUDE = rules_for("anthropic", "claude-sonnet-4-6")
SHORT, LONG = CLAUDE.ttls
NEVER = Guess(0.0, 0.0)


def habit(*gaps: float) -> Habit:
    return Habit(gaps)


def test_five_minutes_pay_from_the_second_request_and_an_hour_from_the_third() -> None:
    """The design's example: 1.25 + 0.1 (n - 1) and 2 + 0.1 (n - 1) against n."""
    for ttl, first in ((SHORT, 2), (LONG, 3)):
        cached = [ttl.write + CLAUDE.read * (n - 1) for n in range(1, 5)]
        cheaper = [n for n, cost in enumerate(cached, 1) if cost < n]
        assert cheaper[0] == first
    assert (SHORT.write + CLAUDE.read, LONG.write + 2 * CLAUDE.read) == pytest.approx((1.35, 2.2))


def test_a_write_pays_from_a_share_of_reuse_on() -> None:
    assert least_share(1.25, 0.1) == pytest.approx(0.25 / 1.15)
    assert least_share(2.0, 0.1) == pytest.approx(1 / 1.9)
    assert least_share(1.0, 0.5) == 0
    assert least_share(1.25, 1.25) == inf


def test_one_use_is_a_read_or_a_write() -> None:
    assert use_cost(0.75, SHORT, 0.1) == pytest.approx(0.75 * 0.1 + 0.25 * 1.25)


def test_what_still_waits_counts_once_it_is_older_than_five_minutes() -> None:
    waiting = Habit((10.0, 0.0), (100.0, 400.0))
    assert waiting.within(300, NEVER) == pytest.approx(2 / (2 + 3))
    assert waiting.within(3600, NEVER) == pytest.approx(2 / (2 + 3))


def test_what_waits_is_no_reason_for_the_longer_lifetime() -> None:
    single = Habit((), (400.0,) * 40)
    assert single.within(3600, AGENT) - single.within(300, AGENT) < 0.03


@pytest.mark.parametrize(
    ("gaps", "expected"),
    [((20.0,) * 40, "5m"), ((900.0,) * 40, "1h"), ((9000.0,) * 40, None), ((inf,) * 40, None)],
)
def test_the_lifetime_follows_the_gaps(gaps: tuple[float, ...], expected: str | None) -> None:
    found = cheapest(Habit(gaps), SHARED, CLAUDE.ttls, CLAUDE.read)
    assert (None if found is None else found.name) == expected


def test_a_free_write_is_always_worth_it() -> None:
    nova = rules_for("bedrock", "amazon.nova-pro-v1:0")
    assert cheapest(habit(*[inf] * 60), NEVER, nova.ttls, nova.read) == nova.ttls[0]
    growth = Growth(1_000, 1_000)
    assert for_turn(habit(*[inf] * 60), NEVER, nova.ttls, nova.read, growth) == nova.ttls[0]


def turn(found: Habit, new: int, exposed: int, guess: Guess = AGENT) -> str | None:
    ttl = for_turn(found, guess, CLAUDE.ttls, CLAUDE.read, Growth(new, exposed))
    return None if ttl is None else ttl.name


def test_a_turn_is_written_for_an_hour_once_enough_would_be_lost() -> None:
    """With a tenth of the gaps between 5 minutes and an hour: every fourth turn or so."""
    seen = habit(*[20.0] * 54, *[900.0] * 6)
    written = [turn(seen, 1_500, 1_500 * turns) for turns in range(1, 6)]
    assert written == ["5m", "5m", "5m", "1h", "1h"]


def test_short_gaps_alone_never_want_an_hour() -> None:
    fast = habit(*[20.0] * 64)
    q = fast.within(3600, AGENT) - fast.within(300, AGENT)
    assert q < 0.002
    assert turn(fast, 1_500, 20_000) == "5m"


def test_long_gaps_alone_always_want_an_hour() -> None:
    assert turn(habit(*[900.0] * 60), 1_500, 1_500) == "1h"


def test_a_prompt_that_nobody_continues_is_not_written() -> None:
    assert turn(habit(*[inf] * 60), 1_500, 1_500) is None
    assert turn(Habit(), 1_500, 1_500, SINGLE) is None
    assert turn(habit(*[7200.0] * 60), 1_500, 1_500) is None


class TestWarming:
    def test_a_ping_pays_where_requests_come_a_little_late(self) -> None:
        found = warming(habit(*[400.0] * 10), 290, SHORT, CLAUDE.read)
        assert found.pings == 1
        assert found.cost == pytest.approx(0.1)
        assert found.saved == pytest.approx(1.15)

    def test_several_pings_bridge_a_longer_gap(self) -> None:
        assert warming(habit(*[1000.0] * 10), 290, SHORT, CLAUDE.read).pings == 3

    @pytest.mark.parametrize(
        "seen",
        [habit(*[20.0] * 64), habit(*[inf] * 64), habit(*[9000.0] * 64), habit(400.0, 400.0)],
        ids=["nobody comes so late", "nobody comes", "too late", "too little seen"],
    )
    def test_none_pays_where_nobody_is_expected(self, seen: Habit) -> None:
        assert warming(seen, 290, SHORT, CLAUDE.read).pings == 0

    def test_it_ends_when_the_time_at_which_people_come_is_over(self) -> None:
        seen = habit(*[400.0] * 10, *[inf] * 10)
        assert warming(seen, 290, SHORT, CLAUDE.read).pings == 1
        assert warming(seen, 590, SHORT, CLAUDE.read).pings == 0

    def test_those_that_wait_longer_count_as_not_come(self) -> None:
        seen = Habit((400.0,) * 4, (500.0,) * 400)
        assert warming(seen, 290, SHORT, CLAUDE.read).pings == 0

"""Pings before a prefix expires, where they pay."""

from __future__ import annotations

from math import inf
from typing import get_args

import pytest

from trivet.errors import UpstreamError
from trivet.middleware.prefix_tier.keep_warm import KeepWarm, Warm
from trivet.middleware.prefix_tier.warmth import WHY, NotWarm, Reason, Warmth
from trivet.middleware.running.config import UpstreamConfig
from trivet.prefix.markers.gaps import Habit
from trivet.prefix.markers.rules import Ttl
from trivet.telemetry import Event, PrefixPing

UP = UpstreamConfig(name="claude", base_url="http://127.0.0.1:1")
LATE = Habit((400.0,) * 10)
"""Somebody comes 100 seconds after the prefix has expired."""


class Rig:
    def __init__(self, price: float | None = 3e-6) -> None:
        self.now = self.wall = 0.0
        self.pinged: list[float] = []
        self.works: bool | UpstreamError = True
        self.told: list[Event] = []
        self.tier = KeepWarm(
            self._ping,
            lambda model, upstream, tokens: price,
            lambda: self.now,
            lambda: self.wall,
            self.told.append,
        )

    def reasons(self) -> list[tuple[str, bool]]:
        """What became of each prefix, and whether that was news."""
        return [(one.reason, one.new) for one in self.told if isinstance(one, PrefixPing)]

    async def _ping(self, warm: Warm) -> bool:
        self.pinged.append(self.now)
        if isinstance(self.works, UpstreamError):
            raise self.works
        return self.works

    async def at(self, *times: float) -> list[float]:
        for self.now in times:
            await self.tier.tick()
        return self.pinged


def warm(
    key: bytes = b"k",
    habit: Habit = LATE,
    *,
    tenant: str = "a",
    tokens: int = 10_000,
    rest: int = 0,
    budget: float = 1.0,
) -> Warm:
    return Warm(
        *(key, tenant, "", UP, "/v1/messages", [], b"{}", "m", tokens, rest),
        *(Ttl("5m", 300, 1.25), 0.1, budget, lambda now: habit),
    )


async def test_a_ping_goes_shortly_before_the_prefix_expires() -> None:
    rig = Rig()
    rig.tier.asked([], warm())
    assert await rig.at(10, 280, 286) == [286]
    await rig.tier.close()


async def test_it_is_off_without_a_budget() -> None:
    rig = Rig()
    rig.tier.asked([], warm(budget=0))
    assert len(rig.tier) == 0


async def test_it_ends_when_the_gaps_say_that_nobody_comes() -> None:
    rig = Rig()
    rig.tier.asked([], warm())
    assert await rig.at(286, 572, 858) == [286]
    assert len(rig.tier) == 0
    await rig.tier.close()


async def test_nothing_is_sent_where_nobody_is_expected() -> None:
    for habit in (Habit((20.0,) * 20), Habit((inf,) * 20), Habit((400.0,) * 2), Habit()):
        rig = Rig()
        rig.tier.asked([], warm(habit=habit))
        assert await rig.at(286) == []
        await rig.tier.close()


async def test_what_stands_behind_the_prefix_counts_as_cost() -> None:
    rig = Rig()
    rig.tier.asked([], warm(rest=15_000))
    assert await rig.at(286) == []
    await rig.tier.close()


async def test_a_request_takes_the_place_of_what_it_goes_on_from() -> None:
    rig = Rig()
    rig.tier.asked([], warm(b"one"))
    rig.now = 100
    rig.tier.asked([b"one", b"two"], warm(b"two"))
    assert len(rig.tier) == 1
    assert await rig.at(286, 390) == [390]
    await rig.tier.close()


async def test_the_days_budget_is_not_exceeded_and_is_new_the_next_day() -> None:
    """A ping of 10,000 tokens costs 0.003 dollars."""
    rig = Rig()
    for number in range(4):
        rig.tier.asked([], warm(b"%d" % number, budget=0.0065))
    rig.tier.asked([], warm(b"other", tenant="b", budget=0.0065))
    assert len(await rig.at(286)) == 3
    assert (rig.tier.spent("a"), rig.tier.spent("b")) == pytest.approx((0.006, 0.003))
    rig.wall = 86_400.0
    rig.tier.asked([], warm(b"next", budget=0.0065))
    assert len(await rig.at(575)) == 4
    await rig.tier.close()


async def test_without_a_price_nothing_is_sent() -> None:
    rig = Rig(price=None)
    rig.tier.asked([], warm())
    assert await rig.at(286) == []
    await rig.tier.close()


async def test_a_ping_that_fails_is_the_last_one() -> None:
    for works in (False, UpstreamError("upstream-refused", "no", 502)):
        rig = Rig()
        rig.works = works
        rig.tier.asked([], warm())
        assert await rig.at(286, 300) == [286]
        assert len(rig.tier) == 0
        await rig.tier.close()


async def test_a_prefix_that_has_expired_is_not_written_anew() -> None:
    rig = Rig()
    rig.tier.asked([], warm())
    assert await rig.at(301) == []
    await rig.tier.close()


async def test_a_tenant_can_be_forgotten() -> None:
    rig = Rig()
    rig.tier.asked([], warm(b"1"))
    rig.tier.asked([], warm(b"2", tenant="b"))
    rig.tier.forget("a")
    assert len(rig.tier) == 1
    await rig.tier.close()


async def test_what_is_kept_is_bounded_in_number_and_bytes() -> None:
    rig = Rig()
    for number in range(300):
        rig.tier.asked([], warm(b"%d" % number))
    assert len(rig.tier) == 256
    for number in range(300, 310):
        rig.tier.asked([], warm(b"%d" % number)._replace(body=bytes(8 << 20)))
    assert len(rig.tier) == 4
    await rig.tier.close()


class TestReasons:
    """Of each prefix it is told what became of it; a state is news once."""

    async def test_a_ping_is_told_and_its_end_too(self) -> None:
        rig = Rig()
        rig.tier.asked([], warm())
        await rig.at(286, 572)
        assert rig.reasons() == [("ping", True), ("not-worth", False)]
        assert rig.tier.state("a", "claude", "m") == "ping"
        await rig.tier.close()

    async def test_a_state_that_lasts_is_news_once_and_its_end_is_news_again(self) -> None:
        rig = Rig()
        for number in range(3):
            rig.tier.asked([], warm(b"%d" % number, budget=0.001))
        await rig.at(286)
        assert rig.reasons() == [("over-budget", True), *[("over-budget", False)] * 2]
        rig.wall = 86_400.0
        rig.tier.asked([], warm())
        await rig.at(575)
        assert rig.reasons()[-1] == ("ping", True)
        await rig.tier.close()

    async def test_no_price_and_a_refused_ping_are_told_apart(self) -> None:
        for price, works, reason in (
            (None, True, "no-price"),
            (3e-6, False, "failed"),
            (3e-6, UpstreamError("connect", "no"), "failed"),
        ):
            rig = Rig(price)
            rig.works = works
            rig.tier.asked([], warm())
            await rig.at(286)
            assert rig.reasons() == [(reason, True)]
            await rig.tier.close()

    async def test_too_few_gaps_and_a_ping_that_is_late_are_told_apart(self) -> None:
        rig = Rig()
        rig.tier.asked([], warm(habit=Habit()))
        await rig.at(286)
        rig.tier.asked([], warm())
        await rig.at(586)
        assert rig.reasons() == [("not-worth", True), ("too-late", False)]
        await rig.tier.close()

    async def test_what_has_no_room_is_told(self) -> None:
        rig = Rig()
        for number in range(257):
            rig.tier.asked([], warm(b"%d" % number))
        assert rig.reasons() == [("no-room", True)]
        await rig.tier.close()

    def test_a_request_without_a_ping_is_told_at_once(self) -> None:
        rig = Rig()
        rig.tier.asked([], NotWarm("a", "claude", "m", "no-ping-api"))
        assert rig.reasons() == [("no-ping-api", True)]

    def test_what_is_of_one_prompt_takes_the_place_of_no_state(self) -> None:
        told: list[Event] = []
        states = Warmth(told.append)
        for reason in ("no-breakpoint", "not-worth", "ping", "not-worth", "ping", "failed"):
            states.see("a", "u", "m", reason)
        new = [one.new for one in told if isinstance(one, PrefixPing)]
        assert new == [True, False, True, False, False, True]
        assert states.state("a", "u", "m") == "failed"

    def test_a_purge_forgets_the_states_of_its_tenant_alone(self) -> None:
        rig = Rig()
        for tenant in "ab":
            rig.tier.asked([], NotWarm(tenant, "claude", "m", "no-ping-api"))
        rig.tier.forget("a")
        assert rig.tier.state("a", "claude", "m") is None
        assert rig.tier.state("b", "claude", "m") == "no-ping-api"

    def test_the_states_are_bounded(self) -> None:
        states = Warmth(lambda event: None)
        for number in range(4100):
            states.see("a", "u", str(number), "ping")
        assert states.state("a", "u", "0") is None
        assert states.state("a", "u", "4099") == "ping"

    def test_every_reason_is_said_in_words(self) -> None:
        assert set(get_args(Reason)) == WHY.keys()


async def test_a_ping_is_priced_by_the_length_of_its_prompt() -> None:
    rig = Rig()
    asked: list[int] = []

    def price(model: str, upstream: str, tokens: int) -> float:
        asked.append(tokens)
        return 3e-6

    rig.tier._price = price
    rig.tier.asked([], warm(tokens=10_000, rest=500))
    await rig.at(290)
    assert asked == [10_500]
    await rig.tier.close()

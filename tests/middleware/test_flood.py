import asyncio
from typing import Any

import pytest

from trivet.errors import UpstreamError
from trivet.eval.economics import load_after_flush
from trivet.messages import Api
from trivet.middleware.prefix_tier.flood import FloodGuard
from trivet.middleware.running.config import FloodConfig
from trivet.telemetry import Event, FloodShed, RequestDone


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def hit() -> RequestDone:
    return RequestDone(
        *("acme", Api.CHAT, "m", "u", 200, False, "exact", "hit", "", 0.1, 0.0, 0.1, 1, 1),
        usage=None,
        stored=False,
    )


class Rig:
    def __init__(self, **config: Any) -> None:
        self.clock = Clock()
        self.guard = FloodGuard(FloodConfig(**config), self.clock)
        self.told: list[Event] = []
        self.guard.observer = self.told.append

    async def seconds(self, count: int, hits: int, misses: int) -> None:
        """So many hits and misses in each second; calls end at once."""
        for _ in range(count):
            self.clock.now += 1.0
            for _ in range(hits):
                self.guard(hit())
            for _ in range(misses):
                await self.guard.enter("acme")
                self.guard.leave()

    async def flooded(self) -> None:
        await self.seconds(200, 4, 6)
        await self.seconds(30, 0, 10)
        assert self.guard.flood.flooded


async def test_the_load_of_a_flush_is_told_from_the_measured_share() -> None:
    rig = Rig()
    await rig.seconds(300, 4, 6)
    flood = rig.guard.flood
    assert flood.baseline == pytest.approx(0.4, abs=0.02)
    assert flood.load == pytest.approx(load_after_flush(0.4), rel=0.05)
    assert not flood.flooded


async def test_without_a_limit_a_flood_is_shown_and_nothing_waits() -> None:
    rig = Rig()
    await rig.flooded()
    for _ in range(100):
        await rig.guard.enter("acme")
    assert rig.guard.flood.in_flight == 100


async def test_a_flush_is_noticed_within_twelve_seconds_and_is_over_when_hits_come_back() -> None:
    rig = Rig()
    await rig.seconds(200, 40, 60)
    await rig.seconds(12, 0, 100)
    assert rig.guard.flood.flooded
    await rig.seconds(12, 40, 60)
    assert not rig.guard.flood.flooded


async def test_the_baseline_trails() -> None:
    rig = Rig(window=100.0)
    await rig.flooded()
    await rig.seconds(1000, 0, 10)
    assert rig.guard.flood.baseline < 0.01


async def test_beyond_the_limit_calls_wait_in_turn() -> None:
    rig = Rig(max_calls=2, queue=5, wait=30.0)
    await rig.flooded()
    order: list[int] = []

    async def call(number: int) -> None:
        await rig.guard.enter("acme")
        order.append(number)

    tasks = [asyncio.create_task(call(number)) for number in range(4)]
    await asyncio.sleep(0)
    assert (rig.guard.flood.in_flight, rig.guard.flood.waiting) == (2, 2)
    rig.guard.leave()
    await asyncio.sleep(0)
    rig.guard.leave()
    await asyncio.gather(*tasks)
    assert order == [0, 1, 2, 3]
    assert (rig.guard.flood.in_flight, rig.guard.flood.waiting) == (2, 0)


@pytest.mark.parametrize(
    ("config", "reason"), [({"queue": 0}, "queue-full"), ({"wait": 0.01}, "wait")]
)
async def test_who_finds_no_place_gets_a_503(config: dict[str, Any], reason: str) -> None:
    rig = Rig(max_calls=1, **config)
    await rig.flooded()
    await rig.guard.enter("acme")
    with pytest.raises(UpstreamError) as refused:
        await rig.guard.enter("acme")
    assert (refused.value.status, refused.value.reason) == (503, "flood")
    assert rig.told[-1] == FloodShed("acme", reason)
    assert (rig.guard.flood.in_flight, rig.guard.flood.waiting) == (1, 0)


async def test_who_leaves_the_queue_leaves_no_trace() -> None:
    rig = Rig(max_calls=1)
    await rig.flooded()
    await rig.guard.enter("acme")
    gone = asyncio.create_task(rig.guard.enter("acme"))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    assert rig.guard.flood.waiting == 0
    rig.guard.leave()
    assert rig.guard.flood.in_flight == 0


async def test_who_leaves_just_as_the_turn_comes_gives_it_on() -> None:
    rig = Rig(max_calls=1)
    await rig.flooded()
    await rig.guard.enter("acme")
    gone = asyncio.create_task(rig.guard.enter("acme"))
    await asyncio.sleep(0)
    rig.guard.leave()
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    assert rig.guard.flood.in_flight == 0


async def test_the_queue_is_let_in_when_the_caches_are_warm_again() -> None:
    rig = Rig(max_calls=1)
    await rig.flooded()
    await rig.guard.enter("acme")
    waiting = asyncio.create_task(rig.guard.enter("acme"))
    await asyncio.sleep(0)
    await rig.seconds(60, 100, 0)
    await waiting
    assert rig.guard.flood.in_flight == 2


async def test_a_cold_start_is_guarded_where_the_config_says_what_to_expect() -> None:
    rig = Rig(max_calls=1, baseline=0.4, queue=0)
    await rig.seconds(3, 0, 10)
    assert rig.guard.flood.flooded
    await rig.guard.enter("acme")
    with pytest.raises(UpstreamError):
        await rig.guard.enter("acme")


async def test_a_night_without_requests_changes_nothing_much() -> None:
    rig = Rig()
    await rig.seconds(200, 4, 6)
    before = rig.guard.flood.baseline
    rig.clock.now += 40_000.0
    await rig.seconds(1, 4, 6)
    assert rig.guard.flood.baseline == pytest.approx(before, abs=0.01)


async def test_warming_is_in_no_share() -> None:
    shares = []
    for warming in (0, 50):
        rig = Rig()
        await rig.seconds(20, 4, 6)
        for _ in range(warming):
            rig.guard(hit()._replace(purpose="warm"))
            await rig.guard.enter("acme", counted=False)
            rig.guard.leave()
        await rig.seconds(1, 4, 6)
        shares.append(rig.guard.flood.share)
    assert shares[0] == shares[1]


async def test_warming_is_limited_like_the_rest() -> None:
    rig = Rig(max_calls=1, queue=0)
    await rig.flooded()
    await rig.guard.enter("acme", counted=False)
    for counted in (True, False):
        with pytest.raises(UpstreamError, match="cold"):
            await rig.guard.enter("acme", counted=counted)

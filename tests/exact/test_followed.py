"""A shared store without memory in front still hears of purges."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from entries import NOW, Clock, key
from test_layered import Back

from trivet.errors import StoreError
from trivet.exact.followed import FollowedStore
from trivet.exact.guard import Budget
from trivet.exact.purges import Purge
from trivet.telemetry import ignore


def store_over(back: Back) -> FollowedStore:
    made = FollowedStore(back, Budget(), ignore, poll_s=3600.0)
    made._times._clock = lambda: NOW
    return made


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0)


async def test_a_purge_here_is_known_at_once_even_if_the_store_is_in_trouble() -> None:
    back = Back(Clock())
    back.trouble = StoreError("gone")
    store = store_over(back)
    with pytest.raises(StoreError):
        await store.purge("t1", None, NOW)
    assert store._times.mark("t1") != b""
    await store.close()


async def test_a_purge_elsewhere_is_heard_once_somebody_asks() -> None:
    back = Back(Clock())
    back.feed = [Purge("t1", "tag:a", NOW), Purge("t2", None, NOW, key("c"))]
    store = store_over(back)
    times = store.purge_times
    await until(lambda: times.mark("t1") != b"")
    assert times.mark("t2") == b""
    await store.close()


async def test_a_feed_that_lost_its_place_may_have_purged_anybody() -> None:
    back = Back(Clock())
    back.feed = [Purge("t1", None, NOW)]
    store = store_over(back)
    await store.follow()
    assert store._times.mark("t2") == b""
    back.feed = None
    await store.follow()
    assert store._times.mark("t2") != b""
    await store.close()

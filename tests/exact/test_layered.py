"""Memory in front of a shared store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from entries import NOW, Clock, entry, key
from store_contract import FREE, held

from trivet.errors import StoreError
from trivet.exact.entry import Entry
from trivet.exact.layered import LayeredStore
from trivet.exact.memory import MemoryStore
from trivet.exact.purges import Changes, Purge
from trivet.exact.store import Bound
from trivet.messages import ExactKey
from trivet.telemetry import EntryRejected, Event


class Back(MemoryStore):
    """A shared store in memory: its feed, its gets and its trouble are the test's."""

    name = "back"

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock=clock)
        self.feed: list[Purge] | None = []
        self.rest: tuple[Purge, ...] = ()
        self.delete_trouble: StoreError | None = None
        self.feed_trouble: StoreError | None = None
        self.gets = 0
        self.trouble: StoreError | None = None
        self.gate: asyncio.Event | None = None
        self.meanwhile: Callable[[], Awaitable[object]] | None = None

    async def get(self, tenant: str, key: ExactKey) -> Entry | None:
        self.gets += 1
        if self.trouble:
            raise self.trouble
        found = await super().get(tenant, key)
        if self.gate is not None:
            await self.gate.wait()
        return found

    async def put(self, entry: Entry, bound: Bound) -> str:
        if self.trouble:
            raise self.trouble
        if self.meanwhile is not None:
            await self.meanwhile()
        return await super().put(entry, bound)

    async def purge(self, tenant: str, label: str | None, at: float) -> int:
        if self.trouble:
            raise self.trouble
        return await super().purge(tenant, label, at)

    async def delete(self, tenant: str, key: ExactKey) -> None:
        if self.delete_trouble:
            raise self.delete_trouble
        await super().delete(tenant, key)

    async def changes(self, cursor: int) -> Changes:
        if self.trouble or self.feed_trouble:
            raise self.trouble or self.feed_trouble or StoreError("")
        if self.feed is None:
            return Changes(cursor, None, self.rest)
        return Changes(len(self.feed), tuple(self.feed[cursor:]))


class Rig:
    def __init__(self) -> None:
        self.clock = Clock()
        self.back = Back(self.clock)
        self.front = MemoryStore(clock=self.clock)
        self.told: list[Event] = []
        self.store = LayeredStore(self.front, self.back, poll_s=3600.0, observer=self.told.append)


@pytest.fixture
async def rig() -> Rig:
    return Rig()


async def test_a_back_hit_fills_the_front_with_the_same_expiry(rig: Rig) -> None:
    made = entry("a", stale_until=NOW + 10)
    await rig.back.put(made, FREE)
    assert await held(rig.store, "a") == ["a"]
    assert await held(rig.store, "a") == ["a"]
    assert rig.back.gets == 1
    rig.clock.now = NOW + 10
    assert await held(rig.front, "a") == []
    await rig.store.close()


async def test_trouble_behind_leaves_what_is_in_front(rig: Rig) -> None:
    await rig.store.put(entry("a"), FREE)
    rig.back.trouble = StoreError("open")
    with pytest.raises(StoreError, match="open"):
        await rig.store.put(entry("b"), FREE)
    assert await held(rig.store, "a", "b") == ["a", "b"]
    with pytest.raises(StoreError, match="open"):
        await rig.store.get("t1", key("c"))
    await rig.store.close()


async def test_what_the_back_refuses_is_not_served_from_the_front(rig: Rig) -> None:
    await rig.back.purge("t1", None, NOW)
    assert await rig.store.put(entry("a"), FREE) == "purged"
    assert await held(rig.front, "a") == []
    await rig.store.close()


async def test_what_was_purged_here_is_not_put_behind(rig: Rig) -> None:
    await rig.front.purge("t1", None, NOW)
    assert await rig.store.put(entry("a"), FREE) == "purged"
    assert await held(rig.back, "a") == []
    await rig.store.close()


async def test_a_purge_that_comes_while_the_back_stores_is_told(rig: Rig) -> None:
    rig.back.meanwhile = lambda: rig.front.purge("t1", None, NOW)
    assert await rig.store.put(entry("a"), FREE) == "purged"
    await rig.store.close()


async def test_a_purge_reaches_both_and_fails_if_the_back_was_not_reached(rig: Rig) -> None:
    await rig.store.put(entry("a"), FREE)
    assert await rig.store.purge("t1", None, NOW) == 1
    await rig.store.put(entry("b"), FREE)
    assert await held(rig.store, "a", "b") == []
    rig.back.trouble = StoreError("open")
    with pytest.raises(StoreError, match="open"):
        await rig.store.purge("t2", None, NOW)
    await rig.store.close()


async def test_a_purge_elsewhere_is_followed(rig: Rig) -> None:
    assert rig.back.feed is not None
    for name in "ab":
        await rig.store.put(entry(name, labels=frozenset({f"tag:{name}"})), FREE)
    await rig.store.put(entry("c"), FREE)
    rig.back.feed += [Purge("t1", "tag:a", NOW), Purge("t1", None, NOW, key("c"))]
    await rig.store.follow()
    assert await held(rig.front, *"abc") == ["b"]
    await rig.store.follow()
    assert rig.store._cursor == 2
    await rig.store.close()


async def test_purges_here_and_elsewhere_mark_what_is_asked_later(rig: Rig) -> None:
    assert rig.back.feed is not None
    await rig.store.purge("t1", "tag:a", NOW)
    rig.back.feed += [Purge("t2", None, NOW), Purge("t3", None, NOW, key("c"))]
    await rig.store.follow()
    marks = [rig.store.purge_times.mark(tenant) for tenant in ("t1", "t2", "t3")]
    assert [bool(mark) for mark in marks] == [True, True, False]
    await rig.store.close()


async def test_only_who_has_read_a_feed_can_have_missed_a_part_of_it(rig: Rig) -> None:
    rig.back.feed = None
    await rig.store.follow()
    assert rig.store.purge_times.mark("t1") == b""
    rig.store._cursor = 5
    await rig.store.follow()
    assert rig.store.purge_times.mark("t1") != b""
    await rig.store.close()


async def test_a_feed_that_lost_its_beginning_empties_the_front(rig: Rig) -> None:
    await rig.store.put(entry("a"), FREE)
    rig.back.feed = None
    await rig.store.follow()
    assert await held(rig.front, "a") == []
    assert await held(rig.store, "a") == ["a"]
    await rig.store.close()


@pytest.mark.parametrize("how", ["purge", "delete", "forget-everything"])
async def test_a_read_that_began_before_a_purge_does_not_bring_the_entry_back(
    rig: Rig, how: str
) -> None:
    assert rig.back.feed is not None
    await rig.back.put(entry("a"), FREE)
    rig.back.gate = asyncio.Event()
    read = asyncio.create_task(rig.store.get("t1", key("a")))
    while not rig.back.gets:
        await asyncio.sleep(0)
    if how == "forget-everything":
        rig.back.feed = None
    else:
        rig.back.feed.append(Purge("t1", None, NOW, key("a") if how == "delete" else None))
    await rig.store.follow()
    rig.back.gate.set()
    assert (await read is None) is (how == "purge")
    assert await held(rig.front, "a") == []
    await rig.store.close()


async def test_what_the_feed_purged_is_not_served_from_a_back_that_still_has_it(rig: Rig) -> None:
    assert rig.back.feed is not None
    for name in "ab":
        await rig.back.put(entry(name, labels=frozenset({f"tag:{name}"})), FREE)
    rig.back.feed.append(Purge("t1", "tag:a", NOW))
    await rig.store.follow()
    assert await held(rig.store, "a", "b") == ["b"]
    assert await held(rig.back, "a", "b") == ["b"]
    assert rig.told == [EntryRejected("back", "purged")]
    await rig.store.close()


async def test_a_back_that_cannot_delete_what_was_purged_costs_a_miss_and_no_error(
    rig: Rig,
) -> None:
    await rig.front.purge("t1", None, NOW)
    await rig.back.put(entry("a"), FREE)
    rig.back.delete_trouble = StoreError("readonly")
    assert await held(rig.store, "a") == []
    await rig.store.close()


async def test_a_feed_that_lost_its_beginning_tells_the_rest(rig: Rig) -> None:
    await rig.back.put(entry("a"), FREE)
    rig.back.feed, rig.back.rest = None, (Purge("t1", None, NOW),)
    await rig.store.follow()
    assert await held(rig.store, "a") == []
    await rig.store.close()


async def test_a_deleted_entry_is_gone_from_both(rig: Rig) -> None:
    await rig.store.put(entry("a"), FREE)
    await rig.store.delete("t1", key("a"))
    assert await held(rig.store, "a") == []
    await rig.store.close()


async def test_the_feed_is_followed_in_the_background_through_trouble(rig: Rig) -> None:
    assert rig.back.feed is not None
    store = LayeredStore(rig.front, rig.back, poll_s=0.005)
    await store.put(entry("a"), FREE)
    rig.back.trouble = StoreError("refused")
    await asyncio.sleep(0.02)
    rig.back.feed.append(Purge("t1", None, NOW))
    rig.back.trouble = None
    async with asyncio.timeout(20):
        while await held(rig.front, "a"):
            await asyncio.sleep(0.005)
    await store.close()
    assert len(asyncio.all_tasks()) == 1


async def test_readiness_tells_of_a_feed_that_cannot_be_read(rig: Rig) -> None:
    store = LayeredStore(rig.front, rig.back, poll_s=0.001)
    await store.put(entry("a"), FREE)
    await store.ready()
    rig.back.feed_trouble = StoreError("corrupt")
    async with asyncio.timeout(10):
        while store._deaf < 3:
            await asyncio.sleep(0.005)
    with pytest.raises(StoreError, match="the purges of other processes cannot be read"):
        await store.ready()
    rig.back.feed_trouble = None
    async with asyncio.timeout(10):
        while store._deaf:
            await asyncio.sleep(0.005)
    await store.ready()
    await store.close()

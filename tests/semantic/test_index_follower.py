"""A follower and a store that does as it is told."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

import pytest
from index_parts import NOW, Clock, entry, partition, vector

from trivet.errors import StoreError
from trivet.semantic.follower import IndexFollower, Progress
from trivet.semantic.index import Job
from trivet.semantic.memory_records import MemoryRecords
from trivet.semantic.partitions import PartitionedIndex
from trivet.semantic.records import (
    Added,
    Change,
    Changes,
    Cursor,
    Event,
    Purged,
    Removed,
    Reset,
    Snapshot,
)
from trivet.semantic.types import Record
from trivet.telemetry import Event as Told
from trivet.telemetry import StoreState


class _Store:
    """Holds what the test puts in; `broken` is what it raises."""

    name = "told"

    def __init__(self) -> None:
        self.live: list[Record] = []
        self.waiting: list[Change] = []
        self.published: list[Event] = []
        self.broken: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.snapshots = self.sweeps = 0

    def _check(self) -> None:
        if self.broken is not None:
            raise self.broken

    async def publish(self, event: Event) -> None:
        self._check()
        self.published.append(event)

    async def changes(self, cursor: Cursor) -> Changes:
        self._check()
        some, self.waiting = tuple(self.waiting), []
        return Changes(some, cursor)

    async def snapshot(self) -> Snapshot:
        self._check()
        self.snapshots += 1
        return Snapshot(Cursor("1"), len(self.live), self._batches())

    async def _batches(self) -> AsyncIterator[list[Record]]:
        for start in range(0, len(self.live), 10):
            await self.gate.wait()
            yield self.live[start : start + 10]
            self._check()

    async def sweep(self) -> None:
        self.sweeps += 1

    async def ready(self) -> None:
        self._check()

    async def close(self) -> None:
        pass


class _Rig:
    def __init__(self) -> None:
        self.store = _Store()
        self.told: list[Told] = []
        self.clock = Clock(0.0)
        self.index = PartitionedIndex(lambda tenant: 1000, clock=Clock(), exact_most=20)
        self.follower = IndexFollower(self.store, self.index, self.told.append, 0.001, self.clock)

    def names(self) -> set[str]:
        found = self.index.nearest(partition("t1 p"), vector(1), 1000, NOW)
        return {one.record.text.removeprefix("question ") for one in found}

    @property
    def states(self) -> list[tuple[str, str]]:
        return [(one.state, one.reason) for one in self.told if isinstance(one, StoreState)]


@pytest.fixture
async def rig() -> AsyncIterator[_Rig]:
    made = _Rig()
    yield made
    await made.follower.close()


async def _until(rig: _Rig, phase: str) -> None:
    while rig.follower.progress.phase != phase:
        await asyncio.sleep(0.001)


async def test_an_index_is_built_in_the_background_and_says_how_far_it_is(rig: _Rig) -> None:
    rig.store.live = [entry(str(number)) for number in range(30)]
    rig.store.gate.clear()
    rig.follower.start()
    await asyncio.sleep(0.01)
    assert rig.follower.progress == Progress("building", 0.0)
    rig.store.gate.set()
    await _until(rig, "following")
    assert rig.follower.progress == Progress("following", 1.0)
    assert len(rig.names()) == 30
    assert rig.index.due() is None
    assert rig.states == [("up", "")]


async def test_changes_are_applied_in_order(rig: _Rig) -> None:
    await rig.follower.step()
    rig.store.waiting = [
        Added(entry("a")),
        Added(entry("b")),
        Removed("t1", entry("a").id),
        Added(entry("c")),
        Purged("t1", None, NOW),
        Added(entry("d", created=NOW + 1)),
    ]
    assert await rig.follower.step()
    assert rig.names() == {"d"}
    assert not await rig.follower.step()


async def test_a_lost_feed_builds_the_index_anew(rig: _Rig) -> None:
    rig.store.live = [entry("a"), entry("b")]
    await rig.follower.step()
    rig.store.live = [entry("b"), entry("c")]
    rig.store.waiting = [Reset()]
    await rig.follower.step()
    await rig.follower.step()
    assert rig.names() == {"b", "c"}
    assert rig.store.snapshots == 2


async def test_a_store_in_trouble_takes_nothing_away_and_is_told_once(rig: _Rig) -> None:
    rig.store.live = [entry("a")]
    rig.follower.start()
    await _until(rig, "following")
    rig.store.broken = StoreError("timeout", "timeout: too slow")
    await _until(rig, "waiting")
    await asyncio.sleep(0.02)
    assert rig.names() == {"a"}
    assert rig.follower.progress == Progress("waiting", 1.0, "timeout: too slow")
    rig.store.broken = None
    rig.store.waiting = [Added(entry("b"))]
    await _until(rig, "following")
    assert rig.names() == {"a", "b"}
    assert rig.states == [("up", ""), ("down", "timeout: too slow"), ("up", "")]


async def test_a_snapshot_that_breaks_off_is_loaded_again(rig: _Rig) -> None:
    rig.store.live = [entry(str(number)) for number in range(15)]
    rig.store.broken = StoreError("connection")
    with pytest.raises(StoreError):
        await rig.follower.step()
    rig.store.broken = None
    await rig.follower.step()
    assert len(rig.names()) == 15


async def test_an_unknown_error_ends_a_round_and_not_the_follower(rig: _Rig) -> None:
    rig.store.broken = RuntimeError("whatever")
    rig.follower.start()
    await _until(rig, "waiting")
    assert rig.follower.progress.reason == "internal: RuntimeError: whatever"
    rig.store.broken = None
    await _until(rig, "following")


async def test_what_is_told_is_applied_here_before_it_is_published(rig: _Rig) -> None:
    await rig.follower.tell(Added(entry("a")))
    assert rig.names() == {"a"}
    assert rig.store.published == [Added(entry("a"))]


async def test_what_could_not_be_published_holds_here(rig: _Rig) -> None:
    await rig.follower.tell(Added(entry("a")))
    rig.store.broken = StoreError("timeout")
    with pytest.raises(StoreError):
        await rig.follower.tell(Purged("t1", None, NOW))
    assert rig.names() == set()


async def test_an_added_record_that_was_removed_here_does_not_come_back_by_the_feed(
    rig: _Rig,
) -> None:
    await rig.follower.step()
    await rig.follower.tell(Added(entry("a")))
    await rig.follower.tell(Removed("t1", entry("a").id))
    rig.store.waiting = [Added(entry("a"))]
    await rig.follower.step()
    assert rig.names() == set()


async def test_expired_records_are_swept_every_few_seconds(rig: _Rig) -> None:
    await rig.follower.step()
    assert rig.store.sweeps == 0
    rig.clock.now += 6.0
    await rig.follower.step()
    await rig.follower.step()
    assert rig.store.sweeps == 1


async def test_closing_twice_is_closing_once(rig: _Rig) -> None:
    rig.follower.start()
    rig.follower.start()
    await rig.follower.close()
    await rig.follower.close()


async def test_the_feed_is_read_while_a_partition_is_made_fast(
    rig: _Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rig.follower.step()
    asked, gate = [0], threading.Event()

    def due() -> Job | None:
        asked[0] += 1
        return slow if asked[0] <= 2 else None

    def slow() -> Callable[[], None]:
        gate.wait(30)
        return lambda: None

    monkeypatch.setattr(rig.index, "due", due)
    rig.store.waiting = [Added(entry("a"))]
    await rig.follower.step()
    await asyncio.sleep(0.01)
    rig.store.waiting = [Purged("t1", None, NOW)]
    await rig.follower.step()
    assert rig.names() == set()
    gate.set()


async def test_a_library_that_fails_leaves_exact_searches_and_is_told(
    rig: _Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> Callable[[], None]:
        raise ImportError("no faiss")

    await rig.follower.step()
    monkeypatch.setattr(rig.index, "due", lambda: broken)
    rig.store.waiting = [Added(entry("a"))]
    await rig.follower.step()
    await asyncio.sleep(0.05)
    await rig.follower.step()
    assert rig.states == [("degraded", "index: ImportError: no faiss")]
    assert rig.names() == {"a"}


async def test_an_index_that_cannot_be_made_fast_is_loaded_all_the_same(
    rig: _Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> Callable[[], None]:
        raise ImportError("no faiss")

    monkeypatch.setattr(rig.index, "due", lambda: broken)
    rig.store.live = [entry("a")]
    rig.follower.start()
    await _until(rig, "following")
    assert rig.names() == {"a"}
    assert rig.states == [("degraded", "index: ImportError: no faiss"), ("up", "")]


async def test_it_does_not_say_that_it_follows_while_changes_wait(rig: _Rig) -> None:
    seen = []
    rig.store.waiting = [Added(entry("a"))]
    taken = rig.store.changes

    async def changes(cursor: Cursor) -> Changes:
        seen.append(rig.follower.progress.phase)
        return await taken(cursor)

    rig.store.changes = changes  # type: ignore[method-assign]
    rig.follower.start()
    await _until(rig, "following")
    assert seen[:2] == ["building", "building"]


async def test_a_store_that_swallows_a_cancellation_does_not_keep_a_follower_from_closing() -> None:
    class Deaf(MemoryRecords):
        async def changes(self, cursor: Cursor) -> Changes:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.05)
            return Changes((), cursor)

    follower = IndexFollower(Deaf(), PartitionedIndex(lambda tenant: 10), poll_s=0.001)
    follower.start()
    await asyncio.sleep(0.02)
    async with asyncio.timeout(5):
        await follower.close()

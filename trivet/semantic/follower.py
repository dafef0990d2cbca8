"""Keeps one process's index in step with a record store.

At start, and whenever the feed was lost, the index is built from a snapshot; then the feed is read
a few times a second. A store in trouble changes nothing: the index keeps what it has, and the
follower goes on trying.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from trivet.errors import StoreError
from trivet.semantic.partitions import PartitionedIndex
from trivet.semantic.records import (
    Added,
    Change,
    Confirmed,
    Cursor,
    Event,
    Purged,
    RecordStore,
    Removed,
    Reset,
)
from trivet.semantic.types import Record
from trivet.telemetry import Observer, StoreState, ignore

_NAME = "semantic-records"
_POLL_S = 0.25
_SWEEP_S = 5.0
_SLICE = 64
"""Records that are taken in before other tasks get their turn: a millisecond or so."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a follower is."""

    phase: Literal["building", "following", "waiting"]
    """`building`: a lookup would miss what was not loaded yet. `waiting`: the store is in trouble,
    and lookups go on with what the index holds."""
    share: float
    """Of the building that is done, from 0 to 1."""
    reason: str = ""
    """Why it waits."""


class IndexFollower:
    """Follows `store` with `index`, on one event loop."""

    def __init__(
        self,
        store: RecordStore,
        index: PartitionedIndex,
        observer: Observer = ignore,
        poll_s: float = _POLL_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._index = index
        self._observe = observer
        self._poll_s = poll_s
        self._clock = clock
        self._cursor: Cursor | None = None
        self._progress = Progress("building", 0.0)
        self._told = ""
        self._swept = clock()
        self._task: asyncio.Task[None] | None = None
        self._work: asyncio.Task[None] | None = None
        self._slow = False
        """Large partitions cannot be made fast in this process."""

    @property
    def progress(self) -> Progress:
        """For readiness, and for the reason of a miss."""
        return self._progress

    def start(self) -> None:
        """Begin in the background. Once."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Stop. The store stays open. Idempotent."""
        tasks, self._task, self._work = (self._task, self._work), None, None
        for task in tasks:
            if task is not None:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task

    async def tell(self, event: Event) -> None:
        """Apply an event here at once, and publish it. Raises `StoreError` if it was not published.

        What was not published holds in this process alone: a purge has to be tried again.
        """
        self._apply(event)
        await self._store.publish(event)

    async def step(self) -> bool:
        """Load if needed, read what is new, do what is due. Returns whether more is waiting.

        Raises `StoreError`.
        """
        if self._cursor is None:
            self._cursor = await self._load()
        found = await self._store.changes(self._cursor)
        self._cursor = found.cursor
        await self._take(found.changes)
        if self._work is None and not self._slow and self._index.due() is not None:
            # Beside the feed: no purge waits for what takes minutes.
            self._work = asyncio.get_running_loop().create_task(self._working(0.0))
        if self._clock() - self._swept > _SWEEP_S:
            self._swept = self._clock()
            self._index.sweep()
            await self._store.sweep()
        return bool(found.changes)

    async def _run(self) -> None:
        # A client library may swallow a cancellation: the loop ends all the same.
        while self._task is not None:
            more = False
            try:
                more = await self.step()
                if self._cursor is not None and not more:
                    self._progress = Progress("following", 1.0)
                self._tell("up", "")
            except StoreError as error:
                self._progress = Progress("waiting", self._progress.share, str(error))
                self._tell("down", str(error))
            except Exception as error:  # The next round may go well; requests go on without.
                reason = f"internal: {type(error).__name__}: {error}"
                self._progress = Progress("waiting", self._progress.share, reason)
                self._tell("down", reason)
            await asyncio.sleep(0.0 if more else self._poll_s)

    def _tell(self, state: Literal["up", "down"], reason: str) -> None:
        if state != self._told:
            self._told = state
            self._observe(StoreState(_NAME, state, reason))

    async def _load(self) -> Cursor:
        """Build the index anew. What was purged meanwhile may be in it until the feed is read."""
        self._progress = Progress("building", 0.0)
        snapshot = await self._store.snapshot()
        self._index.clear()
        loaded = 0
        async for batch in snapshot.batches:
            for start in range(0, len(batch), _SLICE):
                some: Sequence[Record] = batch[start : start + _SLICE]
                for record in some:
                    self._index.add(record)
                loaded += len(some)
                await asyncio.sleep(0)
            # The other half is making large partitions fast.
            self._progress = Progress("building", 0.5 * min(1.0, loaded / max(1, snapshot.count)))
        await self._working(0.5)
        return snapshot.cursor

    async def _working(self, share: float) -> None:
        if self._slow:
            return
        try:
            await self._settle(share)
        except Exception as error:  # FAISS is missing, or failed: searches go on exactly.
            self._slow = True
            reason = f"index: {type(error).__name__}: {error}"
            self._observe(StoreState(_NAME, "degraded", reason))
        finally:
            if not share:
                self._work = None

    async def _settle(self, share: float) -> None:
        """Do what makes large partitions fast, in a thread."""
        while (job := self._index.due()) is not None:
            finish = await asyncio.to_thread(job)
            finish()
            if share:
                share += (1.0 - share) / 64
                self._progress = Progress("building", share)

    async def _take(self, changes: Sequence[Change]) -> None:
        for number, change in enumerate(changes, 1):
            if isinstance(change, Reset):
                self._cursor = None
                self._progress = Progress("building", 0.0)
                return
            self._apply(change)
            if number % _SLICE == 0:
                await asyncio.sleep(0)

    def _apply(self, event: Event) -> None:
        match event:
            case Added(record) | Confirmed(record):
                self._index.add(record)
            case Removed(tenant, record_id):
                self._index.remove(tenant, record_id)
            case Purged(tenant, label, at):
                self._index.purge(tenant, label, at)

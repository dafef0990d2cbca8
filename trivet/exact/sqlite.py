"""The embedded store: one SQLite file that several worker processes share, in WAL mode.

Reads and writes have a thread and a connection each, so that the event loop never waits for a
disk. Reads of one event-loop tick cross to their thread together; writes that wait together are
one transaction.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from trivet.errors import StoreError
from trivet.exact import sqlite_rows as rows
from trivet.exact.codec import Rejected, encode
from trivet.exact.entry import Entry
from trivet.exact.lane import Lane
from trivet.exact.opened import Opened
from trivet.exact.purges import Changes, Purge
from trivet.exact.seal import Seal
from trivet.exact.sqlite_purged import KnownTombstones
from trivet.exact.store import Bound, StoreStats
from trivet.messages import ExactKey
from trivet.sqlite_file import SqliteFile, SqliteHandle, transaction
from trivet.sqlite_tables import ALL, refuse_before, totals
from trivet.telemetry import EntryRejected, Observer, ignore

_SWEEP_S = 5.0
_BATCH = 256
"""Writes that share a transaction at most."""
_MAX_WAITING = 4096
_MAX_TOUCHED = 4096
_NUMBERS = 1 << 63
"""A cursor is a number of the file's feed, and this much more for each file before it."""

_Work = Callable[[sqlite3.Connection], Any]


@dataclass(slots=True)
class _Write:
    """A change: `prepare` runs before the transaction, what it returns inside."""

    prepare: Callable[[], _Work]


class SqliteStore:
    """Entries in the file at `path`, bounded by `most`; for one event loop in each process.

    Opens the file when it is first used: a file that cannot be opened is a `StoreError` of each
    call. `busy_s` is how long a write waits for another process's.
    """

    name = "sqlite"

    def __init__(
        self,
        path: Path,
        seal: Seal,
        *,
        most: Bound,
        observer: Observer = ignore,
        busy_s: float = 0.25,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._seal = seal
        self._most = most
        self._observe = observer
        self._clock = clock
        self._evictions = 0
        self._touched: set[int] = set()
        self._tombstones = KnownTombstones()
        self.opened = Opened(seal)
        """Another one, that keeps something, takes its place before the first call."""
        self._swept = time.monotonic()
        file = SqliteFile(path, rows.SCHEMA, busy_s, lambda db: refuse_before(db, self._clock()))
        self._reader, self._writer = SqliteHandle(file), SqliteHandle(file)
        self._reads: Lane[Callable[[sqlite3.Connection], Any]] = Lane(
            self._read, self._rest, idle_s=60.0, most=_MAX_WAITING
        )
        self._writes: Lane[_Write] = Lane(
            self._write, self._tidy, idle_s=_SWEEP_S, most=_MAX_WAITING
        )

    async def get(self, tenant: str, key: ExactKey) -> Entry | None:
        """See `ExactStore.get`."""
        name = self._seal.pseudonym(tenant)

        def work(db: sqlite3.Connection) -> Entry | Rejected | None:
            found = rows.find(db, name, key, self._clock())
            if found is None:
                return None
            entry = self.opened.decode(found[1], tenant, key)
            if isinstance(entry, Rejected):
                return entry
            if self._tombstones.cover(db, found[2], entry, self._seal):
                return Rejected("purged")
            if len(self._touched) < _MAX_TOUCHED:
                self._touched.add(found[0])
            return entry

        found: Entry | Rejected | None = await self._reads.do(work)
        if not isinstance(found, Rejected):
            return found
        self._observe(EntryRejected(self.name, found.reason))
        with suppress(StoreError):  # It is a miss, whether the file takes a write or not.
            await self._change(lambda db: rows.delete(db, name, key))
        return None

    async def put(self, entry: Entry, bound: Bound) -> str:
        """See `ExactStore.put`. Returns once the entry is committed."""

        def prepare() -> _Work:
            row = rows.row_of(entry, encode(entry, self._seal), self._seal)
            return lambda db: rows.put(db, row, bound, self._most, self._clock())

        refused: str
        refused, evicted = await self._writes.do(_Write(prepare))
        self._evictions += evicted
        return refused

    async def delete(self, tenant: str, key: ExactKey) -> None:
        """See `ExactStore.delete`."""
        purge = Purge(tenant, None, self._clock(), key)

        def work(db: sqlite3.Connection) -> None:
            rows.delete(db, self._seal.pseudonym(tenant), key)
            rows.announce(db, purge, self._seal)

        await self._change(work)

    async def purge(self, tenant: str, label: str | None, at: float) -> int:
        """See `ExactStore.purge`. Large ones take several transactions, other writes between."""
        purge = Purge(tenant, label, at)
        await self._change(lambda db: rows.bury(db, purge, self._seal))
        # A row that somebody put back counts by what its columns say: a get goes by its seal.
        count = 0
        while True:
            gone: int = await self._change(lambda db: rows.purge_some(db, purge, self._seal))
            count += gone
            if gone < rows.CHUNK:
                return count

    async def changes(self, cursor: int) -> Changes:
        """See `SharedStore.changes`."""
        before, number = divmod(cursor, _NUMBERS)

        def work(db: sqlite3.Connection) -> tuple[Changes, int]:
            files = self._reader.opened - 1
            found, bad = rows.changes(db, number if files == before else None, self._seal)
            return replace(found, cursor=files * _NUMBERS + found.cursor), bad

        found, bad = await self._reads.do(work)
        for _ in range(bad):
            self._observe(EntryRejected(self.name, "mac"))
        return cast(Changes, found)

    async def usage(self, tenant: str | None) -> StoreStats:
        """See `ExactStore.usage`. Evictions are those of this process."""
        name = ALL if tenant is None else self._seal.pseudonym(tenant)
        entries, held = await self._reads.do(lambda db: totals(db, name, "entries"))
        return StoreStats(self.name, entries, held, self._evictions)

    async def ready(self) -> None:
        """See `ExactStore.ready`."""
        await self._reads.do(lambda db: totals(db, ALL, "entries"))

    async def close(self) -> None:
        """See `ExactStore.close`. Waits for the writes that were accepted."""
        await self._writes.close()
        await self._reads.close()

    async def _change(self, work: _Work) -> Any:
        return await self._writes.do(_Write(lambda: work))

    def _read(self, jobs: Sequence[_Work]) -> list[Any]:
        run = self._reader.run
        if len(jobs) > 1:
            with suppress(Exception):  # Whatever one stumbles over, each is done by itself below.
                return run(lambda db: _together(db, jobs))
        # One look at the file is enough for all of them.
        return [_outcome(partial(run, job, look=not at)) for at, job in enumerate(jobs)]

    def _write(self, jobs: Sequence[_Write]) -> list[Any]:
        outcomes: list[Any] = []
        for start in range(0, len(jobs), _BATCH):
            outcomes.extend(self._transact(jobs[start : start + _BATCH]))
        if time.monotonic() - self._swept > _SWEEP_S:
            self._tidy(False)
        return outcomes

    def _transact(self, jobs: Sequence[_Write]) -> list[Any]:
        prepared = [_outcome(job.prepare) for job in jobs]
        sound = [work for work in prepared if not isinstance(work, StoreError)]
        done = _outcome(lambda: self._writer.write(lambda db: [work(db) for work in sound]))
        results = iter([done] * len(sound) if isinstance(done, StoreError) else done)
        return [work if isinstance(work, StoreError) else next(results) for work in prepared]

    def _tidy(self, closing: bool) -> None:
        self._swept = time.monotonic()
        touched, self._touched = self._touched, set()
        now = self._clock()
        if not (closing and not touched):
            _outcome(lambda: self._writer.write(lambda db: rows.sweep(db, touched, now)))
        if closing:
            self._writer.close()

    def _rest(self, closing: bool) -> None:
        if closing:
            self._reader.close()


def _together(db: sqlite3.Connection, jobs: Sequence[_Work]) -> list[Any]:
    """The outcomes of reads that share one snapshot, and its locks."""
    with transaction(db, "DEFERRED"):
        return [job(db) for job in jobs]


def _outcome(work: Callable[[], Any]) -> Any:
    """What `work` returns, or the `StoreError` that it ends in: a thread must not die of a job."""
    try:
        return work()
    except StoreError as error:
        return error
    except Exception as error:  # Whatever one job stumbles over, the next one is still done.
        return StoreError("internal", f"internal: {type(error).__name__}: {error}")

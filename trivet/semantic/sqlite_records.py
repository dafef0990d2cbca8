"""Records in one SQLite file that several worker processes share, in WAL mode.

One thread does the work, so that the event loop never waits for a disk. Where another file took
the place of the one that was read, readers are told to load a snapshot.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

from trivet.errors import StoreError
from trivet.semantic import record_rows as rows
from trivet.semantic.record_codec import seal_event, seal_record, unseal_event, unseal_record
from trivet.semantic.records import (
    Added,
    Change,
    Changes,
    Confirmed,
    Cursor,
    Event,
    Purged,
    RecordBound,
    Removed,
    Reset,
    Sealer,
    Snapshot,
)
from trivet.semantic.types import Record
from trivet.sqlite_file import SqliteFile, SqliteHandle, transaction
from trivet.sqlite_tables import ALL, refuse_before, totals
from trivet.telemetry import EntryRejected, Observer, ignore

_T = TypeVar("_T")


class SqliteRecords:
    """A `RecordStore` in the file at `path`, made with mode 0600 when it is first used.

    `busy_s` is how long a call waits for another process's write.
    """

    name = "sqlite"

    def __init__(
        self,
        path: Path,
        sealer: Sealer,
        bound: RecordBound,
        *,
        observer: Observer = ignore,
        busy_s: float = 1.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._sealer = sealer
        self._bound = bound
        self._observe = observer
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="trivet-records")
        self._closed = False
        self._handle = SqliteHandle(
            SqliteFile(path, rows.SCHEMA, busy_s, lambda db: refuse_before(db, clock()))
        )

    async def publish(self, event: Event) -> None:
        """See `RecordStore.publish`. Returns once it is committed."""
        await self._run(self._writer(event), write=True)

    async def changes(self, cursor: Cursor) -> Changes:
        """See `RecordStore.changes`."""
        given, _, number = cursor.rpartition(":")

        def work(db: sqlite3.Connection) -> tuple[list[Change | str | None], str] | None:
            found = rows.changes(db, int(number)) if self._token(db) == given else None
            if found is None:
                return None
            return [self._change(fed) for fed in found[0]], f"{given}:{found[1]}"

        found = await self._run(work)
        if found is None:
            return Changes((Reset(),), cursor)
        sound: list[Change] = self._sound(found[0])
        if Reset() in sound:
            return Changes((Reset(),), cursor)
        return Changes(tuple(sound), Cursor(found[1]))

    async def snapshot(self) -> Snapshot:
        """See `RecordStore.snapshot`."""

        def work(db: sqlite3.Connection) -> tuple[str, int, int]:
            count, _ = totals(db, ALL, "records")
            return f"{self._token(db)}:{rows.last(db)}", count, rows.newest(db)

        cursor, count, until = await self._run(work)
        return Snapshot(Cursor(cursor), count, self._batches(until))

    async def sweep(self) -> None:
        """See `RecordStore.sweep`."""
        now = self._clock()
        await self._run(lambda db: rows.sweep(db, now), write=True)

    async def ready(self) -> None:
        """See `RecordStore.ready`. A broken file, or another program's, is told by its name."""
        await self._run(rows.token)

    async def close(self) -> None:
        """See `RecordStore.close`. Waits for the writes that were accepted."""
        if self._closed:
            return
        self._closed = True
        self._thread.submit(self._handle.close)
        await asyncio.to_thread(self._thread.shutdown)

    def _writer(self, event: Event) -> Callable[[sqlite3.Connection], None]:
        now, sealer = self._clock(), self._sealer
        tenant = event.record.tenant if isinstance(event, Added | Confirmed) else event.tenant
        name = sealer.pseudonym(tenant)
        if isinstance(event, Removed):
            sealed = seal_event(event, sealer)
            return lambda db: rows.remove(db, name, event.id, sealed)
        if isinstance(event, Purged):
            sealed = seal_event(event, sealer)
            label = None if event.label is None else sealer.pseudonym(tenant, event.label)
            return lambda db: rows.purge(db, name, label, event.at, sealed)
        record = event.record
        kind = "added" if isinstance(event, Added) else "confirmed"
        bound = (self._bound.of(tenant), self._bound)
        row = rows.Row(
            name,
            record.id,
            tuple(sealer.pseudonym(tenant, label) for label in record.labels),
            record.created,
            record.expires,
            seal_record(record, sealer),
        )
        return lambda db: rows.put(db, row, kind, bound, now)

    async def _batches(self, until: int) -> AsyncIterator[list[Record]]:
        after = 0
        while True:
            found = await self._run(partial(self._read, after, until))
            if not found[0]:
                return
            after = found[0]
            yield self._sound(found[1])

    def _read(
        self, after: int, until: int, db: sqlite3.Connection
    ) -> tuple[int, list[Record | str]]:
        found = rows.batch(db, after, until, self._clock())
        opened = [self._open(*row[1:]) for row in found]
        return (found[-1][0] if found else 0), opened

    def _token(self, db: sqlite3.Connection) -> str:
        """What tells this file from the one before it, which may be a copy of it."""
        return f"{rows.token(db)}.{self._handle.opened}"

    def _sound(self, opened: Sequence[_T | str | None]) -> list[_T]:
        """Without those that are none; why they are not is told."""
        for one in opened:
            if isinstance(one, str | Reset):
                self._observe(EntryRejected("semantic", one if isinstance(one, str) else "mac"))
        return [one for one in opened if one is not None and not isinstance(one, str)]

    def _change(self, fed: rows.Fed) -> Change | str | None:
        """`Reset` for an event that this secret did not seal: it may have been a purge."""
        if fed.id is None or fed.tenant is None:
            return unseal_event(fed.value or b"", self._sealer) or Reset()
        if fed.value is None:
            return None  # The record is gone: the event that took it follows.
        found = self._open(fed.tenant, fed.id, fed.value)
        if isinstance(found, str):
            return found
        return Added(found) if fed.kind == b"added" else Confirmed(found)

    def _open(self, tenant: bytes, record_id: bytes, value: bytes) -> Record | str:
        try:
            found = unseal_record(value, record_id.decode(), self._sealer)
        except UnicodeDecodeError:
            return "format"
        # A purge goes by the row's tenant: the record must be of no other.
        if isinstance(found, Record) and self._sealer.pseudonym(found.tenant) != tenant:
            return "mac"
        return found

    async def _run(self, work: Callable[[sqlite3.Connection], _T], *, write: bool = False) -> _T:
        if self._closed:
            raise StoreError("closed")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._do, work, write)

    def _do(self, work: Callable[[sqlite3.Connection], _T], write: bool) -> _T:
        def unchanging(db: sqlite3.Connection) -> _T:
            with transaction(db, "DEFERRED"):
                return work(db)

        try:
            return self._handle.write(work) if write else self._handle.run(unchanging)
        except StoreError:
            raise
        except Exception as error:  # Whatever a row makes one call stumble over.
            raise StoreError("internal", f"internal: {type(error).__name__}: {error}") from error

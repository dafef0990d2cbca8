"""Records in a Redis or Valkey that several machines share. Needs the extra `redis`.

The live records lie in a hash, what happened to them in a stream; both are written by one script
at a time, so that a snapshot and the feed after it are complete together. A deployment's records
share one hash slot.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol, TypeVar

from redis import exceptions as errors

from trivet.errors import StoreError
from trivet.semantic import record_scripts as scripts
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
from trivet.telemetry import EntryRejected, Observer, ignore

CONNECTIONS = 8
"""What the link has to have: as many calls are on their way at most."""
_T = TypeVar("_T")


class Link(Protocol):
    """A client that never retries by itself, as `exact.redis_client.connect` makes one."""

    @property
    def execute(self) -> Callable[..., Awaitable[Any]]:
        """Send a command; raises what redis-py raises."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


def prefix(sealer: Sealer) -> bytes:
    """What the names of all keys begin with."""
    return b"trivet:{%b}:r:" % sealer.pseudonym("").hex().encode()


class RedisRecords:
    """A `RecordStore` over a link, which it closes.

    `searchable` also keeps each vector in the open, for a Redis that searches (`redis_vectors`).
    """

    name = "redis"

    def __init__(
        self,
        link: Link,
        sealer: Sealer,
        bound: RecordBound,
        *,
        observer: Observer = ignore,
        clock: Callable[[], float] = time.time,
        searchable: bool = False,
    ) -> None:
        self._searchable = searchable
        self._link = link
        self._sealer = sealer
        self._bound = bound
        self._observe = observer
        self._clock = clock
        self._slots = asyncio.Semaphore(CONNECTIONS)
        self._prefix = prefix(sealer)

    async def publish(self, event: Event) -> None:
        """See `RecordStore.publish`. A purge deletes a few hundred at a time, others between."""
        match event:
            case Added(record):
                await self._put("added", record)
            case Confirmed(record):
                await self._put("confirmed", record)
            case Removed(tenant, record_id):
                sealed = seal_event(event, self._sealer)
                member = self._member(tenant, record_id)
                await self._script(scripts.REMOVE, self._now(), member, sealed)
            case Purged():
                await self._purge(event)

    async def changes(self, cursor: Cursor) -> Changes:
        """See `RecordStore.changes`. One script: a few hundred records at most."""
        last, found = await self._script(scripts.CHANGES, cursor, scripts.CHUNK)
        if last is None or not self._follows(cursor, last, found):
            return Changes((Reset(),), cursor)
        if not found:
            return Changes((), cursor)
        opened = await asyncio.to_thread(lambda: [self._change(*fed[1:]) for fed in found])
        at = Cursor(found[-1][0].partition(b"-")[0].decode())
        return Changes(tuple(self._sound(opened)), at)

    async def snapshot(self) -> Snapshot:
        """See `RecordStore.snapshot`."""
        last, count = await self._script(scripts.START, self._now())
        return Snapshot(Cursor(last.decode()), count, self._batches())

    async def sweep(self) -> None:
        """See `RecordStore.sweep`."""
        await self._script(scripts.SWEEP, self._now(), scripts.CHUNK)

    async def ready(self) -> None:
        """See `RecordStore.ready`."""
        await self._script(scripts.START, self._now())

    async def close(self) -> None:
        """See `RecordStore.close`."""
        await self._link.close()

    async def _put(self, kind: str, record: Record) -> None:
        tenant, name = record.tenant, self._sealer.pseudonym
        await self._script(
            scripts.PUT,
            self._now(),
            kind,
            self._member(tenant, record.id),
            seal_record(record, self._sealer),
            repr(record.created),
            repr(record.expires),
            self._bound.of(tenant),
            self._bound.entries,
            self._bound.bytes,
            record.partition.hex() if self._searchable else "",
            record.vector if self._searchable else b"",
            *(name(tenant, label).hex() for label in record.labels),
        )

    async def _purge(self, event: Purged) -> None:
        sealed = seal_event(event, self._sealer)
        name = self._sealer.pseudonym(event.tenant, event.label or "").hex()
        # First what refuses late records, so that none slips in behind the deletion. Who loads a
        # snapshot from here on has the first event behind it, and may still find what is being
        # deleted: it reads the second.
        await self._script(scripts.BURY, self._now(), name, repr(event.at), sealed)
        gone = 0
        while True:
            some = await self._script(scripts.PURGE, name, repr(event.at), scripts.CHUNK)
            gone += some
            if some < scripts.CHUNK:
                break
        if gone:
            await self._script(scripts.BURY, self._now(), name, repr(event.at), sealed)

    def _follows(self, cursor: Cursor, last: bytes, found: Sequence[Any]) -> bool:
        """Whether nothing is missing between the cursor and the first event found."""
        if not found:
            return last == cursor.encode()
        return int(found[0][0].partition(b"-")[0]) == int(cursor) + 1

    def _change(self, kind: bytes, member: bytes, value: bytes | None) -> Change | str | None:
        if value is None:
            return None  # The record is gone: the event that took it follows.
        if kind == b"event":
            return unseal_event(value, self._sealer) or "mac"
        found = open_member(member, value, self._sealer)
        if isinstance(found, str):
            return found
        return Added(found) if kind == b"added" else Confirmed(found)

    async def _batches(self) -> AsyncIterator[list[Record]]:
        place: Any = 0
        while True:
            async with self._slots, translated():
                place, scored = await self._link.execute(
                    "ZSCAN", self._prefix + b"x", place, "COUNT", scripts.CHUNK
                )
            members = [member for member, _ in scored]
            values = await self._script(scripts.FETCH, *members) if members else []
            items = [item for item in zip(members, values, strict=True) if item[1] is not None]
            opened = await asyncio.to_thread(self._open_all, items)
            now = self._clock()
            yield [one for one in self._sound(opened) if one.expires > now]
            if int(place) == 0:
                return

    def _sound(self, opened: Sequence[_T | str | None]) -> list[_T]:
        """Without those that are none; why they are not is told."""
        for one in opened:
            if isinstance(one, str):
                self._observe(EntryRejected("semantic", one))
        return [one for one in opened if one is not None and not isinstance(one, str)]

    def _open_all(self, items: Sequence[tuple[bytes, bytes]]) -> list[Record | str]:
        return [open_member(member, value, self._sealer) for member, value in items]

    def _member(self, tenant: str, record_id: str) -> str:
        return f"{self._sealer.pseudonym(tenant).hex()}:{record_id}"

    def _now(self) -> str:
        return repr(self._clock())

    async def _script(self, script: scripts.Script, *args: Any) -> Any:
        # The key names the slot; the scripts make the others from the same prefix.
        given = (1, self._prefix + b"n", self._prefix, *args)
        async with self._slots, translated():
            try:
                return await self._link.execute("EVALSHA", script.sha, *given)
            except errors.NoScriptError:
                return await self._link.execute("EVAL", script.text, *given)


def open_member(member: bytes, value: bytes, sealer: Sealer) -> Record | str:
    """The record under a member's name, or why it is none."""
    tenant, _, record_id = member.decode("utf-8", "replace").partition(":")
    found = unseal_record(value, record_id, sealer)
    if isinstance(found, Record) and sealer.pseudonym(found.tenant).hex() != tenant:
        return "mac"
    return found


@asynccontextmanager
async def translated() -> AsyncIterator[None]:
    """Foreign exceptions become `StoreError` with a short reason."""
    try:
        yield
    except (errors.RedisError, errors.RedisClusterException, OSError) as error:
        reason = _reason(error)
        raise StoreError(reason, f"{reason}: {type(error).__name__}: {str(error)[:200]}") from error


def _reason(error: BaseException) -> str:
    if isinstance(error, errors.TimeoutError | TimeoutError):
        return "timeout"
    if isinstance(error, errors.OutOfMemoryError):
        return "full"
    if isinstance(error, errors.AuthenticationError | errors.NoPermissionError):
        return "auth"
    if isinstance(error, errors.ReadOnlyError):
        return "readonly"
    if isinstance(error, errors.ConnectionError | OSError):
        return "connection"
    return "response"

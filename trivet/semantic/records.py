"""The feed that keeps the indexes of several processes in step, and what a store of it does.

A store holds the live records and an ordered feed of what happened to them. A process loads a
snapshot, and then reads the feed from where the snapshot began.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import NewType, Protocol

from trivet.semantic.types import Record

Cursor = NewType("Cursor", str)
"""A place in a store's feed; good for the store that made it."""


@dataclass(frozen=True, slots=True)
class Added:
    """A record came; one of the same id is replaced."""

    record: Record


@dataclass(frozen=True, slots=True)
class Confirmed:
    """A record changed: it left its quarantine, or came nearer to leaving it."""

    record: Record


@dataclass(frozen=True, slots=True)
class Removed:
    """One record is gone for good."""

    tenant: str
    id: str


@dataclass(frozen=True, slots=True)
class Purged:
    """The tenant's records created at or before `at` are gone: those with `label`, or all."""

    tenant: str
    label: str | None
    at: float


@dataclass(frozen=True, slots=True)
class Reset:
    """The feed does not reach back to the cursor: load a snapshot. Never published."""


Event = Added | Confirmed | Removed | Purged
Change = Event | Reset


@dataclass(frozen=True, slots=True)
class Changes:
    """What happened since a cursor, in order, and the cursor for next time."""

    changes: tuple[Change, ...]
    cursor: Cursor


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The live records, in batches; the feed from `cursor` on completes what changes meanwhile."""

    cursor: Cursor
    count: int
    """How many there are, about."""
    batches: AsyncIterator[list[Record]]
    """May raise `StoreError`."""


@dataclass(frozen=True, slots=True)
class RecordBound:
    """How much a store keeps. Over it a tenant's oldest records go, or the next to expire."""

    of: Callable[[str], int]
    """How many records a tenant may keep."""
    entries: int = 1_000_000
    bytes: int = 4 << 30


class Sealer(Protocol):
    """Authenticates what leaves the process, and encrypts it where asked: `exact.seal.Seal`."""

    def seal(self, tenant: str, context: bytes, data: bytes) -> bytes:
        """`data` bound to the tenant and to `context`."""
        ...

    def unseal(self, tenant: str, context: bytes, sealed: bytes) -> bytes | None:
        """What was sealed for this use, else None."""
        ...

    def pseudonym(self, tenant: str, label: str = "") -> bytes:
        """16 bytes that stand for a tenant, or for one of its labels."""
        ...


class RecordStore(Protocol):
    """Live records and their feed. Every method may raise `StoreError`, and nothing else.

    A record that does not unseal is passed over and told as `EntryRejected`.
    """

    name: str

    async def publish(self, event: Event) -> None:
        """Apply an event, and let the other processes know.

        A record that was created before a purge which names it is not taken in, nor one whose
        tenant's bound is 0. Over its bound, a tenant loses its oldest records.
        """
        ...

    async def changes(self, cursor: Cursor) -> Changes:
        """What happened after `cursor`, at most some hundreds at a time."""
        ...

    async def snapshot(self) -> Snapshot:
        """Begin to read the live records."""
        ...

    async def sweep(self) -> None:
        """Delete what expired, some hundreds at a time."""
        ...

    async def ready(self) -> None:
        """Return if the store answers; raise `StoreError` if it does not."""
        ...

    async def close(self) -> None:
        """Release files, sockets and threads. Idempotent."""
        ...

"""Records of one process: its index is all there is, and nothing outlives it."""

from __future__ import annotations

from collections.abc import AsyncIterator

from trivet.semantic.records import Changes, Cursor, Event, Snapshot
from trivet.semantic.types import Record


class MemoryRecords:
    """A `RecordStore` that keeps nothing: its process applied each event before it published it."""

    name = "memory"

    async def publish(self, event: Event) -> None:
        """See `RecordStore.publish`. There is nobody to tell."""

    async def changes(self, cursor: Cursor) -> Changes:
        """See `RecordStore.changes`. Nobody else changes anything."""
        return Changes((), cursor)

    async def snapshot(self) -> Snapshot:
        """See `RecordStore.snapshot`. Empty."""
        return Snapshot(Cursor(""), 0, _nothing())

    async def sweep(self) -> None:
        """See `RecordStore.sweep`."""

    async def ready(self) -> None:
        """See `RecordStore.ready`."""

    async def close(self) -> None:
        """See `RecordStore.close`."""


async def _nothing() -> AsyncIterator[list[Record]]:
    for batch in list[list[Record]]():
        yield batch

"""Where running counts are kept, so that they outlive a process and are shared by several."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from trivet.semantic.tally import NOTHING, Cell, Counts

MOST = 500
"""Cells that one call of `changes` tells of, about."""
_DONE = 256


class Row(NamedTuple):
    """What is stored of one cell. `closed` is why its intent is closed; empty while open."""

    counts: Counts = NOTHING
    closed: str = ""


class Update(NamedTuple):
    """What to add to a cell. A cell that the store does not have (new, or lost) starts as `known`.

    A `closed` that is there already stays.
    """

    known: Counts = NOTHING
    more: Counts = NOTHING
    closed: str = ""


@dataclass(frozen=True, slots=True)
class Changed:
    """Cells that were written after a cursor, as they are now, and the cursor for next time."""

    token: str
    """Another one than before: the store was emptied or replaced, and cells may be missing."""
    cursor: int
    rows: Mapping[Cell, Row]
    more: bool = False
    """There are further ones at once."""


class MonitorStore(Protocol):
    """Shared totals. Every method may raise `StoreError`, and nothing else."""

    name: str

    async def add(self, batch: str, updates: Mapping[Cell, Update]) -> None:
        """Add all or nothing. A batch that is given again, after an error, is added once."""
        ...

    async def changes(self, cursor: int) -> Changed:
        """What was written after `cursor`, oldest first. 0 is the beginning."""
        ...

    async def close(self) -> None:
        """Release files and sockets. Idempotent."""
        ...


def applied(row: Row | None, update: Update) -> Row:
    """The row after an update."""
    found = Row(update.known) if row is None else row
    return Row(found.counts.plus(update.more), found.closed or update.closed)


def cell_name(cell: Cell) -> str:
    """The cell as a store's key."""
    return json.dumps(cell, separators=(",", ":"))


def named_cell(name: str) -> Cell | None:
    """What `cell_name` wrote; None for anything else."""
    try:
        parts = json.loads(name)
    except ValueError:
        return None
    if type(parts) is not list or len(parts) != 4 or any(type(part) is not str for part in parts):
        return None
    return Cell(*parts)


class MemoryMonitorStore:
    """A `MonitorStore` of one process, or of several in one test."""

    name = "memory"

    def __init__(self) -> None:
        self._token = secrets.token_hex(8)
        self._rows: dict[Cell, tuple[int, Row]] = {}
        self._last = 0
        self._done: dict[str, None] = {}

    async def add(self, batch: str, updates: Mapping[Cell, Update]) -> None:
        """See `MonitorStore.add`."""
        if batch in self._done:
            return
        self._done[batch] = None
        if len(self._done) > _DONE:
            del self._done[next(iter(self._done))]
        for cell, update in updates.items():
            self._last += 1
            found = self._rows.pop(cell, None)
            self._rows[cell] = self._last, applied(found and found[1], update)

    async def changes(self, cursor: int) -> Changed:
        """See `MonitorStore.changes`."""
        rows = {cell: row for cell, (at, row) in self._rows.items() if at > cursor}
        return Changed(self._token, self._last, rows)

    async def close(self) -> None:
        """See `MonitorStore.close`."""

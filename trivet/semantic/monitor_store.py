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
UNREADABLE = "unreadable"
"""Why an intent is closed whose row was not written by this deployment, or was damaged: what it
said is not known, and only another calibration has another row."""
REASONS: frozenset[str] = frozenset(("", "bound", "economics", "reports", UNREADABLE))
REMEMBERED_S = 100 * 86400
"""How long a store remembers what was added once: longer than a draw's verdict is taken."""
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
    unreadable: frozenset[str] = frozenset()
    """Names (`MonitorStore.name_of`) of rows that could not be read."""


class MonitorStore(Protocol):
    """Shared totals. Every method may raise `StoreError`, and nothing else.

    A row that cannot be read is passed over, told as `EntryRejected`, and named in
    `Changed.unreadable`. An update of it starts as `known`, and as closed where the row is one of
    those that say so (those without a family).
    """

    name: str

    def name_of(self, cell: Cell) -> str:
        """What the store calls the cell. Raises nothing."""
        ...

    async def add(self, batch: str, updates: Mapping[Cell, Update]) -> None:
        """Add all or nothing. A batch that is given again, after an error, is added once."""
        ...

    async def add_once(self, name: str, cell: Cell, update: Update) -> bool:
        """Add to one cell, unless that was done under this name within `REMEMBERED_S`.

        Whether it was done now.
        """
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


def replaced(cell: Cell, update: Update) -> Row:
    """The row after an update of one that could not be read."""
    return applied(Row(update.known, "" if cell.family else update.closed or UNREADABLE), update)


class MemoryMonitorStore:
    """A `MonitorStore` of one process, or of several in one test."""

    name = "memory"

    def __init__(self) -> None:
        self._token = secrets.token_hex(8)
        self._rows: dict[Cell, tuple[int, Row]] = {}
        self._last = 0
        self._done: dict[str, None] = {}
        self._once: set[str] = set()

    def name_of(self, cell: Cell) -> str:
        """See `MonitorStore.name_of`."""
        return json.dumps(cell)

    async def add(self, batch: str, updates: Mapping[Cell, Update]) -> None:
        """See `MonitorStore.add`."""
        if batch in self._done:
            return
        self._done[batch] = None
        if len(self._done) > _DONE:
            del self._done[next(iter(self._done))]
        for cell, update in updates.items():
            self._put(cell, update)

    async def add_once(self, name: str, cell: Cell, update: Update) -> bool:
        """See `MonitorStore.add_once`."""
        if name in self._once:
            return False
        self._once.add(name)
        self._put(cell, update)
        return True

    async def changes(self, cursor: int) -> Changed:
        """See `MonitorStore.changes`."""
        rows = {cell: row for cell, (at, row) in self._rows.items() if at > cursor}
        return Changed(self._token, self._last, rows)

    async def close(self) -> None:
        """See `MonitorStore.close`."""

    def _put(self, cell: Cell, update: Update) -> None:
        self._last += 1
        found = self._rows.pop(cell, None)
        self._rows[cell] = self._last, applied(found and found[1], update)

"""The tombstones of a SQLite file as one process knows them: a read costs a lookup in memory.

Every purge takes a place in the feed, in the transaction that buries it. The query that brings an
entry brings the feed's last place too: while it is the one known here, no purge was added.
"""

from __future__ import annotations

import math
import sqlite3
import time
from collections.abc import Callable, Sequence

from trivet.exact.sqlite_rows import TOMBSTONES_KEPT, buried

_AGAIN_S = 1.0
"""Seconds between two readings of all tombstones: where purges come faster, each get asks."""
_NEVER = float("-inf")


class KnownTombstones:
    """For one thread. Holds at most `TOMBSTONES_KEPT` and a few; a file with more is asked."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._db: sqlite3.Connection | None = None
        self._place: int | None = None
        self._at: dict[bytes, float] = {}
        self._read = _NEVER

    def cover(
        self, db: sqlite3.Connection, place: int | None, names: Sequence[bytes], created: float
    ) -> bool:
        """Whether a name was purged at `created` or later, as of the feed's `place` or later."""
        if (place != self._place or db is not self._db) and not self._learn(db, place):
            return buried(db, names, created)
        at = self._at
        return bool(at) and any(created <= at.get(name, _NEVER) for name in names)

    def _learn(self, db: sqlite3.Connection, place: int | None) -> bool:
        now = self._clock()
        if now - self._read < _AGAIN_S:
            return False
        self._read = now
        rows = db.execute("SELECT name, at FROM tombstones LIMIT ?", (TOMBSTONES_KEPT + 2,))
        found = {name: _time(at) for name, at in rows}
        if len(found) > TOMBSTONES_KEPT + 1:
            return False
        self._db, self._place, self._at = db, place, found
        return True


def _time(at: object) -> float:
    """A tombstone's time; one that somebody made unreadable stands for all times."""
    return at if isinstance(at, float) else math.inf

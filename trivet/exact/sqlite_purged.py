"""The tombstones of a SQLite file as one process knows them: a read costs a lookup in memory.

Every purge takes a place in the feed, in the transaction that buries it. The query that brings an
entry brings the feed's last place too: while it is the one known here, no purge was added.
"""

from __future__ import annotations

import math
import sqlite3
import time
from collections.abc import Callable

from trivet.exact.entry import Entry
from trivet.exact.purges import key_label
from trivet.exact.seal import Seal
from trivet.exact.sqlite_rows import TOMBSTONES_KEPT, label_names
from trivet.sqlite_tables import buried

_AGAIN_S = 1.0
"""Seconds between two readings of all tombstones: where purges come faster, each get asks."""
_NEVER = float("-inf")
_TOMBSTONES = """
SELECT CAST(name AS BLOB), CASE WHEN typeof(at) = 'real' THEN at END FROM tombstones LIMIT ?"""


class KnownTombstones:
    """For one thread. Holds at most `TOMBSTONES_KEPT` and a few; a file with more is asked."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._db: sqlite3.Connection | None = None
        self._place: int | None = None
        self._at: dict[bytes, float] = {}
        self._latest = _NEVER
        self._read = _NEVER

    def cover(self, db: sqlite3.Connection, place: int | None, entry: Entry, seal: Seal) -> bool:
        """Whether `entry` was purged, as of the feed's `place` or later.

        Goes by the names and the time that the seal covers: the row's columns may be anybody's.
        """
        known = (place == self._place and db is self._db) or self._learn(db, place)
        if known and entry.created > self._latest:
            return False
        tenant, key = entry.tenant, key_label(entry.key)
        names = (seal.pseudonym(tenant), seal.pseudonym(tenant, key), *label_names(entry, seal))
        if not known:
            return buried(db, names, entry.created)
        return any(entry.created <= self._at.get(name, _NEVER) for name in names)

    def _learn(self, db: sqlite3.Connection, place: int | None) -> bool:
        now = self._clock()
        if now - self._read < _AGAIN_S:
            return False
        self._read = now
        rows = db.execute(_TOMBSTONES, (TOMBSTONES_KEPT + 2,))
        found = {name: _time(at) for name, at in rows}
        if len(found) > TOMBSTONES_KEPT + 1:
            return False
        self._db, self._place, self._at = db, place, found
        self._latest = max(found.values(), default=_NEVER)
        return True


def _time(at: object) -> float:
    """A tombstone's time; one that somebody made unreadable stands for all times."""
    return at if isinstance(at, float) else math.inf

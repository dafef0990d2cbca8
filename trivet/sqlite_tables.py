"""Tables that SQLite stores have alike: `totals` by tenant, and `tombstones` of what was purged.

The rows are anybody's who can write the file: a cell of another kind than ours counts for nothing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Literal

ALL = b""
"""The tenant of the total over all tenants, and the name of the tombstones' floor."""
Counted = Literal["entries", "records"]
"""The table whose rows are counted; it has the columns `tenant` and `size`."""


def totals(db: sqlite3.Connection, tenant: bytes, table: Counted) -> tuple[int, int]:
    """Rows and bytes of a tenant, or of `ALL`."""
    return _noted(db, tenant) or _counted(db, tenant, table)


def recounted(db: sqlite3.Connection, tenant: bytes, table: Counted) -> tuple[int, int]:
    """The same. What somebody made no number is counted and noted anew."""
    noted = _noted(db, tenant)
    if noted is None:
        noted = _counted(db, tenant, table)
        db.execute("INSERT OR REPLACE INTO totals VALUES(?, ?, ?)", (tenant, *noted))
    return noted


def _noted(db: sqlite3.Connection, tenant: bytes) -> tuple[int, int] | None:
    found = db.execute(
        "SELECT CAST(entries AS INTEGER), CAST(bytes AS INTEGER), typeof(entries), typeof(bytes)"
        " FROM totals WHERE tenant = ?",
        (tenant,),
    ).fetchone()
    if found is None:
        return None if tenant == ALL else (0, 0)
    entries, held, *types = found
    return (entries, held) if types == ["integer"] * 2 and min(entries, held) >= 0 else None


def _counted(db: sqlite3.Connection, tenant: bytes, table: Counted) -> tuple[int, int]:
    where, given = ("", ()) if tenant == ALL else (" WHERE tenant = ?", (tenant,))
    query = f"SELECT count(*), coalesce(sum(CAST(size AS INTEGER)), 0) FROM {table}{where}"  # noqa: S608
    entries, held = db.execute(query, given).fetchone()
    return entries, held


def buried(db: sqlite3.Connection, names: Sequence[bytes], created: float) -> bool:
    """Whether one of the names was purged at `created` or later."""
    marks = ",?" * (len(names) - 1)
    found = db.execute(
        f"SELECT 1 FROM tombstones WHERE name IN (?{marks}) AND at >= ?",  # noqa: S608
        (*names, created),
    )
    return found.fetchone() is not None


def bury(db: sqlite3.Connection, name: bytes, at: float, most: int) -> None:
    """Remember a purge. Beyond `most` the oldest merge into the floor, which holds for all."""
    _bury(db, name, at)
    extra = db.execute("SELECT count(*) FROM tombstones").fetchone()[0] - most
    if extra <= 0:
        return
    oldest = "SELECT name, at FROM tombstones WHERE name <> ? ORDER BY at LIMIT ?"
    given = (ALL, extra)
    latest = f"SELECT max(at) FROM ({oldest}) WHERE typeof(at) = 'real'"  # noqa: S608
    floor = db.execute(latest, given).fetchone()[0]
    wanted = f"SELECT name FROM ({oldest})"  # noqa: S608
    db.execute(f"DELETE FROM tombstones WHERE name IN ({wanted})", given)  # noqa: S608
    if floor is not None:
        refuse_before(db, floor)


def refuse_before(db: sqlite3.Connection, at: float) -> None:
    """Take in nothing that was created at `at` or before: what was purged then is not known."""
    _bury(db, ALL, at)


def _bury(db: sqlite3.Connection, name: bytes, at: float) -> None:
    db.execute(
        "INSERT INTO tombstones VALUES(?, ?) ON CONFLICT(name) DO UPDATE SET at = max(at, ?)",
        (name, at, at),
    )

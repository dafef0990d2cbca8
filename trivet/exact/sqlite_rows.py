"""What the SQLite store does inside a transaction: plain functions of a connection."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from trivet.exact.entry import Entry
from trivet.exact.purges import FEED_KEPT, Changes, Purge, seal_purge, unseal_purge
from trivet.exact.seal import Seal
from trivet.exact.store import Bound
from trivet.messages import ExactKey
from trivet.sqlite_file import Schema

ALL = b""
"""The tenant column of the total over all tenants, and the name of the tombstones' floor."""
CHUNK = 500
"""Rows that one transaction deletes at most, so that other writers get their turn."""
TOMBSTONES_KEPT = 16384
SCHEMA = Schema(
    version=1,
    tables=frozenset({"entries", "labels", "tombstones", "feed", "totals"}),
    cache_kib=4096,
    script="""
CREATE TABLE entries(
    id INTEGER PRIMARY KEY, tenant BLOB NOT NULL, key BLOB NOT NULL, size INTEGER NOT NULL,
    used REAL NOT NULL, created REAL NOT NULL, stale_until REAL NOT NULL, value BLOB NOT NULL);
CREATE UNIQUE INDEX entries_key ON entries(tenant, key);
CREATE INDEX entries_used ON entries(used);
CREATE INDEX entries_tenant_used ON entries(tenant, used);
CREATE INDEX entries_stale ON entries(stale_until);
CREATE TABLE labels(name BLOB NOT NULL, entry INTEGER NOT NULL, PRIMARY KEY(name, entry))
    WITHOUT ROWID;
CREATE INDEX labels_entry ON labels(entry);
CREATE TABLE tombstones(name BLOB PRIMARY KEY, at REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE feed(seq INTEGER PRIMARY KEY AUTOINCREMENT, purge BLOB NOT NULL);
CREATE TABLE totals(tenant BLOB PRIMARY KEY, entries INTEGER NOT NULL, bytes INTEGER NOT NULL)
    WITHOUT ROWID;
INSERT INTO totals VALUES(x'', 0, 0);
CREATE TRIGGER count_in AFTER INSERT ON entries BEGIN
    INSERT INTO totals VALUES(new.tenant, 1, new.size) ON CONFLICT(tenant)
        DO UPDATE SET entries = entries + 1, bytes = bytes + excluded.bytes;
    UPDATE totals SET entries = entries + 1, bytes = bytes + new.size WHERE tenant = x'';
END;
CREATE TRIGGER count_out AFTER DELETE ON entries BEGIN
    UPDATE totals SET entries = entries - 1, bytes = bytes - old.size
        WHERE tenant IN (x'', old.tenant);
    DELETE FROM totals WHERE tenant = old.tenant AND entries = 0;
    DELETE FROM labels WHERE entry = old.id;
END;
""",
)


@dataclass(frozen=True, slots=True)
class Row:
    """An entry, ready to be written."""

    tenant: bytes
    key: ExactKey
    labels: tuple[bytes, ...]
    size: int
    created: float
    stale_until: float
    value: bytes


def row_of(entry: Entry, value: bytes, seal: Seal) -> Row:
    """The row for an entry that was encoded as `value`."""
    return Row(
        tenant=seal.pseudonym(entry.tenant),
        key=entry.key,
        labels=label_names(entry, seal),
        size=entry.size,
        created=entry.created,
        stale_until=entry.stale_until,
        value=value,
    )


def label_names(entry: Entry, seal: Seal) -> tuple[bytes, ...]:
    """The names of an entry's labels in the indexes."""
    return tuple(seal.pseudonym(entry.tenant, label) for label in entry.labels)


def find(
    db: sqlite3.Connection, tenant: bytes, key: ExactKey, now: float
) -> tuple[int, bytes, int | None] | None:
    """Row id and value under a key, and the feed's last place."""
    found: tuple[int, bytes, int | None] | None = db.execute(
        "SELECT id, CAST(value AS BLOB), (SELECT max(seq) FROM feed) FROM entries"
        " WHERE tenant = ? AND key = ? AND stale_until > ?",
        (tenant, key, now),
    ).fetchone()
    return found


def buried(db: sqlite3.Connection, names: Sequence[bytes], created: float) -> bool:
    """Whether one of the names was purged at `created` or later."""
    marks = ",?" * (len(names) - 1)
    found = db.execute(
        f"SELECT 1 FROM tombstones WHERE name IN (?{marks}) AND at >= ?",  # noqa: S608
        (*names, created),
    )
    return found.fetchone() is not None


def put(db: sqlite3.Connection, row: Row, bound: Bound, most: Bound, now: float) -> int:
    """Store a row within the tenant's and the store's bounds. Returns how many were evicted."""
    if buried(db, (ALL, row.tenant, *row.labels), row.created):
        return 0
    delete(db, row.tenant, row.key)
    if not (_fits(row.size, bound) and _fits(row.size, most)) or row.stale_until <= now:
        return 0
    evicted = make_room(db, row.tenant, bound, row.size, 1) + make_room(db, ALL, most, row.size, 1)
    cursor = db.execute(
        "INSERT INTO entries(tenant, key, size, used, created, stale_until, value)"
        " VALUES(?, ?, ?, ?, ?, ?, ?)",
        (row.tenant, row.key, row.size, now, row.created, row.stale_until, row.value),
    )
    db.executemany(
        "INSERT OR IGNORE INTO labels VALUES(?, ?)",
        [(label, cursor.lastrowid) for label in row.labels],
    )
    return evicted


def _fits(size: int, bound: Bound) -> bool:
    return (bound.bytes is None or size <= bound.bytes) and bound.entries != 0


def delete(db: sqlite3.Connection, tenant: bytes, key: ExactKey) -> None:
    """Forget one entry."""
    db.execute("DELETE FROM entries WHERE tenant = ? AND key = ?", (tenant, key))


def make_room(db: sqlite3.Connection, tenant: bytes, bound: Bound, size: int, entries: int) -> int:
    """Evict the least recently used until so much more fits. Returns how many went."""
    held, held_bytes = totals(db, tenant)
    over = 0 if bound.entries is None else held + entries - bound.entries
    over_bytes = 0 if bound.bytes is None else held_bytes + size - bound.bytes
    if over <= 0 and over_bytes <= 0:
        return 0
    where, given = ("", ()) if tenant == ALL else (" WHERE tenant = ?", (tenant,))
    doomed: list[tuple[int]] = []
    rows = db.execute(
        f"SELECT id, size FROM entries{where} ORDER BY used",  # noqa: S608
        given,
    )
    for row_id, row_size in rows:
        if over <= 0 and over_bytes <= 0:
            break
        doomed.append((row_id,))
        over, over_bytes = over - 1, over_bytes - row_size
    rows.close()
    db.executemany("DELETE FROM entries WHERE id = ?", doomed)
    return len(doomed)


def totals(db: sqlite3.Connection, tenant: bytes) -> tuple[int, int]:
    """Entries and bytes of a tenant, or of `ALL`."""
    found = db.execute("SELECT entries, bytes FROM totals WHERE tenant = ?", (tenant,)).fetchone()
    return found or (0, 0)


def bury(db: sqlite3.Connection, purge: Purge, seal: Seal) -> None:
    """Remember a purge for entries that come later, and tell the other processes."""
    name = _name(purge, seal)
    db.execute(
        "INSERT INTO tombstones VALUES(?, ?) ON CONFLICT(name) DO UPDATE SET at = max(at, ?)",
        (name, purge.at, purge.at),
    )
    extra = db.execute("SELECT count(*) FROM tombstones").fetchone()[0] - TOMBSTONES_KEPT
    if extra > 0:
        oldest = db.execute(
            "SELECT name, at FROM tombstones WHERE name <> ? ORDER BY at LIMIT ?", (ALL, extra)
        ).fetchall()
        db.executemany("DELETE FROM tombstones WHERE name = ?", [(row[0],) for row in oldest])
        db.execute(
            "INSERT INTO tombstones VALUES(?, ?) ON CONFLICT(name) DO UPDATE SET at = max(at, ?)",
            (ALL, oldest[-1][1], oldest[-1][1]),
        )
    announce(db, purge, seal)


def announce(db: sqlite3.Connection, purge: Purge, seal: Seal) -> None:
    """Add a purge to the feed."""
    cursor = db.execute("INSERT INTO feed(purge) VALUES(?)", (seal_purge(purge, seal),))
    db.execute("DELETE FROM feed WHERE seq <= ?", ((cursor.lastrowid or 0) - FEED_KEPT,))


def purge_some(db: sqlite3.Connection, purge: Purge, seal: Seal) -> int:
    """Delete at most `CHUNK` of the purged entries. Returns how many."""
    if purge.label is None:
        wanted = "SELECT id FROM entries WHERE tenant = ? AND created <= ? LIMIT ?"
    else:
        wanted = (
            "SELECT id FROM labels JOIN entries ON id = entry"
            " WHERE name = ? AND created <= ? LIMIT ?"
        )
    return db.execute(
        f"DELETE FROM entries WHERE id IN ({wanted})",  # noqa: S608
        (_name(purge, seal), purge.at, CHUNK),
    ).rowcount


def changes(db: sqlite3.Connection, cursor: int, seal: Seal) -> Changes:
    """See `SharedStore.changes`."""
    last = db.execute("SELECT coalesce(max(seq), 0) FROM feed").fetchone()[0]
    if last == cursor:
        return Changes(last, ())
    rows = db.execute("SELECT purge FROM feed WHERE seq > ? AND seq <= ?", (cursor, last))
    found = [unseal_purge(row[0], seal) for row in rows]
    known = tuple(purge for purge in found if purge is not None)
    return Changes(last, known) if len(found) == last - cursor else Changes(last, None, known)


def sweep(db: sqlite3.Connection, touched: Iterable[int], now: float) -> int:
    """Note what was read lately and delete at most `CHUNK` expired entries. Returns how many."""
    db.executemany("UPDATE entries SET used = ? WHERE id = ?", [(now, row) for row in touched])
    return db.execute(
        "DELETE FROM entries WHERE id IN (SELECT id FROM entries WHERE stale_until <= ? LIMIT ?)",
        (now, CHUNK),
    ).rowcount


def _name(purge: Purge, seal: Seal) -> bytes:
    return seal.pseudonym(purge.tenant, purge.label or "")

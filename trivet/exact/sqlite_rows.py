"""What the SQLite store does inside a transaction: plain functions of a connection."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass

from trivet import sqlite_tables
from trivet.exact.entry import Entry
from trivet.exact.purges import FEED_KEPT, Changes, Purge, key_label, seal_purge, unseal_purge
from trivet.exact.seal import Seal
from trivet.exact.store import Bound
from trivet.messages import ExactKey
from trivet.sqlite_file import Schema
from trivet.sqlite_tables import ALL

CHUNK = 500
"""Rows that one transaction deletes at most, so that other writers get their turn."""
TOMBSTONES_KEPT = 16384
_COUNT_FROM = (
    "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) * 1000 + abs(random() % 1000)"
)
"""Where a feed's numbers begin: a time in microseconds, so that one file's are no other's."""
_LAST = """
SELECT max(coalesce((SELECT max(seq) FROM feed), 0),
    coalesce((SELECT CAST(seq AS INTEGER) FROM sqlite_sequence WHERE name = 'feed'), 0))"""
_MOST_SEQ = 1 << 62
SCHEMA = Schema(
    version=1,
    tables=frozenset({"entries", "labels", "tombstones", "feed", "totals"}),
    cache_kib=4096,
    script=f"""
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
INSERT INTO sqlite_sequence VALUES('feed', {_COUNT_FROM});
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
""",  # noqa: S608
)


@dataclass(frozen=True, slots=True)
class Row:
    """An entry, ready to be written."""

    tenant: bytes
    key: ExactKey
    labels: tuple[bytes, ...]
    name: bytes
    """What a purge of the key alone goes by."""
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
        name=seal.pseudonym(entry.tenant, key_label(entry.key)),
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


def put(db: sqlite3.Connection, row: Row, bound: Bound, most: Bound, now: float) -> tuple[str, int]:
    """Store a row within the tenant's and the store's bounds.

    Returns why it was not stored (see `ExactStore.put`), and how many were evicted.
    """
    if sqlite_tables.buried(db, (ALL, row.tenant, row.name, *row.labels), row.created):
        return "purged", 0
    delete(db, row.tenant, row.key)
    if row.stale_until <= now:
        return "expired", 0
    if not (_fits(row.size, bound) and _fits(row.size, most)):
        return "too-large", 0
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
    return "", evicted


def _fits(size: int, bound: Bound) -> bool:
    return (bound.bytes is None or size <= bound.bytes) and bound.entries != 0


def delete(db: sqlite3.Connection, tenant: bytes, key: ExactKey) -> None:
    """Forget one entry."""
    db.execute("DELETE FROM entries WHERE tenant = ? AND key = ?", (tenant, key))


def make_room(db: sqlite3.Connection, tenant: bytes, bound: Bound, size: int, entries: int) -> int:
    """Evict the least recently used until so much more fits. Returns how many went."""
    held, held_bytes = sqlite_tables.recounted(db, tenant, "entries")
    over = 0 if bound.entries is None else held + entries - bound.entries
    over_bytes = 0 if bound.bytes is None else held_bytes + size - bound.bytes
    if over <= 0 and over_bytes <= 0:
        return 0
    where, given = ("", ()) if tenant == ALL else (" WHERE tenant = ?", (tenant,))
    doomed: list[tuple[int]] = []
    rows = db.execute(
        f"SELECT id, CAST(size AS INTEGER) FROM entries{where} ORDER BY used",  # noqa: S608
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


def bury(db: sqlite3.Connection, purge: Purge, seal: Seal) -> None:
    """Remember a purge for entries that come later, and tell the other processes."""
    sqlite_tables.bury(db, _name(purge, seal), purge.at, TOMBSTONES_KEPT)
    announce(db, purge, seal)


def announce(db: sqlite3.Connection, purge: Purge, seal: Seal) -> None:
    """Add a purge to the feed."""
    # After the highest number there is no other: somebody may have put a row there.
    db.execute("DELETE FROM feed WHERE seq >= ?", (_MOST_SEQ,))
    begin = f"UPDATE sqlite_sequence SET seq = {_COUNT_FROM} WHERE name = 'feed' AND seq >= ?"  # noqa: S608
    db.execute(begin, (_MOST_SEQ,))
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


def changes(db: sqlite3.Connection, cursor: int | None, seal: Seal) -> tuple[Changes, int]:
    """See `SharedStore.changes`; and how many of its rows this secret did not write.

    Such a row may have been a purge: it is a gap. So is a cursor that is none of this file's.
    """
    last = db.execute(_LAST).fetchone()[0]
    if last == cursor:
        return Changes(last, ()), 0
    rows = db.execute(
        "SELECT CAST(purge AS BLOB) FROM feed WHERE seq > ? AND seq <= ?", (cursor or 0, last)
    )
    found = [unseal_purge(row[0], seal) for row in rows]
    known = tuple(purge for purge in found if purge is not None)
    bad = len(found) - len(known)
    complete = cursor is not None and len(found) == (last - cursor if found or cursor else 0)
    return (Changes(last, None, known) if bad or not complete else Changes(last, known)), bad


def sweep(db: sqlite3.Connection, touched: Iterable[int], now: float) -> int:
    """Note what was read lately and delete at most `CHUNK` expired entries. Returns how many."""
    db.executemany("UPDATE entries SET used = ? WHERE id = ?", [(now, row) for row in touched])
    return db.execute(
        "DELETE FROM entries WHERE id IN (SELECT id FROM entries WHERE stale_until <= ? LIMIT ?)",
        (now, CHUNK),
    ).rowcount


def _name(purge: Purge, seal: Seal) -> bytes:
    return seal.pseudonym(purge.tenant, purge.label or "")

"""What the SQLite record store does inside a transaction: plain functions of a connection."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from trivet import sqlite_tables
from trivet.semantic.records import RecordBound
from trivet.sqlite_file import Schema
from trivet.sqlite_tables import ALL

FEED_KEPT = 16384
"""Events that a feed remembers. A reader further behind is told to load a snapshot."""
TOMBSTONES_KEPT = 16384
CHUNK = 256
"""Rows that one call reads or deletes at most."""
_MOST_SEQ = 1 << 62
SCHEMA = Schema(
    version=1,
    tables=frozenset({"records", "labels", "tombstones", "gone", "feed", "totals", "file"}),
    script="""
CREATE TABLE records(
    seq INTEGER PRIMARY KEY AUTOINCREMENT, tenant BLOB NOT NULL, id TEXT NOT NULL,
    created REAL NOT NULL, expires REAL NOT NULL, size INTEGER NOT NULL, value BLOB NOT NULL);
CREATE UNIQUE INDEX records_id ON records(tenant, id);
CREATE INDEX records_created ON records(tenant, created);
CREATE INDEX records_expires ON records(expires);
CREATE TABLE labels(
    name BLOB NOT NULL, record INTEGER NOT NULL, PRIMARY KEY(name, record)) WITHOUT ROWID;
CREATE INDEX labels_record ON labels(record);
CREATE TABLE tombstones(name BLOB PRIMARY KEY, at REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE gone(
    seq INTEGER PRIMARY KEY AUTOINCREMENT, name BLOB NOT NULL UNIQUE);
CREATE TABLE feed(
    seq INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, tenant BLOB, id TEXT, value BLOB);
CREATE TABLE totals(
    tenant BLOB PRIMARY KEY, entries INTEGER NOT NULL, bytes INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE file(token TEXT NOT NULL);
INSERT INTO totals VALUES(x'', 0, 0);
CREATE TRIGGER count_in AFTER INSERT ON records BEGIN
    INSERT INTO totals VALUES(new.tenant, 1, new.size) ON CONFLICT(tenant)
        DO UPDATE SET entries = entries + 1, bytes = bytes + excluded.bytes;
    UPDATE totals SET entries = entries + 1, bytes = bytes + new.size WHERE tenant = x'';
END;
CREATE TRIGGER count_out AFTER DELETE ON records BEGIN
    UPDATE totals SET entries = entries - 1, bytes = bytes - old.size
        WHERE tenant IN (x'', old.tenant);
    DELETE FROM totals WHERE tenant = old.tenant AND entries = 0;
    DELETE FROM labels WHERE record = old.seq;
END;
INSERT INTO file VALUES(lower(hex(randomblob(8))));
""",
)


@dataclass(frozen=True, slots=True)
class Row:
    """A record, ready to be written."""

    tenant: bytes
    id: str
    labels: tuple[bytes, ...]
    created: float
    expires: float
    value: bytes


@dataclass(frozen=True, slots=True)
class Fed:
    """One event of the feed. `value` is a sealed record or event, None where the record is gone."""

    kind: bytes
    tenant: bytes | None
    id: bytes | None
    value: bytes | None


def token(db: sqlite3.Connection) -> str:
    """What tells this file from any other."""
    return str(db.execute("SELECT coalesce(max(hex(token)), '') FROM file").fetchone()[0])


def put(
    db: sqlite3.Connection, row: Row, kind: str, bound: tuple[int, RecordBound], now: float
) -> None:
    """Store a record within its tenant's bound and the store's, unless it was purged."""
    db.execute("DELETE FROM records WHERE tenant = ? AND id = ?", (row.tenant, row.id))
    size, (most, all_most) = len(row.value), bound
    if most < 1 or size > all_most.bytes or row.expires <= now:
        return
    if _gone(db, row):
        return
    _make_room(db, row, most, all_most)
    _rewind(db, "records")
    cursor = db.execute(
        "INSERT INTO records(tenant, id, created, expires, size, value) VALUES(?, ?, ?, ?, ?, ?)",
        (row.tenant, row.id, row.created, row.expires, size, row.value),
    )
    db.executemany(
        "INSERT OR IGNORE INTO labels VALUES(?, ?)",
        [(label, cursor.lastrowid) for label in row.labels],
    )
    feed(db, kind, row.tenant, row.id, None)


def _gone(db: sqlite3.Connection, row: Row) -> bool:
    if db.execute("SELECT 1 FROM gone WHERE name = ?", (row.tenant + row.id.encode(),)).fetchone():
        return True
    return sqlite_tables.buried(db, (ALL, row.tenant, *row.labels), row.created)


def _make_room(db: sqlite3.Connection, row: Row, most: int, all_most: RecordBound) -> None:
    """A tenant makes room out of its own; one that has nothing takes what expires next."""
    while True:
        own, _ = sqlite_tables.recounted(db, row.tenant, "records")
        entries, held = sqlite_tables.recounted(db, ALL, "records")
        full = entries + 1 > all_most.entries or held + len(row.value) > all_most.bytes
        if own + 1 <= most and not full:
            return
        oldest = "SELECT seq FROM records ORDER BY expires LIMIT 1"
        given: tuple[bytes, ...] = ()
        if own:
            oldest = "SELECT seq FROM records WHERE tenant = ? ORDER BY created LIMIT 1"
            given = (row.tenant,)
        gone = db.execute(f"DELETE FROM records WHERE seq = ({oldest})", given)  # noqa: S608
        if not gone.rowcount:
            return


def remove(db: sqlite3.Connection, tenant: bytes, record_id: str, value: bytes) -> None:
    """Delete a record for good, and say so."""
    db.execute("DELETE FROM records WHERE tenant = ? AND id = ?", (tenant, record_id))
    name = tenant + record_id.encode()
    _rewind(db, "gone")
    cursor = db.execute("INSERT OR IGNORE INTO gone(name) VALUES(?)", (name,))
    db.execute("DELETE FROM gone WHERE seq <= ?", ((cursor.lastrowid or 0) - TOMBSTONES_KEPT,))
    feed(db, "event", None, None, value)


def purge(
    db: sqlite3.Connection, tenant: bytes, label: bytes | None, at: float, value: bytes
) -> None:
    """Remember a purge for records that come later, delete what is there, and say so."""
    name = tenant if label is None else label
    sqlite_tables.bury(db, name, at, TOMBSTONES_KEPT)
    wanted = "SELECT seq FROM records WHERE tenant = ? AND created <= ?"
    if label is not None:
        wanted = (
            "SELECT seq FROM labels JOIN records ON seq = record WHERE name = ? AND created <= ?"
        )
    db.execute(f"DELETE FROM records WHERE seq IN ({wanted})", (name, at))  # noqa: S608
    feed(db, "event", None, None, value)


def feed(
    db: sqlite3.Connection,
    kind: str,
    tenant: bytes | None,
    record_id: str | None,
    value: bytes | None,
) -> None:
    """Add an event; a record's value is read from its row."""
    _rewind(db, "feed")
    cursor = db.execute(
        "INSERT INTO feed(kind, tenant, id, value) VALUES(?, ?, ?, ?)",
        (kind, tenant, record_id, value),
    )
    db.execute("DELETE FROM feed WHERE seq <= ?", ((cursor.lastrowid or 0) - FEED_KEPT,))


def _rewind(db: sqlite3.Connection, table: str) -> None:
    """After the highest number there is no other: somebody may have put a row there."""
    db.execute(f"DELETE FROM {table} WHERE seq >= ?", (_MOST_SEQ,))  # noqa: S608
    highest = f"SELECT coalesce(max(seq), 0) FROM {table}"  # noqa: S608
    db.execute(
        f"UPDATE sqlite_sequence SET seq = ({highest}) WHERE name = ? AND seq >= ?",  # noqa: S608
        (table, _MOST_SEQ),
    )


def last(db: sqlite3.Connection) -> int:
    """The number of the feed's last event."""
    found = db.execute(
        "SELECT CAST(seq AS INTEGER) FROM sqlite_sequence WHERE name = 'feed'"
    ).fetchone()
    return 0 if found is None else int(found[0])


def changes(db: sqlite3.Connection, after: int) -> tuple[list[Fed], int] | None:
    """Events after a number, and the number of the last one; None if the feed begins later."""
    end = last(db)
    if after == end:
        return [], after
    rows = db.execute(
        "SELECT f.seq, CAST(f.kind AS BLOB), CAST(f.tenant AS BLOB), CAST(f.id AS BLOB),"
        " CAST(coalesce(f.value, r.value) AS BLOB)"
        " FROM feed f LEFT JOIN records r ON r.tenant = f.tenant AND r.id = f.id"
        " WHERE f.seq > ? ORDER BY f.seq LIMIT ?",
        (after, CHUNK),
    ).fetchall()
    if not rows or rows[-1][0] != after + len(rows):
        return None
    return [Fed(*row[1:]) for row in rows], rows[-1][0]


def newest(db: sqlite3.Connection) -> int:
    """The highest row number."""
    return int(db.execute("SELECT coalesce(max(seq), 0) FROM records").fetchone()[0])


def batch(
    db: sqlite3.Connection, after: int, until: int, now: float
) -> Sequence[tuple[int, bytes, bytes, bytes]]:
    """Live records by row number, from `after` on and up to `until`."""
    return db.execute(
        "SELECT seq, CAST(tenant AS BLOB), CAST(id AS BLOB), CAST(value AS BLOB)"
        " FROM records WHERE seq > ? AND seq <= ? AND expires > ?"
        " ORDER BY seq LIMIT ?",
        (after, until, now, CHUNK),
    ).fetchall()


def sweep(db: sqlite3.Connection, now: float) -> None:
    """Delete some of what expired."""
    db.execute(
        "DELETE FROM records WHERE seq IN (SELECT seq FROM records WHERE expires <= ? LIMIT ?)",
        (now, CHUNK),
    )

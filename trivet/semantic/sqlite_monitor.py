"""Running counts in a small SQLite file of their own, shared by a machine's processes.

A connection lives for one call: a file that was replaced or deleted meanwhile is simply another
one, which its token tells.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import NamedTuple, TypeVar

from trivet.errors import StoreError
from trivet.semantic.monitor_codec import RowCodec
from trivet.semantic.monitor_store import MOST, REMEMBERED_S, Changed, Update
from trivet.semantic.records import Sealer
from trivet.semantic.tally import Cell
from trivet.sqlite_file import translate
from trivet.telemetry import EntryRejected, Observer, ignore

_T = TypeVar("_T")
_BUSY_S = 2.0
_DONE = 1000
"""Batches that are remembered: more than a machine's processes can have on their way."""
_FORMAT = 2
_SCHEMA = f"""
CREATE TABLE monitor(
    name TEXT PRIMARY KEY, seq INTEGER NOT NULL, row BLOB NOT NULL) WITHOUT ROWID;
CREATE INDEX monitor_seq ON monitor(seq);
CREATE TABLE done(id INTEGER PRIMARY KEY AUTOINCREMENT, batch TEXT NOT NULL UNIQUE);
CREATE TABLE file(token TEXT NOT NULL);
INSERT INTO file VALUES(lower(hex(randomblob(8))));
PRAGMA user_version = {_FORMAT};
"""
# Not in the schema: a file of this format may have been made without it.
_ONCE = (
    "CREATE TABLE IF NOT EXISTS once(name TEXT PRIMARY KEY, at INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE INDEX IF NOT EXISTS once_at ON once(at)",
)
_FIND = "SELECT CAST(row AS BLOB) FROM monitor WHERE name = ?"
# Whatever somebody wrote into a cell, it is read: bytes that are no UTF-8 make no text.
_NUMBERED = f"typeof(seq) = 'integer' AND seq < {1 << 62}"
_CHANGED = f"""
SELECT CAST(name AS BLOB), seq, CAST(row AS BLOB) FROM monitor
    WHERE seq > ? AND {_NUMBERED} AND typeof(name) = 'text' ORDER BY seq LIMIT ?"""  # noqa: S608
_NEXT = f"SELECT coalesce(max(seq), 0) + 1 FROM monitor WHERE {_NUMBERED}"  # noqa: S608


class SqliteMonitorStore:
    """A `MonitorStore` in the file at `path`, made with mode 0600 when it is first used."""

    name = "sqlite"

    def __init__(
        self, path: Path, sealer: Sealer, observer: Observer = ignore, busy_s: float = _BUSY_S
    ) -> None:
        """`busy_s` is how long a call waits for another process's write."""
        self._path = path
        self._codec = RowCodec(sealer)
        self._observe = observer
        self._busy_s = busy_s

    def name_of(self, cell: Cell) -> str:
        """See `MonitorStore.name_of`."""
        return self._codec.name(cell)

    async def add(self, batch: str, updates: Mapping[Cell, Update]) -> None:
        """See `MonitorStore.add`."""
        await self._run(lambda db: _add(db, self._codec, batch, updates))

    async def add_once(self, name: str, cell: Cell, update: Update) -> bool:
        """See `MonitorStore.add_once`."""
        return await self._run(lambda db: _add_once(db, self._codec, name, cell, update))

    async def changes(self, cursor: int) -> Changed:
        """See `MonitorStore.changes`."""
        found = await self._run(lambda db: _changes(db, self._codec, cursor))
        for reason in found.rejected:
            self._observe(EntryRejected("semantic-monitor", reason))
        return found.changed

    async def close(self) -> None:
        """See `MonitorStore.close`."""

    async def _run(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        return await asyncio.to_thread(self._do, work)

    def _do(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        try:
            with closing(self._open()) as db:
                db.execute("BEGIN IMMEDIATE")
                result = work(db)
                db.execute("COMMIT")
                return result
        except (sqlite3.Error, OSError) as error:
            raise translate(error, self._path) from error

    def _open(self) -> sqlite3.Connection:
        path = os.path.realpath(self._path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        # Only a file that is new: closing a descriptor of an open database would drop the locks of
        # this process's other connections (https://sqlite.org/howtocorrupt.html).
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        db = sqlite3.connect(path, timeout=self._busy_s, isolation_level=None)
        try:
            self._prepare(db)
        except BaseException:
            db.close()
            raise
        return db

    def _prepare(self, db: sqlite3.Connection) -> None:
        if _version(db) == 0:
            db.execute("BEGIN IMMEDIATE")
            # Another process may have done it while this one waited for the lock.
            if _version(db) == 0 and not db.execute("SELECT 1 FROM sqlite_schema").fetchone():
                for statement in _SCHEMA.split(";\n"):
                    db.execute(statement)
            db.execute("COMMIT")
        if (
            _version(db) != _FORMAT
            or not db.execute("SELECT 1 FROM sqlite_schema WHERE name = 'monitor_seq'").fetchone()
        ):
            raise StoreError("format", f"format: {self._path} is another program's file.")


def _version(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def _add(
    db: sqlite3.Connection, codec: RowCodec, batch: str, updates: Mapping[Cell, Update]
) -> None:
    if not db.execute("INSERT OR IGNORE INTO done(batch) VALUES(?)", (batch,)).rowcount:
        return
    db.execute("DELETE FROM done WHERE id <= (SELECT max(id) FROM done) - ?", (_DONE,))
    for cell, update in updates.items():
        _put(db, codec, cell, update)


def _add_once(
    db: sqlite3.Connection, codec: RowCodec, name: str, cell: Cell, update: Update
) -> bool:
    for statement in _ONCE:
        db.execute(statement)
    now = int(time.time())
    db.execute("DELETE FROM once WHERE at < ?", (now - REMEMBERED_S,))
    if not db.execute("INSERT OR IGNORE INTO once VALUES(?, ?)", (name, now)).rowcount:
        return False
    _put(db, codec, cell, update)
    return True


def _put(db: sqlite3.Connection, codec: RowCodec, cell: Cell, update: Update) -> None:
    name = codec.name(cell)
    found = db.execute(_FIND, (name,)).fetchone()
    db.execute(
        f"INSERT OR REPLACE INTO monitor VALUES(?, ({_NEXT}), ?)",
        (name, codec.sealed_after(cell, found and found[0], update)),
    )


class _Found(NamedTuple):
    changed: Changed
    rejected: tuple[str, ...]


def _changes(db: sqlite3.Connection, codec: RowCodec, cursor: int) -> _Found:
    token = str(db.execute("SELECT coalesce(max(hex(token)), '') FROM file").fetchone()[0])
    found = db.execute(_CHANGED, (cursor, MOST)).fetchall()
    rows, bad = codec.unseal_all(
        (name.decode("utf-8", "surrogateescape"), sealed) for name, _, sealed in found
    )
    last = found[-1][1] if found else cursor
    changed = Changed(token, last, rows, len(found) == MOST, frozenset(bad))
    return _Found(changed, tuple(bad.values()))

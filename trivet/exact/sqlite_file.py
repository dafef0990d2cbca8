"""The SQLite file: its schema, how it is opened, and what is done when it is broken.

Foreign errors end here: every `sqlite3.Error` becomes a `StoreError` with a short reason.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from trivet.errors import StoreError

_VERSION = 1
_CACHE_KIB = 4096
_SCHEMA = """
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
"""
_REASONS = {
    sqlite3.SQLITE_BUSY: "locked",
    sqlite3.SQLITE_LOCKED: "locked",
    sqlite3.SQLITE_FULL: "full",
    sqlite3.SQLITE_READONLY: "readonly",
    sqlite3.SQLITE_CANTOPEN: "cannot-open",
    sqlite3.SQLITE_IOERR: "io",
    sqlite3.SQLITE_CORRUPT: "corrupt",
    sqlite3.SQLITE_NOTADB: "corrupt",
    sqlite3.SQLITE_PERM: "denied",
    sqlite3.SQLITE_AUTH: "denied",
}


def translate(error: sqlite3.Error) -> StoreError:
    """The same trouble as a `StoreError`."""
    # The low byte is the primary code (https://www.sqlite.org/rescode.html).
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    reason = _REASONS.get(code, "sqlite")
    return StoreError(reason, f"{reason}: {error}")


class SqliteFile:
    """One path, and the rules by which several processes open, replace and reopen it."""

    def __init__(self, path: Path, busy_s: float) -> None:
        self.path = path
        self._busy_s = busy_s

    def open(self) -> tuple[sqlite3.Connection, int]:
        """A connection and the file's inode. Makes the file with mode 0600 if there is none.

        Raises `StoreError`; a file that is not a database is moved aside first.
        """
        connection: sqlite3.Connection | None = None
        try:
            with self._alone():
                # Only a file that is new: closing a descriptor of an open database would drop the
                # locks of this process's other connections (https://sqlite.org/howtocorrupt.html).
                with suppress(FileExistsError):
                    os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
                connection = sqlite3.connect(
                    self.path, timeout=self._busy_s, isolation_level=None, check_same_thread=False
                )
                inode = self.path.stat().st_ino
                self._prepare(connection)
        except sqlite3.Error as error:
            if connection is not None:
                connection.close()
            trouble = translate(error)
            if trouble.reason == "corrupt":
                raise self.move_aside(inode) from error
            raise trouble from error
        except OSError as error:
            raise StoreError("cannot-open", f"cannot-open: {error}") from error
        return connection, inode

    def replaced(self, inode: int) -> bool:
        """Whether another file lies at the path than the one with this inode."""
        try:
            return self.path.stat().st_ino != inode
        except OSError:
            return True

    def move_aside(self, inode: int) -> StoreError:
        """Move a broken file to `PATH.corrupt`; returns the error to raise.

        Where another process has replaced it already, nothing is moved. Only the latest broken
        file is kept, so that trouble that comes back cannot fill the disk.
        """
        aside = Path(f"{self.path}.corrupt")
        try:
            with self._alone():
                if not self.replaced(inode):
                    # The log goes first: a new database must never meet an old one's log.
                    with suppress(FileNotFoundError):
                        os.replace(f"{self.path}-wal", f"{aside}-wal")
                    with suppress(FileNotFoundError):
                        os.unlink(f"{self.path}-shm")
                    os.replace(self.path, aside)
        except OSError as error:
            return StoreError("corrupt", f"corrupt: {self.path} cannot be moved aside: {error}")
        return StoreError("corrupt", f"corrupt: {self.path} was moved to {aside}, starting anew")

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Opening and replacing happen one at a time, over all processes."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(f"{self.path}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def _prepare(self, connection: sqlite3.Connection) -> None:
        # NORMAL does not sync at every commit: a power cut may lose the last entries, a killed
        # process loses none (https://www.sqlite.org/wal.html).
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        connection.execute("PRAGMA journal_size_limit = 16777216")
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version == 0:
            connection.executescript(
                f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA user_version = {_VERSION}; COMMIT;"
            )
        elif version != _VERSION:
            connection.close()
            raise StoreError("format", f"format: {self.path} is of another Trivet: name another")

"""The SQLite file: its schema, how it is opened, and what is done when it is broken.

Foreign errors end here: every `sqlite3.Error` becomes a `StoreError` with a short reason.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

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
_TABLES = {"entries", "labels", "tombstones", "feed", "totals"}
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


class Inodes(NamedTuple):
    """Which files lie at a path: the database and its log, 0 for none."""

    file: int
    log: int


class SqliteFile:
    """One path, and the rules by which several processes open, replace and reopen it."""

    def __init__(self, path: Path, busy_s: float) -> None:
        self.path = path
        self._busy_s = busy_s

    def open(self) -> tuple[sqlite3.Connection, Inodes]:
        """A connection and what it is open on. Makes the file with mode 0600 if there is none.

        Raises `StoreError`; a file that is not a database is moved aside first.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self._alone():
                # Only a file that is new: closing a descriptor of an open database would drop the
                # locks of this process's other connections (https://sqlite.org/howtocorrupt.html).
                with suppress(FileExistsError):
                    os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
                found = self._inodes()
                connection = self._connect()
                return connection, self._inodes()
        except sqlite3.Error as error:
            trouble = translate(error)
            if trouble.reason == "corrupt":
                raise self.move_aside(found) from error
            raise trouble from error
        except OSError as error:
            raise StoreError("cannot-open", f"cannot-open: {error}") from error

    def replaced(self, seen: Inodes) -> bool:
        """Whether the database or its log is another than a connection is open on.

        Connections with different logs do not see each other's writes. No process of ours removes
        a log that another one has open; somebody else may.
        """
        return self._inodes() != seen

    def move_aside(self, seen: Inodes) -> StoreError:
        """Move a broken file to `PATH.corrupt`; returns the error to raise.

        Where another process has replaced it already, nothing is moved. Only the latest broken
        file is kept, so that trouble that comes back cannot fill the disk.
        """
        aside = Path(f"{self.path}.corrupt")
        try:
            with self._alone():
                if self._inodes().file == seen.file:
                    # The log goes first: a new database must never meet an old one's log.
                    with suppress(FileNotFoundError):
                        os.replace(self._log, f"{aside}-wal")
                    with suppress(FileNotFoundError):
                        os.unlink(self._index)
                    os.replace(self.path, aside)
        except OSError as error:
            return StoreError("corrupt", f"corrupt: {self.path} cannot be moved aside: {error}")
        return StoreError("corrupt", f"corrupt: {self.path} was moved to {aside}, starting anew")

    def close(self, connection: sqlite3.Connection, seen: Inodes) -> None:
        """Close a connection; what belongs to a file that took the place of its own stays.

        SQLite removes the log by its name when a database's last connection closes. It looks
        whether the database lies there still, but not when that is empty (`databaseIsUnmoved` in
        https://sqlite.org/src/file/src/pager.c).
        """
        with suppress(sqlite3.Error), ExitStack() as stack:  # It is given up anyway.
            with suppress(OSError):  # The directory is gone: there is no other file in it.
                stack.enter_context(self._alone())
                if self._inodes().file != seen.file:
                    stack.enter_context(_kept(self._log))
                    stack.enter_context(_kept(self._index))
            connection.close()

    @property
    def _log(self) -> Path:
        return Path(f"{self.path}-wal")

    @property
    def _index(self) -> Path:
        return Path(f"{self.path}-shm")

    def _inodes(self) -> Inodes:
        return Inodes(_inode(self.path), _inode(self._log))

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Opening, closing and replacing happen one at a time, over all processes."""
        handle = os.open(f"{self.path}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path, timeout=self._busy_s, isolation_level=None, check_same_thread=False
        )
        try:
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema")}
        new = version == 0 and not tables
        if not new and not (version == _VERSION and tables >= _TABLES):
            raise StoreError(
                "format",
                f"format: {self.path} is another program's or another Trivet's: name another file",
            )
        # NORMAL does not sync at every commit: a power cut may lose the last entries, a killed
        # process loses none (https://www.sqlite.org/wal.html).
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        connection.execute("PRAGMA journal_size_limit = 16777216")
        if new:
            connection.executescript(
                f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA user_version = {_VERSION}; COMMIT;"
            )


def _inode(path: Path) -> int:
    try:
        return path.stat().st_ino
    except OSError:
        return 0


@contextmanager
def _kept(path: Path) -> Iterator[None]:
    """Whoever removes this file meanwhile, it lies there again afterwards."""
    spare = Path(f"{path}.kept")
    try:
        spare.unlink(missing_ok=True)
        os.link(path, spare)
    except OSError:  # No such file, or a file system without links.
        yield
        return
    try:
        yield
    finally:
        with suppress(FileExistsError):
            os.link(spare, path)
        spare.unlink()

"""A SQLite file that several processes share: how it is opened, and what is done when it breaks.

Foreign errors end here: every `sqlite3.Error` becomes a `StoreError` with a short reason.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

from trivet.errors import StoreError

_T = TypeVar("_T")
_PASSING = frozenset({"locked", "full"})
"""Reasons that say nothing against a connection; after all others it is not used again."""
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


def translate(error: sqlite3.Error | OSError, path: Path) -> StoreError:
    """The same trouble as a `StoreError` that names the file at `path`."""
    # The low byte is the primary code (https://www.sqlite.org/rescode.html).
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    reason = _REASONS.get(code, "cannot-open" if isinstance(error, OSError) else "sqlite")
    return StoreError(reason, f"{reason}: {path}: {error}")


@dataclass(frozen=True, slots=True)
class Schema:
    """What a file holds; one with other tables or another version is refused, not touched."""

    version: int
    """Its `user_version`."""
    tables: frozenset[str]
    script: str
    """Makes the tables in a new file."""
    cache_kib: int = 2048
    """Pages that a connection keeps in memory."""


class Inodes(NamedTuple):
    """Which files lie at a path: the database and its log, 0 for none."""

    file: int
    log: int


class SqliteFile:
    """One path, and the rules by which several processes open, replace and reopen it."""

    def __init__(self, path: Path, schema: Schema, busy_s: float) -> None:
        """`busy_s` is how long a call waits for another process's write."""
        self.path = path
        self._schema = schema
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
        except (sqlite3.Error, OSError) as error:
            trouble = translate(error, self.path)
            if trouble.reason == "corrupt":
                raise self.move_aside(found) from error
            raise trouble from error

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
        if not new and not (version == self._schema.version and tables >= self._schema.tables):
            raise StoreError(
                "format",
                f"format: {self.path} is another program's or another Trivet's: name another file",
            )
        # NORMAL does not sync at every commit: a power cut may lose the last entries, a killed
        # process loses none (https://www.sqlite.org/wal.html).
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"PRAGMA cache_size = -{self._schema.cache_kib}")
        connection.execute("PRAGMA journal_size_limit = 16777216")
        if new:
            connection.executescript(
                f"BEGIN IMMEDIATE; {self._schema.script}"
                f" PRAGMA user_version = {self._schema.version}; COMMIT;"
            )


class SqliteHandle:
    """One thread's connection, reopened when the file is another, and after trouble.

    A file that was replaced is noticed `check_s` seconds later at most.
    """

    def __init__(self, file: SqliteFile, check_s: float) -> None:
        self._file = file
        self._check_s = check_s
        self._open: tuple[sqlite3.Connection, Inodes] | None = None
        self._checked = 0.0

    def run(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        """`work` on an open connection. Raises `StoreError` and nothing else of SQLite's."""
        now = time.monotonic()
        if self._open is not None and now - self._checked >= self._check_s:
            self._checked = now
            if self._file.replaced(self._open[1]):
                self.close()
        if self._open is None:
            self._open = self._file.open()
            self._checked = now
        db, seen = self._open
        try:
            return work(db)
        except sqlite3.Error as error:
            trouble = translate(error, self._file.path)
            if trouble.reason not in _PASSING:
                self.close()
            if trouble.reason == "corrupt":
                trouble = self._file.move_aside(seen)
            raise trouble from error

    def close(self) -> None:
        """Give the connection up; the next call opens another."""
        opened, self._open = self._open, None
        if opened is not None:
            self._file.close(*opened)


@contextmanager
def transaction(db: sqlite3.Connection, kind: str = "IMMEDIATE") -> Iterator[None]:
    """Committed at the end, or rolled back where anything is raised."""
    db.execute(f"BEGIN {kind}")
    try:
        yield
        db.execute("COMMIT")
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")


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

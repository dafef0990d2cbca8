"""A SQLite file that several processes share: how it is opened, and what is done when it breaks.

Foreign errors end here: every `sqlite3.Error` becomes a `StoreError` with a short reason.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from trivet.database_files import Lock, Seen, inode, kept, make, move_aside, part, settle
from trivet.errors import StoreError

_T = TypeVar("_T")
_OPEN_S = 0.8
"""How long an opening waits for others that open, close or replace the same file: less than a
store's probe, which would say that it timed out and not why."""
_CLOSE_S = 1.0
_TRIES = 5
_LOST = -1
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


class SqliteFile:
    """One path, and the rules by which several processes open, replace and reopen it."""

    def __init__(
        self,
        path: Path,
        schema: Schema,
        busy_s: float,
        succeed: Callable[[sqlite3.Connection], None] = lambda db: None,
    ) -> None:
        """`busy_s` is how long a call waits for another process's write.

        `succeed` prepares, in a transaction, a file that took the place of one that this process
        had open: what was purged there is not known here.
        """
        self.path = path
        self._named = os.fspath(path)
        self._schema = schema
        self._busy_s = busy_s
        self._succeed = succeed
        self._lock = Lock()
        self._open: list[Seen] = []
        """What the connections are on that were not closed."""
        self._last = 0
        """The file that was opened last; `_LOST` once it was broken, or another one was made."""

    def open(self) -> tuple[sqlite3.Connection, Seen]:
        """A connection and what it is open on. Makes the file with mode 0600 if there is none.

        Raises `StoreError`; a file that is not a database is moved aside first.
        """
        # Two names of one file have one lock, and a link may come to lead elsewhere.
        path = os.path.realpath(self._named)
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with self._lock.held(_lock(path), _OPEN_S):
                settle(path)
                for seen in tuple(self._open):
                    part(seen)
                if make(path) and self._last:
                    self._last = _LOST
                made = self._connect(path)
                self._open.append(made[1])
                return made
        except (sqlite3.Error, OSError) as error:
            raise translate(error, self.path) from error

    def replaced(self, seen: Seen) -> bool:
        """Whether the database or its log is another than a connection is open on.

        Connections with different logs do not see each other's writes. No process of ours removes
        the log of a database that lies there still; somebody else may.
        """
        return inode(self._named) != seen.file or inode(seen.log_path) != seen.log

    def move_aside(self, seen: Seen) -> StoreError:
        """Move a broken file to `PATH.corrupt`; returns the error to raise.

        Where another process has replaced it already, nothing is moved.
        """
        try:
            with self._lock.held(_lock(seen.path), _OPEN_S):
                return self._moved(seen)
        except (OSError, StoreError) as error:
            return StoreError("corrupt", f"corrupt: {self.path} cannot be moved aside: {error}")

    def close(self, connection: sqlite3.Connection, seen: Seen) -> None:
        """Close a connection; what belongs to a file that took the place of its own stays.

        SQLite removes the log by its name when a database's last connection closes. It looks
        whether the database lies there still, but not when that is empty (`databaseIsUnmoved` in
        https://sqlite.org/src/file/src/pager.c).
        """
        try:
            with self._lock.held(_lock(seen.path), _CLOSE_S), _apart(connection, seen):
                self._open.remove(seen)
                _close(connection)
        except (FileNotFoundError, NotADirectoryError):
            self._open.remove(seen)
            _close(connection)  # The directory is gone: there is no other file in it.
        except (OSError, StoreError):
            _leave_open(connection)

    def _connect(self, path: str) -> tuple[sqlite3.Connection, Seen]:
        connection = sqlite3.connect(
            path, timeout=self._busy_s, isolation_level=None, check_same_thread=False
        )
        seen = Seen(path, inode(path), 0)
        with ExitStack() as stack:
            stack.callback(connection.close)
            try:
                self._prepare(connection)
                if self._last not in (0, seen.file):
                    with transaction(connection):
                        self._succeed(connection)
            except sqlite3.Error as error:
                trouble = translate(error, self.path)
                if trouble.reason == "corrupt":
                    trouble = self._moved(seen)
                raise trouble from error
            self._last = seen.file
            stack.pop_all()
        return connection, seen._replace(log=inode(seen.log_path))

    def _moved(self, seen: Seen) -> StoreError:
        self._last = _LOST
        aside = move_aside(seen)
        return StoreError("corrupt", f"corrupt: {self.path} was moved to {aside}, starting anew")

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
    """One thread's connection, reopened when the file is another, and after trouble."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file
        self._open: tuple[sqlite3.Connection, Seen] | None = None
        self.opened = 0
        """How often it was opened: what is known of a file may not hold for the next one."""

    def run(self, work: Callable[[sqlite3.Connection], _T], *, look: bool = True) -> _T:
        """`work` on an open connection, of the file that lies there if `look`.

        Raises `StoreError` and nothing else of SQLite's.
        """
        if look and self._open is not None and self._file.replaced(self._open[1]):
            self.close()
        if self._open is None:
            self._open = self._file.open()
            self.opened += 1
        db, seen = self._open
        try:
            return work(db)
        except sqlite3.Error as error:
            trouble = translate(error, self._file.path)
            if trouble.reason == "corrupt":
                # Before it is closed: another file may get its number then.
                trouble = self._file.move_aside(seen)
            if trouble.reason not in _PASSING:
                self.close()
            raise trouble from error

    def write(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        """`work` in a transaction, done again where the file was replaced before its end.

        Raises `StoreError`.
        """

        def atomically(db: sqlite3.Connection) -> _T:
            with transaction(db):
                return work(db)

        for _ in range(_TRIES):
            result = self.run(atomically)
            if self._open is not None and not self._file.replaced(self._open[1]):
                return result
        raise StoreError("replaced", f"replaced: {self._file.path} is another file each time")

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


def _lock(path: str) -> str:
    return f"{path}.lock"


@contextmanager
def _apart(connection: sqlite3.Connection, seen: Seen) -> Iterator[None]:
    """A connection that is closed meanwhile takes nothing from another file at its path.

    Its own database gets what is in its log, wherever it was moved to.
    """
    with ExitStack() as stack:
        if inode(seen.path) != seen.file:
            with suppress(sqlite3.Error):
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            if not part(seen):
                stack.enter_context(kept(seen.log_path))
                stack.enter_context(kept(seen.index_path))
        yield


def _close(connection: sqlite3.Connection) -> None:
    with suppress(sqlite3.Error):  # It is given up anyway.
        connection.close()


def _leave_open(connection: sqlite3.Connection) -> None:
    """Keep a connection until the process ends: SQLite is safe where it ends without closing."""
    import ctypes

    # Whatever Python code refers to is closed when the interpreter ends.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))

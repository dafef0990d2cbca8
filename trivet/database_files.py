"""The files of a SQLite database: how they are told apart, locked, made, moved and kept.

All but `Lock` and `inode` are for who holds the database's lock.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from trivet.errors import StoreError

_TRY_S = 0.01
_BESIDE = ("-journal", "-wal", "-shm")


class Seen(NamedTuple):
    """What a connection is open on. While it is open, no other file gets these numbers."""

    path: str
    """The database's, without links."""
    file: int
    log: int

    @property
    def log_path(self) -> str:
        """Where the log lies."""
        return f"{self.path}-wal"

    @property
    def index_path(self) -> str:
        """Where the log's index lies."""
        return f"{self.path}-shm"


def inode(path: str) -> int:
    """Which file lies at `path`, 0 for none."""
    try:
        found = os.stat(path)
    except OSError:
        return 0
    return found.st_dev << 64 | found.st_ino


class Lock:
    """A lock file, over all processes. For one database, whoever opens it in this process."""

    def __init__(self) -> None:
        self._in_vain = False

    @contextmanager
    def held(self, path: str, wait_s: float) -> Iterator[None]:
        """Raises `StoreError` where somebody else holds it for `wait_s`, and `OSError`.

        After a wait in vain nobody waits again until it was free: callers stand in a row.
        """
        deadline = time.monotonic() + (0.0 if self._in_vain else wait_s)
        while (handle := _taken(path)) is None:
            if time.monotonic() >= deadline:
                self._in_vain = True
                raise StoreError("locked", f"locked: another process holds {path}")
            time.sleep(_TRY_S)
        self._in_vain = False
        try:
            yield
        finally:
            os.close(handle)


def _taken(path: str) -> int | None:
    handle, sound = os.open(path, os.O_RDWR | os.O_CREAT, 0o600), False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # One that was removed meanwhile keeps nobody out.
        sound = os.path.samestat(os.fstat(handle), os.stat(path))
    except (BlockingIOError, FileNotFoundError):
        pass
    finally:
        if not sound:
            os.close(handle)
    return handle if sound else None


def make(path: str) -> bool:
    """Make an empty file with mode 0600. False where there is one already.

    A new database must meet neither the log of one that was removed nor its index, which
    processes that have the removed one open go on to use.
    """
    if os.path.lexists(path):
        return False
    for ending in _BESIDE:
        remove(f"{path}{ending}")
    # Only a file that is new: closing a descriptor of an open database would drop the locks of
    # this process's other connections (https://sqlite.org/howtocorrupt.html).
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        return True
    return False


def remove(path: str) -> None:
    """Remove a file if there is one."""
    with suppress(FileNotFoundError):
        os.unlink(path)


def move_aside(seen: Seen) -> str:
    """Move a broken database to `PATH.corrupt`, if it lies there still. Returns that path.

    Only the latest one is kept, so that trouble that comes back cannot fill the disk.
    """
    aside = f"{seen.path}.corrupt"
    if inode(seen.path) == seen.file:
        remove(f"{aside}-wal")
        # The log goes first: a new database must never meet it.
        with suppress(FileNotFoundError):
            os.replace(seen.log_path, f"{aside}-wal")
        remove(seen.index_path)
        os.replace(seen.path, aside)
    return aside


def part(seen: Seen) -> bool:
    """Remove a connection's log where another database took the place of its own.

    That one must not meet it. Returns whether the log was its own: whose it is, nothing but an
    open connection can tell.
    """
    own = seen.log != 0 and inode(seen.log_path) == seen.log
    if own and os.path.isfile(seen.path) and inode(seen.path) != seen.file:
        remove(seen.log_path)
        remove(seen.index_path)
    return own


@contextmanager
def kept(path: str) -> Iterator[None]:
    """Whoever removes this file meanwhile, it lies there again afterwards.

    Raises `OSError` where it cannot be kept: some file systems have no links.
    """
    spare = _spare(path)
    remove(spare)
    try:
        os.link(path, spare)
    except FileNotFoundError:
        yield
        return
    try:
        yield
    finally:
        _put_back(path)


def settle(path: str) -> None:
    """End what a kill within `kept` left unfinished.

    A log that is put back lost nothing meanwhile: it is the same file, not a copy.
    """
    for ending in _BESIDE:
        _put_back(f"{path}{ending}")


def _put_back(path: str) -> None:
    spare = _spare(path)
    with suppress(OSError):  # The next opening tries again.
        with suppress(FileExistsError):
            os.link(spare, path)
        os.unlink(spare)


def _spare(path: str) -> str:
    return f"{path}.kept"

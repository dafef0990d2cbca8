"""A file that several processes append whole lines to, rotated by size."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from trivet.errors import StoreError

_MODE = 0o600
_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
_TRIES = 8


@dataclass(frozen=True, slots=True)
class Rotation:
    """The file is set aside (`NAME.1`, ...) once it has `bytes`; `files` are kept in all."""

    bytes: int = 64 << 20
    files: int = 8


DEFAULT = Rotation()


class TrafficFile:
    """Appends under a lock on the file itself, which ends with the process that holds it.

    For one thread. Every file is 0600, and a folder made for it 0700.
    """

    def __init__(self, path: Path, rotation: Rotation) -> None:
        self._path = path
        self._rotation = rotation
        self._fd = -1

    def append(self, lines: bytes) -> None:
        """Append whole lines: all of them, or none. Raises `StoreError`."""
        try:
            self._lock()
            try:
                self._write(lines)
            finally:
                fcntl.flock(self._fd, fcntl.LOCK_UN)
        except OSError as error:
            self.close()
            raise StoreError("io", f"{self._path}: {error.strerror}") from error

    def close(self) -> None:
        """Let go of the file; the next `append` opens it again."""
        if self._fd >= 0:
            with suppress(OSError):
                os.close(self._fd)
            self._fd = -1

    def _lock(self) -> None:
        """Lock the file that has the name now: another process may have set ours aside."""
        for _ in range(_TRIES):
            if self._fd < 0:
                self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                self._fd = os.open(self._path, _FLAGS, _MODE)
                os.fchmod(self._fd, _MODE)
            fcntl.flock(self._fd, fcntl.LOCK_EX)
            if self._is_current():
                return
            self.close()
        raise OSError(0, "is replaced again and again")

    def _is_current(self) -> bool:
        try:
            named = os.stat(self._path, follow_symlinks=False)
        except FileNotFoundError:
            return False
        own = os.fstat(self._fd)
        return (own.st_dev, own.st_ino) == (named.st_dev, named.st_ino)

    def _write(self, lines: bytes) -> None:
        before = os.fstat(self._fd).st_size
        written = 0
        try:
            while written < len(lines):
                written += os.write(self._fd, lines[written:])
        except OSError:
            if written:
                # A full disk must not leave half a line for the next one to run into.
                os.ftruncate(self._fd, before)
            raise
        if before + written >= self._rotation.bytes:
            self._rotate()

    def _rotate(self) -> None:
        """The current name goes last: until then its lock keeps other processes out."""
        keep = self._rotation.files - 1
        if keep < 1:
            os.ftruncate(self._fd, 0)
            return
        for number in range(keep - 1, 0, -1):
            with suppress(FileNotFoundError):
                os.replace(self._aside(number), self._aside(number + 1))
        os.replace(self._path, self._aside(1))

    def _aside(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")

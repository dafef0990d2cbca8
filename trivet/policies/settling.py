"""Whether policy files that change have come to rest.

An editor may write a file in pieces, and a policy without its last lines can be a valid, laxer one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from trivet.policies.loader import policy_files

PAUSE_S = 1.0
"""How long the files have to look the same before they are read."""

FileState = tuple[str, tuple[int, ...]]
"""Name; device, inode, size, times of the last change in ns. Nothing for a link that leads nowhere.
"""


def state_of(directory: Path) -> tuple[FileState, ...] | None:
    """What tells one state of the policy files from another; None where they cannot be listed."""
    try:
        return tuple((path.name, _stat(path)) for path in policy_files(directory))
    except OSError:
        return None


class Settling:
    """Follows changes of `directory` until two looks, `PAUSE_S` apart or more, find it the same."""

    def __init__(self, directory: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._directory = directory
        self._clock = clock
        self._stirred = False
        self._since: float | None = None
        self._seen: tuple[FileState, ...] | None = None

    def stir(self) -> None:
        """Something has changed."""
        self._stirred = True

    def settled(self) -> bool:
        """Whether the files are to be read now: they were changed, and are at rest. True once."""
        if not self._stirred:
            return False
        found, now = state_of(self._directory), self._clock()
        if self._since is None or found != self._seen:
            self._seen, self._since = found, now
        if now - self._since < PAUSE_S:
            return False
        self._stirred, self._since = False, None
        return True


def _stat(path: Path) -> tuple[int, ...]:
    try:
        found = path.stat()
    except OSError:
        return ()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns

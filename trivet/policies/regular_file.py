"""Files that a policy names, read with a bound: no device, no pipe that nobody writes to."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from trivet.errors import ConfigError, Problem


def read_regular(path: Path, most: int, field: str = "", *, within: Path | None = None) -> bytes:
    """The file's bytes. Raises `ConfigError` where it is no regular file, is larger than `most`
    bytes, or lies outside of `within`; `field` is what the finding says it is about.

    Symbolic links are followed first, of both: a link that stays in the directory is fine, as
    Kubernetes makes them for mounted files.
    """
    try:
        real = path.resolve(strict=True)
        if within is not None and not real.is_relative_to(within.resolve(strict=True)):
            raise _refused(path, field, f"has to lie in {within} or below, links followed.")
        # Looked at before it is opened: to open some devices is to use them.
        if not stat.S_ISREG(real.stat().st_mode):
            raise _refused(path, field, "is not a regular file.")
        with os.fdopen(os.open(real, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise _refused(path, field, "is not a regular file.")
            raw = file.read(most + 1)
    except (OSError, RuntimeError, ValueError) as error:
        told = error.strerror if isinstance(error, OSError) else str(error)
        raise _refused(path, field, f"cannot be read: {told}.") from None
    if len(raw) > most:
        raise _refused(path, field, f"is larger than {most} bytes.")
    return raw


def _refused(path: Path, field: str, message: str) -> ConfigError:
    return ConfigError(Problem(str(path), 0, 0, field, message))

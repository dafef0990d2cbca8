"""Writes a file whole or not at all: a reader never sees half of one."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from trivet.errors import ConfigError, Problem


def write_whole(path: Path, text: str) -> None:
    """Replace the file at `path`, in UTF-8. Raises `ConfigError` where it cannot be written."""
    try:
        handle, made = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".part")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            os.chmod(made, 0o644)
            os.replace(made, path)
        except BaseException:
            os.unlink(made)
            raise
    except OSError as error:
        raise ConfigError(
            Problem(str(path), 0, 0, "", f"cannot be written: {error.strerror}")
        ) from None

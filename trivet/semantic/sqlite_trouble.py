"""What SQLite and the file system report, as a `StoreError` with a short reason."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from trivet.errors import StoreError

_REASONS = {
    sqlite3.SQLITE_BUSY: "locked",
    sqlite3.SQLITE_LOCKED: "locked",
    sqlite3.SQLITE_FULL: "full",
    sqlite3.SQLITE_READONLY: "readonly",
    sqlite3.SQLITE_CANTOPEN: "cannot-open",
    sqlite3.SQLITE_IOERR: "io",
    sqlite3.SQLITE_CORRUPT: "corrupt",
    sqlite3.SQLITE_NOTADB: "corrupt",
}


def translate(error: sqlite3.Error | OSError, path: Path) -> StoreError:
    """The same trouble, naming the file at `path`."""
    # The low byte is the primary code (https://www.sqlite.org/rescode.html).
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    reason = _REASONS.get(code, "cannot-open" if isinstance(error, OSError) else "sqlite")
    return StoreError(reason, f"{reason}: {path}: {error}")

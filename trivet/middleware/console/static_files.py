"""The console's files: read from the package, served with strong entity tags."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import Final

from trivet.canonical import sha256
from trivet.middleware.console.replies import Message, Reply, header

_ROOT: Final = Path(__file__).parent / "static"
_KINDS: Final = {
    ".html": b"text/html; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".css": b"text/css; charset=utf-8",
    ".svg": b"image/svg+xml",
}
_NAME: Final = re.compile(r"(?:[a-z][a-z0-9_-]*/)?[a-z][a-z0-9_-]*\.(?:html|js|css|svg)")
_CACHE: Final = b"no-cache"
"""Asked for again each time, and answered 304 while it is the same: an upgrade shows at once."""


@lru_cache(maxsize=64)
def _read(name: str) -> tuple[bytes, bytes]:
    body = (_ROOT / name).read_bytes()
    return body, b'"' + sha256(body).hex()[:32].encode() + b'"'


def file_reply(scope: Message, name: str) -> Reply:
    """The file `name` below the static folder; 404 for what is none, 304 where it is known."""
    if not _NAME.fullmatch(name) or not (_ROOT / name).is_file():
        return Reply(404, b"There is no such file.\n", b"text/plain; charset=utf-8")
    body, tag = _read(name)
    tags = (b"etag", tag)
    kind = _KINDS[Path(name).suffix]
    known = header(scope, b"if-none-match") or b""
    if tag in (one.strip().removeprefix(b"W/") for one in known.split(b",")):
        return Reply(304, b"", kind, (tags,), _CACHE)
    return Reply(200, body, kind, (tags,), _CACHE)

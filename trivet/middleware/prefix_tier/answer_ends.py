"""What the two ends of a long answer say, by the depth at which they say it.

A tool call's arguments are JSON of the model's choosing, and may hold a `usage` of their own: only
members of the API's own objects count. At the end of a text that depth is told from behind.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from json import JSONDecoder
from typing import Any, Final

from trivet.prefix.prompts.json_text import without_escapes

_NAMES: Final = frozenset(
    (b"usage", b"usageMetadata", b"usage_metadata", b"model", b"modelVersion", b"timings")
)
_COLON: Final = re.compile(rb"\s*:\s*")
_MOST: Final = 4096
"""Bytes of one of these members."""
_CONTROLS: Final = re.compile(rb"[\x00-\x1f]+")
"""Stand in no JSON text of one line."""
_DECODE: Final = JSONDecoder().raw_decode

Members = Mapping[str, Any]


def members_of_head(text: bytes) -> Members:
    """Members of the object, or of the first objects of an array, with which a text begins."""
    start = text.lstrip()
    depth = 2 if start.startswith(b"[") else 1
    pieces = without_escapes(start).split(b'"')
    found: dict[str, Any] = {}
    level = at = 0
    for index, piece in enumerate(pieces):
        if not index & 1:
            level += _opened(piece)
        elif level == depth:
            _add(found, pieces, index, (start, at))
        at += len(piece) + 1
    return found


def members_of_tail(text: bytes, *, within: int = 0) -> Members:
    """Members of the object, or of the last objects of an array, with which a text ends; those of
    the object `within` so many others of it where its beginning is not there."""
    end = text.rstrip()
    depth = (2 if end.endswith(b"]") else 1) + within
    pieces = without_escapes(end).split(b'"')
    found: dict[str, Any] = {}
    level, at = 0, len(end) + 1
    for back, piece in enumerate(reversed(pieces)):
        at -= len(piece) + 1
        if not back & 1:
            level -= _opened(piece)
        elif level == depth:
            _add(found, pieces, len(pieces) - 1 - back, (end, at))
    return found


def framed_payloads(text: bytes) -> Iterator[Members]:
    """Payloads with usage out of binary events (Bedrock's event streams): each follows the name of
    its kind, and a control character is before that."""
    for piece in _CONTROLS.split(text):
        start = piece.find(b"{")
        if start >= 0 and b'"usage"' in piece:
            value = _value(piece[start:])
            if isinstance(value, dict):
                yield value


def _opened(piece: bytes) -> int:
    opened = piece.count(b"{") + piece.count(b"[")
    return opened - piece.count(b"}") - piece.count(b"]")


def _add(
    found: dict[str, Any],
    pieces: list[bytes],
    index: int,
    where: tuple[bytes, int],
) -> None:
    """Read the member whose name is the string `index`, unless one that was met before is known."""
    name, (text, at) = pieces[index], where
    if name not in _NAMES or name.decode() in found or index + 1 == len(pieces):
        return
    behind = at + len(name) + 1
    colon = _COLON.match(text, behind)
    if colon is None:
        return
    value = _value(text[colon.end() : colon.end() + _MOST])
    if isinstance(value, dict | str):
        found[name.decode()] = value


def _value(text: bytes) -> Any:
    try:
        return _DECODE(text.decode("utf-8", "replace"))[0]
    except (ValueError, RecursionError):
        return None

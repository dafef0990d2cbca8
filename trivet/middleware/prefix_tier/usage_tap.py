"""The usage of an answer that nobody records, read beside its bytes as they pass.

A tap keeps the beginning and the end of a body, never more than 64 KiB of it, and looks at them
when the body has ended. Most answers fit, and are parsed; of longer ones the usage is looked for
at both ends, which is where every API that is known here has it. JSON inside a JSON string has
its quotes escaped, so what a model says is never taken for usage.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping
from json import JSONDecoder
from typing import Any, Final, NamedTuple

import orjson

from trivet.messages import Usage
from trivet.middleware.dialects.sse import Splitter, data_of
from trivet.prefix.backends.usage import StreamUsage, usage_of
from trivet.prefix.markers.money import sound

_HEAD: Final = 16 << 10
_TAIL: Final = 48 << 10
_MOST_TOKENS: Final = 1 << 31
_USAGE: Final = re.compile(rb'"(usage|usageMetadata|usage_metadata)"\s*:\s*(?=\{)')
_MODEL: Final = re.compile(rb'"(?:model|modelVersion)"\s*:\s*"([^"\\]{1,256})"')
_COUNT: Final = re.compile(r"(?:_tokens|Tokens|_token_count|TokenCount)$")
_DECODE: Final = JSONDecoder().raw_decode
_TRIES: Final = 8
_STREAM: Final = "text/event-stream"


class Told(NamedTuple):
    """What an answer said of itself."""

    usage: Usage | None = None
    model: str = ""
    """The model that served; empty where it is not named."""


NOTHING: Final = Told()


class UsageTap:
    """Told a body's chunks in order; `told` may be called once it has ended, or broken off."""

    __slots__ = ("_head", "_headed", "_media", "_size", "_tail", "_tailed")

    def __init__(self, media_type: str) -> None:
        self._media = media_type
        self._head: list[bytes] = []
        self._tail: deque[bytes] = deque()
        self._headed = self._tailed = self._size = 0

    def take(self, chunk: bytes) -> None:
        """The next chunk."""
        size = len(chunk)
        self._size += size
        if self._headed < _HEAD:
            room = _HEAD - self._headed
            self._head.append(chunk[:room])
            self._headed += min(size, room)
            if size <= room:
                return
            chunk = chunk[room:]
        if len(chunk) > _TAIL:
            chunk = chunk[-_TAIL:]
        tail = self._tail
        tail.append(chunk)
        self._tailed += len(chunk)
        while self._tailed - len(tail[0]) >= _TAIL:
            self._tailed -= len(tail.popleft())

    def told(self) -> Told:
        """What the body said, as far as it came. Raises nothing."""
        head, tail = b"".join(self._head), b"".join(self._tail)
        text = head + tail
        found: Usage | None = None
        if self._size == len(text):
            found = _streamed(text) if self._media == _STREAM else _whole(text)
        found = found or _sought(head, tail)
        model = _MODEL.search(head) or _MODEL.search(tail)
        named = model[1].decode("utf-8", "replace") if model else ""
        return Told(found if found is not None and _credible(found) else None, named)


def _credible(usage: Usage) -> bool:
    return max(usage) < _MOST_TOKENS and sound(usage)


def _whole(text: bytes) -> Usage | None:
    """Usage of a JSON answer, or of a JSON array of a stream's events (Gemini without `alt`)."""
    if b'"usage' not in text:
        return None
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    if isinstance(value, Mapping):
        return usage_of(value)
    stream = StreamUsage()
    for event in value if isinstance(value, list) else ():
        if isinstance(event, Mapping):
            stream.feed(event)
    return stream.usage()


def _streamed(text: bytes) -> Usage | None:
    stream = StreamUsage()
    # What has no blank line behind it was cut off.
    for event in Splitter().push(text):
        if _USAGE.search(event) is None:
            continue
        try:
            value = orjson.loads(data_of(event) or b"null")
        except orjson.JSONDecodeError:
            continue
        if isinstance(value, Mapping):
            stream.feed(value)
    return stream.usage()


def _sought(head: bytes, tail: bytes) -> Usage | None:
    """Usage out of the two ends of a body: what the end says over what the beginning says."""
    first = next(_objects(_USAGE.finditer(head), head), None)
    places = list(_USAGE.finditer(tail or head))[-_TRIES:]
    last = next(_objects(reversed(places), tail or head), None)
    merged = {**(first or {}), **{name: one for name, one in (last or {}).items() if one}}
    return _usage_in(merged) if merged else None


def _objects(places: Iterator[re.Match[bytes]], text: bytes) -> Iterator[dict[str, Any]]:
    for place in places:
        cut = text[place.end() : place.end() + 4096].decode("utf-8", "replace")
        try:
            value, _ = _DECODE(cut)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict) and any(_COUNT.search(name) for name in value):
            yield value


def _usage_in(value: Mapping[str, Any]) -> Usage | None:
    gemini = "promptTokenCount" in value or "prompt_token_count" in value
    return usage_of({"usageMetadata" if gemini else "usage": value})

"""The usage of an answer that nobody records, read beside its bytes as they pass.

A tap keeps the beginning and the end of a body, never more than 64 KiB of it, and looks at them
when the body has ended. Most answers fit, and are parsed; of longer ones the usage is looked for
at both ends, which is where every API that is known here has it, among the members that are the
API's own (`answer_ends`): what a model says and the arguments of its tool calls lie deeper.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import orjson

from trivet.messages import Usage
from trivet.middleware.dialects.sse import Splitter, data_of
from trivet.middleware.prefix_tier.answer_ends import (
    framed_payloads,
    members_of_head,
    members_of_tail,
)
from trivet.prefix.backends.usage import StreamUsage
from trivet.prefix.markers.money import sound

_HEAD: Final = 16 << 10
_TAIL: Final = 48 << 10
_MOST_TOKENS: Final = 1 << 31
_LONGEST_NAME: Final = 256
_BINARY: Final = "application/vnd.amazon.eventstream"
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
        whole = self._size == len(head) + len(tail)
        ends = (head + tail,) if whole else (head, tail)
        answer = _Answer()
        if self._media == _STREAM:
            _read_stream(answer, *ends)
        elif self._media == _BINARY:
            for payload in (one for end in ends for one in framed_payloads(end)):
                answer.feed(payload)
        elif whole:
            _read_whole(answer, *ends)
        else:
            answer.feed(members_of_head(head))
            answer.feed(members_of_tail(tail))
        return answer.told()


class _Answer:
    """What is known of an answer, told its events in order."""

    def __init__(self) -> None:
        self._stream = StreamUsage()
        self._model = ""

    def feed(self, event: Mapping[str, Any]) -> None:
        """One event, or the whole answer."""
        self._stream.feed(event)
        if not self._model:
            within = (event, event.get("message"), event.get("response"))
            named = (
                one.get(name)
                for one in within
                if isinstance(one, Mapping)
                for name in ("model", "modelVersion")
            )
            fits = (one for one in named if isinstance(one, str) and len(one) <= _LONGEST_NAME)
            self._model = next(fits, "")

    def told(self) -> Told:
        usage = self._stream.usage()
        credible = usage is not None and max(usage) < _MOST_TOKENS and sound(usage)
        return Told(usage if credible else None, self._model)


def _read_whole(answer: _Answer, text: bytes) -> None:
    """A JSON answer, or a JSON array of a stream's events (Gemini without `alt`)."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        # It broke off: an end that is missing says nothing.
        answer.feed(members_of_head(text))
        return
    for event in value if isinstance(value, list) else (value,):
        if isinstance(event, Mapping):
            answer.feed(event)


def _read_stream(answer: _Answer, head: bytes, tail: bytes = b"") -> None:
    # What has no blank line behind it was cut off.
    _feed(answer, map(data_of, Splitter().push(head)))
    if not tail:
        return
    first, *others = Splitter().push(tail) or [b""]
    if (data := data_of(first)) and data.startswith(b"{"):
        others.insert(0, first)
    else:
        # The event that ends a Responses stream holds the whole answer in one object more.
        answer.feed(members_of_tail(first, within=1))
        answer.feed(members_of_tail(first))
    _feed(answer, map(data_of, others))


def _feed(answer: _Answer, texts: Iterator[bytes | None]) -> None:
    for text in texts:
        if text is None or not any(name in text for name in (b'"usage', b'"model')):
            continue
        try:
            value = orjson.loads(text)
        except orjson.JSONDecodeError:
            continue
        if isinstance(value, Mapping):
            answer.feed(value)

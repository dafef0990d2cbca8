"""Server-sent events, as far as LLM APIs use them (HTML Living Standard, section 9.2)."""

from __future__ import annotations

import re

_END = re.compile(rb"\r\n\r\n|\n\n|\r\r")


class Splitter:
    """Cuts a byte stream into whole events, each with the blank line that ends it."""

    __slots__ = ("_parts", "_tail", "held")

    def __init__(self) -> None:
        self.held = 0
        """Bytes of the unfinished event."""
        self._parts: list[bytes] = []
        self._tail = b""

    def push(self, chunk: bytes) -> list[bytes]:
        """The events that `chunk` completes. What follows the last blank line is kept."""
        # An event that arrives in pieces is looked through once, not once for each piece.
        if self._parts and not _END.search(self._tail + chunk):
            self._keep(chunk)
            return []
        buffer = b"".join((*self._parts, chunk))
        events: list[bytes] = []
        start = 0
        for end in _END.finditer(buffer):
            events.append(buffer[start : end.end()])
            start = end.end()
        self._parts, self._tail, self.held = [], b"", 0
        if start < len(buffer):
            self._keep(buffer[start:])
        return events

    def _keep(self, piece: bytes) -> None:
        self._parts.append(piece)
        self.held += len(piece)
        # A blank line may have begun: its longest form has four bytes.
        self._tail = (self._tail + piece)[-3:]

    @property
    def rest(self) -> bytes:
        """The unfinished event."""
        return b"".join(self._parts)


def split(stream: bytes) -> list[bytes]:
    """All whole events of a recorded stream."""
    return Splitter().push(stream)


def data_of(event: bytes) -> bytes:
    """The event's data: its `data:` lines joined by line feeds; empty if it has none."""
    lines = event.splitlines()
    data = [line[6:] if line[5:6] == b" " else line[5:] for line in lines if line[:5] == b"data:"]
    return data[0] if len(data) == 1 else b"\n".join(data)


_FIELDS = frozenset((b"data", b"event", b"id", b"retry", b""))


def fault_of(event: bytes) -> str | None:
    """Why an answer with this event in it is not stored, by the event's fields alone.

    `upstream-error` for an event that is named an error, wherever in it the name stands;
    `malformed-stream` for a line that is no field of an event stream, which clients ignore or
    take for text. None if there is nothing wrong.
    """
    if event.startswith(b"data:") and event.find(b"\n") == len(event) - 2 and b"\r" not in event:
        return None
    fault = None
    for line in event.splitlines():
        name, _, value = line.partition(b":")
        if name == b"event" and b"error" in value.lower():
            return "upstream-error"
        if name not in _FIELDS:
            fault = "malformed-stream"
    return fault


def frame(data: bytes, event: str | None = None) -> bytes:
    """One event; `data` must not hold a line break."""
    if event is None:
        return b"data: %b\n\n" % data
    return b"event: %b\ndata: %b\n\n" % (event.encode(), data)

"""Server-sent events, as far as LLM APIs use them (HTML Living Standard, section 9.2)."""

from __future__ import annotations

import re

_END = re.compile(rb"\r\n\r\n|\n\n|\r\r")


class Splitter:
    """Cuts a byte stream into whole events, each with the blank line that ends it."""

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = b""

    def push(self, chunk: bytes) -> list[bytes]:
        """The events that `chunk` completes. What follows the last blank line is kept."""
        buffer = self._rest + chunk if self._rest else chunk
        events: list[bytes] = []
        start = 0
        for end in _END.finditer(buffer):
            events.append(buffer[start : end.end()])
            start = end.end()
        self._rest = buffer[start:]
        return events

    @property
    def rest(self) -> bytes:
        """The unfinished event."""
        return self._rest


def split(stream: bytes) -> list[bytes]:
    """All whole events of a recorded stream."""
    return Splitter().push(stream)


def data_of(event: bytes) -> bytes:
    """The event's data: its `data:` lines joined by line feeds; empty if it has none."""
    lines = event.splitlines()
    data = [line[6:] if line[5:6] == b" " else line[5:] for line in lines if line[:5] == b"data:"]
    return data[0] if len(data) == 1 else b"\n".join(data)


def frame(data: bytes, event: str | None = None) -> bytes:
    """One event; `data` must not hold a line break."""
    if event is None:
        return b"data: %b\n\n" % data
    return b"event: %b\ndata: %b\n\n" % (event.encode(), data)

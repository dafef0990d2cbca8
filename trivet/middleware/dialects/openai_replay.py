"""Writes OpenAI chunk streams (chat and completions) out of a recorded answer."""

from __future__ import annotations

from typing import Any

import orjson

_CONSTANT = ("service_tier", "system_fingerprint")
_HEAD = frozenset(("id", "object", "created", "model", "choices", "usage", *_CONSTANT))

_LINE_ENDS = (
    (b"\xe2\x80\xa8", b"\\u2028"),
    (b"\xe2\x80\xa9", b"\\u2029"),
    (b"\xc2\x85", b"\\u0085"),
)
"""Line ends of Unicode that no server-sent event has, but that some clients split lines at. In
JSON they stand inside strings only, where the escape means the same."""


class Frames:
    """Builds the events of one stream: the same head in each, usage where it belongs."""

    def __init__(self, answer: dict[str, Any], kind: str, include_usage: bool) -> None:
        head = {"id": answer.get("id", ""), "object": kind, "created": answer.get("created", 0)}
        head["model"] = answer.get("model", "")
        head.update((name, answer[name]) for name in _CONSTANT if name in answer)
        extras = {name: value for name, value in answer.items() if name not in _HEAD}
        self._extras = b"," + orjson.dumps(extras)[1:-1] if extras else b""
        self._usage = answer.get("usage") if include_usage else None
        self._opening = b"data: " + orjson.dumps(head)[:-1] + b',"choices":['
        self._ending = b'],"usage":null}\n\n' if include_usage else b"]}\n\n"
        self._events: list[bytes] = []

    def extend(self, choices: list[bytes]) -> None:
        """Chunks with one choice each, given as JSON."""
        opening, ending = self._opening, self._ending
        self._events.extend([opening + choice + ending for choice in choices])

    def render(self) -> bytes:
        """The whole stream. Fields of the provider's own stand in the first and the last chunk,
        because accumulators read them from the one or the other."""
        events = self._events
        if self._extras:
            for place in {0, len(events) - 1}:
                cut = len(events[place]) - len(self._ending) + 1
                events[place] = events[place][:cut] + self._extras + self._ending[1:]
        if self._usage is not None:
            usage = b'],"usage":' + orjson.dumps(self._usage)
            events.append(self._opening + usage + b"}\n\n")
        events.append(b"data: [DONE]\n\n")
        stream = b"".join(events)
        if not stream.isascii():
            for raw, escaped in _LINE_ENDS:
                stream = stream.replace(raw, escaped)
        return stream

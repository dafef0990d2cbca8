"""What a request asks the mock upstream to do: by a header, or by a suffix of the model name.

`x-mock: delay=50; status=429; retry-after=2` and the model `mock+delay=50,cut=3` are both read; the
header wins. Both are in the key of a cache in front. `baggage: mock=status%3D503` (W3C Baggage,
percent-encoded) is not: it asks for trouble at a question that was answered before.
An unknown command is the caller's mistake, so that a misspelt test cannot pass.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote, unquote

from trivet.errors import RequestError

_SEPARATOR = re.compile(r"\s*[;,]\s*")


@dataclass(frozen=True, slots=True)
class Commands:
    """One request's commands. Events count from 0; `None` means: not asked for."""

    delay: float = 0.0
    """Milliseconds before the answer's head is sent."""
    slow_chunks: float = 0.0
    """Milliseconds between two events of a stream."""
    status: int | None = None
    """Answer with this error status instead."""
    retry_after: str | None = None
    """Value of a `retry-after` response header."""
    cut: int | None = None
    """Close the socket after so many events (of a JSON answer: in the middle of the body)."""
    end: int | None = None
    """End the response properly after so many events, without a terminal event."""
    hang: int | None = None
    """Say nothing more after so many events; 0: not even the head."""
    garbage: int | None = None
    """Send what is no JSON from this event on (of a JSON answer: a body that is no JSON)."""
    error_event: int | None = None
    """Send the dialect's error event after so many events, then end."""
    finish: str | None = None
    """This finish or stop reason, word for word."""
    length: bool = False
    refusal: bool = False
    filter: bool = False
    empty: bool = False
    """An answer with no text and no tool call."""
    echo: bool = False
    """Answer with the last user text, word for word."""
    reasoning: bool = False
    annotations: bool = False
    no_usage: bool = False
    as_json: bool = False
    """Answer JSON although a stream was asked for."""
    gzip: bool = False
    """Compress the body, whatever the caller accepts."""
    tokens: int | None = None
    """Length of the answer's text in tokens (words)."""
    bytes: int | None = None
    """Length of the answer's text in bytes."""
    cached: int = 0
    """How many of the prompt's tokens the usage reports as read from the provider's cache."""
    served: str | None = None
    """The model that the answer names instead of the requested one."""
    header: tuple[tuple[str, str], ...] = field(default=())
    """Further response headers, each given as `header=name:value`."""


NONE = Commands()
_FLAGS = frozenset(
    [
        "length",
        "refusal",
        "filter",
        "empty",
        "echo",
        "reasoning",
        "annotations",
        "no_usage",
        "as_json",
        "gzip",
    ]
)
_COUNTS = frozenset(
    ["status", "cut", "end", "hang", "garbage", "error_event", "tokens", "bytes", "cached"]
)
_TIMES = frozenset({"delay", "slow_chunks"})
_TEXTS = frozenset({"retry_after", "finish", "served"})
_WHEN_BARE = {"hang": 0, "garbage": 0, "cut": 0, "end": 0, "error_event": 0}


def in_baggage(commands: str) -> str:
    """The value of a `baggage` header that gives `commands`."""
    return "mock=" + quote(commands)


def commands_of(headers: Mapping[str, str], model: str) -> Commands:
    """The commands of one request. Names of headers are in lower case.

    Raises `RequestError` 400 for a command that is unknown or whose value is wrong.
    """
    suffix = model.partition("+")[2]
    header = "; ".join((*_baggage(headers.get("baggage", "")), headers.get("x-mock", "")))
    return _apply(_apply(NONE, suffix), header)


def _baggage(header: str) -> list[str]:
    members = [member.partition(";")[0].partition("=") for member in header.split(",")]
    return [unquote(value.strip()) for name, _, value in members if name.strip() == "mock"]


def _apply(base: Commands, text: str) -> Commands:
    changes: dict[str, Any] = {}
    for item in _SEPARATOR.split(text.strip()):
        if not item:
            continue
        name, _, value = item.partition("=")
        name = name.strip().replace("-", "_")
        if name == "header":
            key, _, content = value.partition(":")
            changes["header"] = (*changes.get("header", ()), (key.strip(), content.strip()))
        else:
            changes[name] = _value(name, value.strip())
    return replace(base, **changes) if changes else base


def _value(name: str, value: str) -> bool | int | float | str:
    if name in _FLAGS and not value:
        return True
    if name in _WHEN_BARE and not value:
        return _WHEN_BARE[name]
    if name in _TEXTS and value:
        return value
    try:
        if name in _COUNTS:
            return int(value)
        if name in _TIMES:
            return float(value)
    except ValueError:
        pass
    raise RequestError(400, f"x-mock: {name}={value} is not a command.", field="x-mock")


def describe() -> Mapping[str, str]:
    """Every command with the form of its value, for `GET /_mock`."""
    forms = dict.fromkeys(_FLAGS, "") | dict.fromkeys(_COUNTS, "N") | dict.fromkeys(_TIMES, "MS")
    forms |= dict.fromkeys(_TEXTS, "TEXT") | {"header": "NAME:VALUE"}
    return {name.replace("_", "-"): form for name, form in sorted(forms.items())}

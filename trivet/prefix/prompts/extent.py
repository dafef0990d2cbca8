"""How much of a prompt is looked at: all work on one grows with its pieces, not with its bytes.

Real agents send hundreds of parts, a few thousand at most. What holds more goes upstream with the
edits that keep tenants apart, and no others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

MOST_PARTS: Final = 4_096
"""Parts of a prompt, and pieces within them, that are looked at."""
MOST_CONTAINERS: Final = 1 << 16
"""Brackets in a body whose text is read: a place is remembered for each."""
_FEW: Final = 1_024
_SMALL: Final = 1 << 17
_HOLDERS: Final = frozenset(
    {
        *("tools", "functions", "system", "messages", "input", "prompt", "instructions"),
        *("contents", "content", "parts", "source", "toolConfig", "toolResult"),
        *("systemInstruction", "system_instruction", "functionDeclarations"),
    }
)
"""Fields of the APIs whose lists are parts, or pieces of them."""


def brief(raw: bytes) -> bool:
    """Whether a body takes so little time that an event loop can spend it: tens of milliseconds at
    most. Between two pieces of a JSON text is a comma."""
    return len(raw) < _SMALL and raw.count(b",") < _FEW


def crowded_text(raw: bytes) -> bool:
    """Whether a body has too many objects and arrays to be read as a text. Microseconds a MiB."""
    return raw.count(b"{") + raw.count(b"[") > MOST_CONTAINERS


def crowded(body: Mapping[str, Any]) -> bool:
    """Whether a parsed body holds more pieces of a prompt than are looked at. Stops there."""
    waiting: list[Mapping[str, Any]] = [body]
    seen = 0
    while waiting:
        value = waiting.pop()
        for name in _HOLDERS & value.keys():
            held = value[name]
            pieces = held if isinstance(held, list) else (held,)
            seen += len(pieces) if pieces is held else 0
            if seen > MOST_PARTS:
                return True
            waiting += [piece for piece in pieces if isinstance(piece, dict)]
    return False

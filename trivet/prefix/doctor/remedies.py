"""The causes of a break by name, and what mends each."""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol


class _Ranged(Protocol):
    @property
    def start(self) -> int: ...


class Cause(NamedTuple):
    """Why two prompts part."""

    name: str
    """One of `CAUSES`."""
    told: str
    """In words, without any of the prompt's text."""
    fix: str
    start: int = -1
    """Where the changing piece begins, in characters of its part's text; -1: not known."""


_MOVE: Final = (
    "take it out of the {what} or put it behind everything that stays the same, at the end of "
    "the newest user message (policy: prefix.repair.move_lines moves a line)"
)
_COARSE: Final = (
    "name the day only and put it behind what stays the same, or give the clock by a tool"
)
_ID: Final = "leave it out of the prompt, or put it behind everything that stays the same"
_STEADY: Final = (
    "build it the same way each time: sort it, and serialise JSON with one order of keys"
)
_SETTING: Final = (
    "keep the setting the same along a conversation; where it has to change, expect this level to "
    "be written anew"
)

FIXES: Final = {
    "timestamp": f"{_COARSE} (policy: prefix.repair.move_lines moves a line)",
    "date": "put it behind what stays the same: as it is, the prefix is new every day",
    "uuid": _ID,
    "random-id": _ID,
    "hash": _ID,
    "user-name": "put what is common to all users first, and what names the user after it",
    "e-mail": "put what is common to all users first, and what names the user after it",
    "counter": "leave it out of the prompt, or put it behind everything that stays the same",
    "list-reordered": _STEADY,
    "keys-reordered": f"{_STEADY} (policy: prefix.repair.tool_json, for tools)",
    "tools-reordered": "send the tools in one order (policy: prefix.repair.sort_tools)",
    "tool-added": "send all tools each time and narrow the choice by tool_choice, or add tools at "
    "the end of the list between conversations only",
    "tool-removed": "send all tools each time and narrow the choice by tool_choice",
    "tool-edited": "change tool definitions between releases only: all that follows is new",
    "text-edited": "change this text between releases only: all that follows is new",
    "white-space": "render the template the same way each time",
    "history-rewritten": "append to the history; do not change what was sent",
    "history-compacted": "compact rarely and much: each time, all that follows is written anew",
    "history-truncated": "drop old messages in large steps, not one with each request",
    "thinking-dropped": "send thinking blocks back as they came",
    "thinking-changed": _SETTING,
    "effort-changed": _SETTING,
    "tool-choice-changed": _SETTING,
    "response-format-changed": _SETTING,
    "setting-changed": _SETTING,
    "model-changed": "prefixes are of one model: keep a conversation on the model it began with",
    "images-changed": "images anywhere change the messages level: keep them in the history, or ask "
    "about them in a conversation of their own",
    "other-message": "nothing: what differs is the newest message, and all before it is shared",
    "below-minimum": "nothing is cached below it: make the stable part longer, or leave it",
    "look-back": "set a breakpoint more often than every 20 blocks (policy: prefix.mark: auto)",
}
"""What mends each cause."""

CAUSES: Final = tuple(FIXES)


def caused(name: str, told: str, at: _Ranged | None = None) -> Cause:
    """The cause of that name, with what mends it."""
    fix = FIXES[name].replace("{what}", "prompt")
    return Cause(name, told, fix, -1 if at is None else at.start)

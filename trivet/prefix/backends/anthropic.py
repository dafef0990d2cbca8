"""Anthropic's Messages API: up to four breakpoints, kept apart by organization and workspace.

https://platform.claude.com/docs/en/build-with-claude/prompt-caching (2026-08-21). There is no salt
for a request: hard isolation is one workspace, that is one key, for each tenant.
"""

from __future__ import annotations

from typing import Final

from trivet.messages import Api
from trivet.prefix.backends.base import (
    OPENAI_FIELDS,
    SERVER_FIELDS,
    Ask,
    Isolation,
    Marked,
    Prepared,
)
from trivet.prefix.backends.draft import Draft, written
from trivet.prefix.prompts.outline import Place
from trivet.prefix.prompts.splice import Splice

MOST_MARKS: Final = 4
"""A fifth breakpoint is answered 400; the automatic one counts too."""
_TTLS: Final = ("5m", "1h")
_UNMARKABLE: Final = frozenset({"thinking", "redacted_thinking"})


class AnthropicBackend:
    """The Claude API, and what speaks like it (Claude on Foundry)."""

    kind = "anthropic"
    isolates: Isolation = "account"
    takes_marks = True

    def prepare(self, ask: Ask) -> Prepared:
        """Breakpoints where placement wants them, and no field that the API refuses."""
        draft = Draft(ask)
        draft.drop((*SERVER_FIELDS, *OPENAI_FIELDS), "the API refuses it")
        if ask.api is Api.MESSAGES:
            translate(draft)
            if draft.marks == 0:
                set_breakpoints(draft, ask.marks)
        return draft.done()


def translate(draft: Draft) -> None:
    """Breakpoints of OpenAI's kind become Anthropic's, as long as there is room."""
    room = MOST_MARKS - len(draft.marked("cache_control"))
    for place in draft.marked("prompt_cache_breakpoint"):
        draft.text.cut(place, "prompt_cache_breakpoint")
        fits = room > 0 and len(place) > 1 and not draft.text.has(place, "cache_control")
        if not fits or not takes_mark(draft.text, place):
            draft.note(f"prompt_cache_breakpoint dropped at {written(place)}: no room for it")
            continue
        room -= 1
        draft.marks += 1
        draft.text.add(place, "cache_control", control(""))
        draft.note(f"prompt_cache_breakpoint at {written(place)} sent as cache_control")


def control(ttl: str) -> dict[str, str]:
    """A `cache_control`; any other lifetime than the API's own is its default."""
    return {"type": "ephemeral", "ttl": ttl} if ttl in _TTLS else {"type": "ephemeral"}


def set_breakpoints(draft: Draft, marks: tuple[Marked, ...]) -> None:
    """Set these, unless the caller set any of its own."""
    own = len(draft.marked("cache_control"))
    if own:
        draft.note(f"{own} breakpoint{'s' * (own > 1)} of the caller's own: none added")
        return
    for place, ttl in marks[:MOST_MARKS]:
        block = markable(draft.text, place)
        if block is None:
            draft.note(f"no breakpoint at {written(place)}: that block takes none")
            continue
        draft.text.add(block, "cache_control", control(ttl))
        draft.marks += 1
        draft.note(f"breakpoint at {written(place)} for {ttl if ttl in _TTLS else _TTLS[0]}")


def markable(text: Splice, place: Place, block_type: str = "text") -> Place | None:
    """The place of the object that takes the marker of the part at `place`; None where none does.

    A string that is not empty is made a list of one block.
    """
    if not place:
        return place
    if text.is_text(place):
        text.wrap(place, block_type)
        return (*place, 0)
    if len(place) == _MESSAGE and text.is_text((*place, "content")):
        text.wrap((*place, "content"), block_type)
        return (*place, "content", 0)
    return place if takes_mark(text, place) else None


_MESSAGE: Final = 2
"""Steps to a tool, a system block, a message."""


def takes_mark(text: Splice, place: Place) -> bool:
    """Whether the block at `place` may carry a marker: no thinking, no empty text, no message."""
    if not text.is_object(place) or (text.has(place, "content") and text.has(place, "role")):
        return False
    kind = text.value((*place, "type"))
    if kind in _UNMARKABLE:
        return False
    return not text.has(place, "text") or text.is_text((*place, "text"))

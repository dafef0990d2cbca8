"""OpenAI: caching by itself, breakpoints from gpt-5.6 on, kept apart by `prompt_cache_key`.

https://platform.openai.com/docs/guides/prompt-caching. From gpt-5.6 on a prompt is written at its
own end only, so that a shared system prompt is read again under another question only where a
breakpoint follows it. The key separates reuse between a customer's own customers; one for each
session would keep sessions of one tenant from sharing, so there is one for each tenant.
"""

from __future__ import annotations

from typing import Final

from trivet.messages import Api
from trivet.prefix.backends.anthropic import markable
from trivet.prefix.backends.base import SERVER_FIELDS, Ask, Isolation, Marked, Prepared
from trivet.prefix.backends.draft import Draft, separate_key, written
from trivet.prefix.markers.rules import rules_for
from trivet.prefix.prompts.outline import NativeApi, Place

_MOST_MARKS: Final = 3
"""Four prefixes are written for a request, and the implicit breakpoint is one of them."""
_PART: Final = 4
"""Steps to a content part: `messages[0].content[0]`."""
_TTLS: Final = ("30m", "12h")
_KEYED: Final = frozenset({Api.CHAT, Api.RESPONSES})
"""The APIs that have `prompt_cache_key`."""


def explicit_breakpoints(model: str) -> bool:
    """Whether the model takes breakpoints in the prompt."""
    return rules_for("openai", model).explicit


class OpenAIBackend:
    """The OpenAI API, and Azure's."""

    kind = "openai"
    isolates: Isolation = "key"
    takes_marks = True

    def prepare(self, ask: Ask) -> Prepared:
        """The tenant's key, breakpoints where the model takes them, no field that is refused."""
        draft = Draft(ask)
        draft.drop(SERVER_FIELDS, "the API refuses it")
        explicit = ask.api in _KEYED and explicit_breakpoints(ask.model)
        _translate(draft, explicit=explicit)
        if ask.api in _KEYED:
            own = draft.body.get("prompt_cache_key")
            joined = " (the caller's own is part of it)" if isinstance(own, str) else ""
            key = separate_key(ask.salt, own)
            draft.put("prompt_cache_key", key, f"prompt_cache_key set for the tenant{joined}")
        else:
            draft.drop(("prompt_cache_key",), "this API has no such field")
        if explicit:
            _set_breakpoints(draft, ask)
        elif ask.marks:
            draft.note("no breakpoints: this model places its own")
        return draft.done()


def _translate(draft: Draft, *, explicit: bool) -> None:
    """Breakpoints of Anthropic's kind become OpenAI's where the model takes them."""
    for place in draft.marked("cache_control"):
        draft.text.cut(place, "cache_control")
        if (
            explicit
            and len(place) == _PART
            and not draft.text.has(place, "prompt_cache_breakpoint")
        ):
            draft.text.add(place, "prompt_cache_breakpoint", {"mode": "explicit"})
            draft.marks += 1
            draft.note(f"cache_control at {written(place)} sent as prompt_cache_breakpoint")
        else:
            draft.note(f"cache_control dropped at {written(place)}: the API refuses it there")


def _set_breakpoints(draft: Draft, ask: Ask) -> None:
    own = len(draft.marked("prompt_cache_breakpoint")) + draft.marks
    if own:
        draft.note(f"{own} breakpoint{'s' * (own > 1)} of the caller's own: none added")
        return
    for mark in ask.marks:
        if draft.marks == _MOST_MARKS:
            break
        block = _block(draft, ask.api, mark)
        if block is None:
            draft.note(f"no breakpoint at {written(mark.place)}: the API takes none there")
            continue
        found = {"mode": "explicit", "ttl": mark.ttl} if mark.ttl in _TTLS else {"mode": "explicit"}
        draft.text.add(block, "prompt_cache_breakpoint", found)
        draft.marks += 1
        lasts = mark.ttl if mark.ttl in _TTLS else _TTLS[0]
        draft.note(f"breakpoint at {written(mark.place)} for {lasts}")


def _block(draft: Draft, api: Api | NativeApi, mark: Marked) -> Place | None:
    """The content part for a marker. Tools and `instructions` have none, nor have tool outputs."""
    place = mark.place
    if not place or place[0] not in ("messages", "input"):
        return None
    if api is Api.RESPONSES:
        if len(place) == 1:
            return None
        # What the model said has parts of another shape, which a string does not tell.
        if len(place) < _PART and draft.text.value((*place, "role")) == "assistant":
            return None
        return markable(draft.text, place, "input_text")
    return markable(draft.text, place)

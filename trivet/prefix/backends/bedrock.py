"""Amazon Bedrock: `cachePoint` blocks in Converse, kept apart by account.

https://docs.aws.amazon.com/bedrock/latest/userguide/prompt-caching.html. A cache point is a block
of its own behind what it closes: in `system`, in a message's `content`, in `toolConfig.tools`. A
body under an AWS signature is never changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from trivet.messages import Api
from trivet.prefix.backends.anthropic import MOST_MARKS, set_breakpoints, translate
from trivet.prefix.backends.base import (
    OPENAI_FIELDS,
    SERVER_FIELDS,
    Ask,
    Isolation,
    Prepared,
)
from trivet.prefix.backends.draft import Draft, written
from trivet.prefix.markers.rules import rules_for
from trivet.prefix.prompts.json_text import may_name

_TTLS: Final = ("5m", "1h")
_BLOCK: Final = 2
"""Steps to a block at least: `system[0]`."""


class BedrockBackend:
    """Bedrock's runtime: Converse, and the APIs of others that it speaks, in InvokeModel too."""

    kind = "bedrock"
    isolates: Isolation = "account"
    takes_marks = True

    def prepare(self, ask: Ask) -> Prepared:
        """Cache points where placement wants them."""
        if not ask.bearer:
            return Prepared(ask.raw, notes=("as it came: its AWS signature covers the body",))
        draft = Draft(ask)
        if isinstance(ask.api, Api):
            draft.drop((*SERVER_FIELDS, *OPENAI_FIELDS), "the API refuses it")
            if ask.api is Api.MESSAGES and rules_for(self.kind, ask.model).max_marks:
                translate(draft)
                if draft.marks == 0:
                    set_breakpoints(draft, ask.marks)
            elif ask.api is Api.MESSAGES:
                draft.unmark("prompt_cache_breakpoint", "this model takes no breakpoints")
            return draft.done()
        _set_points(draft)
        return draft.done()


def takes_points(model: str) -> bool:
    """Whether the model takes cache points: others answer 400 to one."""
    rules = rules_for("bedrock", model)
    return rules.max_marks > 0 and ("claude" in model or bool(rules.model))


def _set_points(draft: Draft) -> None:
    if may_name(draft.ask.raw, "cachePoint") and any(map(_is_point, _blocks(draft.body))):
        draft.note("cache points of the caller's own: none added")
        return
    if not takes_points(draft.ask.model):
        draft.note("no cache points: this model takes none")
        return
    for place, ttl in draft.ask.marks[:MOST_MARKS]:
        if len(place) < _BLOCK or not isinstance(place[-1], int):
            draft.note(f"no cache point at {written(place)}: only a block takes one")
            continue
        point = {"type": "default", "ttl": ttl} if ttl in _TTLS else {"type": "default"}
        draft.text.after(place, {"cachePoint": point})
        draft.marks += 1
        draft.note(f"cache point behind {written(place)} for {ttl if ttl in _TTLS else _TTLS[0]}")


def _is_point(block: Any) -> bool:
    return isinstance(block, Mapping) and "cachePoint" in block


def _blocks(body: Mapping[str, Any]) -> Iterator[Any]:
    """Every block among which a cache point can stand."""
    tools, turns = body.get("toolConfig"), body.get("messages")
    holders = [(body, "system"), (tools, "tools")]
    holders += [(turn, "content") for turn in (turns if isinstance(turns, list) else ())]
    for holder, name in holders:
        blocks = holder.get(name) if isinstance(holder, Mapping) else None
        yield from blocks if isinstance(blocks, list) else ()

"""Amazon Bedrock: `cachePoint` blocks in Converse, kept apart by account.

https://docs.aws.amazon.com/bedrock/latest/userguide/prompt-caching.html. A cache point is a block
of its own behind what it closes: in `system`, in a message's `content`, in `toolConfig.tools`. A
body under an AWS signature is never changed.
"""

from __future__ import annotations

from typing import Final

from trivet.messages import Api
from trivet.prefix.backends.anthropic import MOST_MARKS, set_breakpoints
from trivet.prefix.backends.base import (
    OPENAI_FIELDS,
    SERVER_FIELDS,
    Ask,
    Isolation,
    Prepared,
)
from trivet.prefix.backends.draft import Draft, written
from trivet.prefix.markers.rules import rules_for

_TTLS: Final = ("5m", "1h")
_BLOCK: Final = 2
"""Steps to a block at least: `system[0]`."""


class BedrockBackend:
    """Bedrock's runtime: Converse, and the APIs of others that it speaks."""

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
            if ask.api is Api.MESSAGES:
                set_breakpoints(draft, ask.marks)
            return draft.done()
        _set_points(draft)
        return draft.done()


def takes_points(model: str) -> bool:
    """Whether the model takes cache points: others answer 400 to one."""
    return "claude" in model or bool(rules_for("bedrock", model).model)


def _set_points(draft: Draft) -> None:
    if b'"cachePoint"' in draft.ask.raw:
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
        draft.note(f"cache point behind {written(place)}")

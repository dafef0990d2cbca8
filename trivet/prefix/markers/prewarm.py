"""A request that only renews a prefix at Anthropic: nothing is generated.

https://platform.claude.com/docs/en/build-with-claude/prompt-caching: `max_tokens: 0` reads and
writes the cache as the same request with an answer would. It is refused with `stream`, with
thinking, with a format of the output, and with a tool that must be called.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

from trivet.prefix.prompts.splice import Splice

_FREE: Final = ("auto", "none")


def ping_of(raw: bytes) -> bytes | None:
    """The body of a ping for the prefixes of a request; None where the API takes none for it."""
    try:
        body: Any = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(body, dict) or _shapes_answers(body):
        return None
    text = Splice(raw)
    text.put("max_tokens", 0)
    if "stream" in body:
        text.drop("stream")
    return text.done()


def _shapes_answers(body: Mapping[str, Any]) -> bool:
    """Whether it has something that cannot go without an answer. To leave it out would be another
    prefix."""
    thinking, choice, output = (body.get(n) for n in ("thinking", "tool_choice", "output_config"))
    thinks = isinstance(thinking, dict) and thinking.get("type") != "disabled"
    forced = isinstance(choice, dict) and choice.get("type") not in _FREE
    formed = isinstance(output, dict) and output.get("format") is not None
    return thinks or forced or formed

"""What of a request is compared, and what has to be equal: law 4.

The compared text is the last user message, and nothing else. `rest` is the whole request in
canonical form with that text taken out, so two requests whose `rest` is equal differ in it alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from trivet import canonical
from trivet.errors import RequestError
from trivet.messages import Api

LONGEST = 300
"""Characters of a compared text. The gate refuses longer ones, which so is known before they are
embedded; and what lies beyond some 256 tokens an embedder does not read."""
_TEXT_PARTS = {Api.CHAT: "text", Api.MESSAGES: "text", Api.RESPONSES: "input_text"}
_LISTS = {Api.CHAT: "messages", Api.MESSAGES: "messages", Api.RESPONSES: "input"}


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as the semantic tier sees it."""

    text: str
    rest: bytes
    turns: int
    """User messages, this one included."""


def read_asked(api: Api, request: bytes) -> Asked | str:
    """`request` is `Request.canonical`. A string is the reason why it is not looked up:
    `api`, `unreadable`, `not-a-question`, `multi-part`, `empty`, `too-long`."""
    field = _LISTS.get(api)
    if field is None:
        return "api"
    try:
        body: Any = canonical.parse(request)
    except (ValueError, RequestError):
        return "unreadable"  # Lone surrogates and the like: what no embedder reads either.
    items = body.get(field)
    if api is Api.RESPONSES and type(items) is str:
        return _made(body, items, lambda: body.__setitem__(field, None), 1)
    if type(items) is not list or not items or type(items[-1]) is not dict:
        return "not-a-question"
    last = items[-1]
    if last.get("role") != "user" or last.get("type") not in (None, "message"):
        return "not-a-question"
    turns = sum(1 for item in items if type(item) is dict and item.get("role") == "user")
    content = last.get("content")
    if type(content) is str:
        return _made(body, content, lambda: last.__setitem__("content", None), turns)
    if type(content) is not list or len(content) != 1 or type(content[0]) is not dict:
        return "multi-part"
    part = content[0]
    if part.get("type") != _TEXT_PARTS[api] or type(part.get("text")) is not str:
        return "multi-part"
    return _made(body, part["text"], lambda: part.__setitem__("text", None), turns)


def _made(body: dict[str, Any], text: str, take_out: Callable[[], None], turns: int) -> Asked | str:
    if not text.strip():
        return "empty"
    if len(text) > LONGEST:
        return "too-long"
    # No request has null in this place and a text: what is left stands for one request only.
    take_out()
    return Asked(text, canonical.dump(body), turns)

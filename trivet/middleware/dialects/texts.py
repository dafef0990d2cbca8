"""The words of an answer, for people and judges; and a suggestion put into a request."""

from __future__ import annotations

from typing import Any

import orjson

from trivet import canonical
from trivet.messages import Api
from trivet.middleware.dialects.base import as_items, as_mapping

_LISTS = {Api.CHAT: "messages", Api.MESSAGES: "messages", Api.RESPONSES: "input"}


def answer_text(api: Api, body: bytes) -> str | None:
    """What the answer says; None where it is not one plain text (tool calls, several choices)."""
    try:
        value = as_mapping(orjson.loads(body))
    except orjson.JSONDecodeError:
        return None
    texts = {
        Api.CHAT: _chat,
        Api.COMPLETIONS: _completion,
        Api.MESSAGES: _blocks,
        Api.RESPONSES: _output,
    }.get(api, lambda _: None)(value)
    return texts or None


def _chat(value: dict[str, Any]) -> str | None:
    choices = list(as_items(value.get("choices")))
    message = as_mapping(as_mapping(choices[0]).get("message")) if len(choices) == 1 else {}
    content = message.get("content")
    return content if type(content) is str and not message.get("tool_calls") else None


def _completion(value: dict[str, Any]) -> str | None:
    choices = list(as_items(value.get("choices")))
    text = as_mapping(choices[0]).get("text") if len(choices) == 1 else None
    return text if type(text) is str else None


def _blocks(value: dict[str, Any]) -> str | None:
    return _joined(as_items(value.get("content")), "text", {"thinking", "redacted_thinking"})


def _output(value: dict[str, Any]) -> str | None:
    parts: list[Any] = []
    for item in map(as_mapping, as_items(value.get("output"))):
        if item.get("type") == "message":
            parts.extend(as_items(item.get("content")))
        elif item.get("type") != "reasoning":
            return None
    return _joined(parts, "output_text", set())


def _joined(parts: Any, kind: str, ignored: set[str]) -> str | None:
    found: list[str] = []
    for part in map(as_mapping, parts):
        if part.get("type") == kind and type(part.get("text")) is str:
            found.append(part["text"])
        elif part.get("type") not in ignored:
            return None
    return "".join(found)


def with_suggestion(api: Api, forward: bytes, suggestion: str) -> bytes | None:
    """The request with `suggestion` at the end of its last user message, so that the prefix
    before it stays what it was; None where there is no such message."""
    body: Any = canonical.parse(forward)
    field = _LISTS.get(api)
    items = body.get(field) if field else None
    if field and type(items) is str:
        body[field] = f"{items}\n\n{suggestion}"
        return orjson.dumps(body)
    if type(items) is not list or not items or as_mapping(items[-1]).get("role") != "user":
        return None
    content = items[-1].get("content")
    if type(content) is str:
        items[-1]["content"] = f"{content}\n\n{suggestion}"
    elif type(content) is list:
        kind = "input_text" if api is Api.RESPONSES else "text"
        content.append({"type": kind, "text": suggestion})
    else:
        return None
    return orjson.dumps(body)

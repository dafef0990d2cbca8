"""Outlines of prompts in the native APIs of Gemini and Bedrock.

https://ai.google.dev/api/generate-content and
https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html. A cache point is
a block of its own in Converse: here it is the mark of the block before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from trivet.canonical import dump
from trivet.prefix.prompts.outline import Level, Mark, NativeApi, Outline, Part, Place
from trivet.prefix.prompts.tokens import estimate_tokens

_KINDS: Final = {
    "toolUse": "tool_use",
    "toolResult": "tool_result",
    "reasoningContent": "thinking",
    "functionCall": "tool_use",
    "functionResponse": "tool_result",
    "inlineData": "image",
    "fileData": "document",
}


def native_outline(
    api: NativeApi, model: str, body: Mapping[str, Any], most: int | None = None
) -> Outline:
    """The outline of a native body, parsed with its key order kept: its first `most` parts. Never
    raises."""
    made = _converse(body) if api is NativeApi.CONVERSE else _generate(body)
    parts = tuple(islice(made, most))
    return Outline(api, model, parts, cut=most is not None and next(made, None) is not None)


def _converse(body: Mapping[str, Any]) -> Iterator[Part]:
    tools = _at(body, "toolConfig", "tools")
    yield from _blocks(Level.TOOLS, ("toolConfig", "tools"), "", tools)
    yield from _blocks(Level.SYSTEM, ("system",), "system", body.get("system"))
    for index, message in enumerate(_list(body.get("messages"))):
        place = ("messages", index, "content")
        yield from _blocks(Level.MESSAGES, place, *_said(message, "content"))


def _generate(body: Mapping[str, Any]) -> Iterator[Part]:
    yield from _blocks(Level.TOOLS, ("tools",), "", body.get("tools"))
    for name in ("systemInstruction", "system_instruction"):
        parts = _at(body, name, "parts")
        yield from _blocks(Level.SYSTEM, (name, "parts"), "system", parts)
    for index, content in enumerate(_list(body.get("contents"))):
        place = ("contents", index, "parts")
        yield from _blocks(Level.MESSAGES, place, *_said(content, "parts"))


def _said(message: Any, name: str) -> tuple[str, Any]:
    """The role and the blocks of a message; one of another shape is one block."""
    if not isinstance(message, Mapping) or not isinstance(message.get(name), list):
        return "", [message]
    role = message.get("role")
    return role if isinstance(role, str) else "", message[name]


def _blocks(level: Level, place: Place, role: str, blocks: Any) -> Iterator[Part]:
    held: Part | None = None
    for index, block in enumerate(_list(blocks)):
        point = _at(block, "cachePoint")
        if point is not None and held is not None:
            ttl = _at(point, "ttl")
            held = held._replace(mark=Mark(ttl if isinstance(ttl, str) else ""))
            continue
        if held is not None:
            yield held
        kind = "tool" if level is Level.TOOLS else _kind(block)
        content = dump(block)
        tokens = estimate_tokens(kind, content)
        held = Part(level, (*place, index), kind, role, content, tokens)
    if held is not None:
        yield held


def _kind(block: Any) -> str:
    if not isinstance(block, Mapping):
        return "other"
    name = next(iter(block), "other")
    return _KINDS.get(name, name)


def _at(value: Any, *names: str) -> Any:
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else ()

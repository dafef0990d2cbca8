"""Tool-call ids in the key: an id that a replay minted stands for the original that it was made of.

Without this, a conversation that goes on from a replayed tool call would ask a new question each
time. Only the places where an API defines a call id are read, never text and never tool input.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trivet.exact.tool_ids import restore, restore_ids
from trivet.middleware.dialects.base import as_items

Json = dict[str, Any]
Places = Callable[[Json], list[tuple[Json, str]]]
"""The objects within a message that hold a call id, and the field that does."""


def in_chat(message: Json) -> list[tuple[Json, str]]:
    """OpenAI chat: calls of an assistant message, and the call that a tool message answers."""
    places = [(message, "tool_call_id")] if "tool_call_id" in message else []
    if "tool_calls" in message:
        calls = as_items(message["tool_calls"])
        places += [(call, "id") for call in calls if type(call) is dict]
    return places


def in_messages(message: Json) -> list[tuple[Json, str]]:
    """Anthropic: `tool_use` blocks, and `tool_result` blocks that answer them."""
    places: list[tuple[Json, str]] = []
    for block in as_items(message.get("content")):
        if type(block) is dict:
            kind = block.get("type")
            if kind == "tool_use":
                places.append((block, "id"))
            elif kind == "tool_result":
                places.append((block, "tool_use_id"))
    return places


def in_responses(item: Json) -> list[tuple[Json, str]]:
    """OpenAI Responses: calls and their outputs name each other by `call_id`."""
    return [(item, "call_id")] if "call_id" in item else []


def with_original_ids(messages: list[Json], places: Places) -> list[Json]:
    """The messages with minted ids replaced by their originals; the same list if there are none.

    Two distinct ids of one request never become one: see `restore_ids`.
    """
    found = [
        holder[field]
        for message in messages
        for holder, field in places(message)
        if type(holder.get(field)) is str
    ]
    if not found or not any(restore(call_id) != call_id for call_id in found):
        return messages
    originals = restore_ids(found)
    return [_renamed(message, places, originals) for message in messages]


def _renamed(message: Json, places: Places, originals: dict[str, str]) -> Json:
    copy = _copied(message)
    for holder, field in places(copy):
        if type(holder.get(field)) is str:
            holder[field] = originals[holder[field]]
    return copy


def _copied(message: Json) -> Json:
    """A copy as deep as call ids lie: the message, and the objects in its lists."""
    return {
        name: [dict(item) if type(item) is dict else item for item in value]
        if type(value) is list
        else value
        for name, value in message.items()
    }

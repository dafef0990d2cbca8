"""The ids in an event of a live stream that are each caller's own: those that a replay mints."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trivet.middleware.dialects.base import as_items, as_mapping
from trivet.middleware.dialects.responses_answer import call_id_of, ids_of

Json = dict[str, Any]


def live_ids(event: Json) -> Iterator[str]:
    """The ids of the answer and of its calls that `event` brings, in any dialect.

    The same as `Recorder.ids` for whole streams. Ids that the request named (a stored prompt, an
    example in a tool's schema) and ids of Responses items are not among them.
    """
    for found in _places(event):
        if type(found) is str and found:
            yield found


def _places(event: Json) -> Iterator[Any]:
    yield event.get("id")
    for choice in as_items(event.get("choices")):
        delta = as_mapping(as_mapping(choice).get("delta"))
        for call in as_items(delta.get("tool_calls")):
            yield as_mapping(call).get("id")
    yield as_mapping(event.get("message")).get("id")
    block = as_mapping(event.get("content_block"))
    if block.get("type") == "tool_use":
        yield block.get("id")
    yield from ids_of(as_mapping(event.get("response")))
    yield call_id_of(event.get("item"))

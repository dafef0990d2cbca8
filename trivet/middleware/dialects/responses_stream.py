"""An OpenAI response as server-sent events.

https://platform.openai.com/docs/api-reference/responses-streaming. The SDKs take the result from
`response.completed`; the events before it are what interfaces draw, in the order that the SDKs'
accumulators insist on.
"""

from __future__ import annotations

from typing import Any

from trivet.middleware.dialects.base import as_items
from trivet.middleware.dialects.bodies import compact
from trivet.middleware.dialects.pieces import text_pieces, token_pieces
from trivet.middleware.dialects.responses_answer import CALLS

Json = dict[str, Any]


def render(response: Json) -> bytes:
    """The whole stream, `response.created` to `response.completed`."""
    writer = _Writer()
    opening = compact(_opening(response))
    writer.write("response.created", b'"response":%b' % opening)
    writer.write("response.in_progress", b'"response":%b' % opening)
    for index, item in enumerate(as_items(response.get("output"))):
        _item(writer, index, item)
    writer.write("response.completed", b'"response":%b' % compact(response))
    return b"".join(writer.parts)


class _Writer:
    """Frames events and numbers them from 0."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []

    def write(self, kind: str, fields: bytes) -> None:
        """One event; `fields` are the members of its object after type and number."""
        name = kind.encode()
        self.parts.append(
            b'event: %b\ndata: {"type":"%b","sequence_number":%d,%b}\n\n'
            % (name, name, len(self.parts), fields)
        )

    def add(self, kind: str, place: bytes, fields: Json) -> None:
        """One event about a place in the output."""
        self.write(kind, b"%b,%b" % (place, compact(fields)[1:-1]))

    def texts(self, kind: str, place: bytes, field: str, text: str) -> None:
        """The deltas of a text, and the event that repeats it whole under `field`."""
        for piece in text_pieces(text):
            self.write(f"{kind}.delta", b'%b,"delta":%b' % (place, compact(piece)))
        self.add(f"{kind}.done", place, {field: text})


def _opening(response: Json) -> Json:
    opening = {**response, "status": "in_progress", "output": []}
    return opening | {
        field: None for field in ("usage", "completed_at", "moderation") if field in response
    }


def _item(writer: _Writer, index: int, item: Json) -> None:
    number = b'"output_index":%d' % index
    place = b'"item_id":%b,%b' % (compact(item.get("id") or ""), number)
    kind = item.get("type")
    writer.add("response.output_item.added", number, {"item": _opened(item)})
    if kind == "message":
        for position, part in enumerate(as_items(item.get("content"))):
            _part(writer, b'%b,"content_index":%d' % (place, position), part)
    elif kind == "reasoning":
        _reasoning(writer, place, item)
    elif kind == "function_call":
        writer.texts("response.function_call_arguments", place, "arguments", item["arguments"])
    elif kind == "custom_tool_call":
        writer.texts("response.custom_tool_call_input", place, "input", item["input"])
    writer.add("response.output_item.done", number, {"item": item})


def _opened(item: Json) -> Json:
    """The item before its first delta. A type without deltas is whole from the start."""
    kind = item.get("type")
    if kind == "message":
        opened = {**item, "content": []}
    elif kind == "reasoning":
        opened = item | {field: [] for field in ("summary", "content") if item.get(field)}
    elif kind in CALLS:
        opened = {**item, CALLS[kind]: ""}
    else:
        return item
    if opened.get("status") is not None:
        opened["status"] = "in_progress"
    return opened


def _part(writer: _Writer, place: bytes, part: Json) -> None:
    kind = part.get("type")
    if kind == "output_text":
        opened = part | {
            field: [] for field in ("annotations", "logprobs") if part.get(field) is not None
        }
        writer.add("response.content_part.added", place, {"part": {**opened, "text": ""}})
        _output_text(writer, place, part)
    elif kind == "refusal":
        writer.add("response.content_part.added", place, {"part": {**part, "refusal": ""}})
        writer.texts("response.refusal", place, "refusal", part["refusal"])
    elif kind == "reasoning_text":
        writer.add("response.content_part.added", place, {"part": {**part, "text": ""}})
        writer.texts("response.reasoning_text", place, "text", part["text"])
    else:
        writer.add("response.content_part.added", place, {"part": part})
    writer.add("response.content_part.done", place, {"part": part})


def _output_text(writer: _Writer, place: bytes, part: Json) -> None:
    text: str = part["text"]
    logprobs = list(as_items(part.get("logprobs")))
    cut = token_pieces(text, logprobs) if logprobs else None
    for piece, tokens in cut or [(piece, []) for piece in text_pieces(text)]:
        fields = (place, compact(piece), compact(tokens) if tokens else b"[]")
        writer.write("response.output_text.delta", b'%b,"delta":%b,"logprobs":%b' % fields)
    for number, annotation in enumerate(as_items(part.get("annotations"))):
        writer.add(
            "response.output_text.annotation.added",
            place,
            {"annotation_index": number, "annotation": annotation},
        )
    writer.add("response.output_text.done", place, {"text": text, "logprobs": logprobs})


def _reasoning(writer: _Writer, place: bytes, item: Json) -> None:
    for position, part in enumerate(as_items(item.get("summary"))):
        where = b'%b,"summary_index":%d' % (place, position)
        opened = {"part": {**part, "text": ""}}
        writer.add("response.reasoning_summary_part.added", where, opened)
        writer.texts("response.reasoning_summary_text", where, "text", part["text"])
        writer.add("response.reasoning_summary_part.done", where, {"part": part})
    for position, part in enumerate(as_items(item.get("content"))):
        _part(writer, b'%b,"content_index":%d' % (place, position), part)

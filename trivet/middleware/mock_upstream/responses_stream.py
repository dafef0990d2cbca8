"""The event stream of the OpenAI Responses API, derived from the finished `response` object."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import orjson

from trivet.middleware.dialects import sse
from trivet.middleware.mock_upstream import answers
from trivet.middleware.mock_upstream.answers import Body

Part = tuple[str, Body]
"""An event before it is numbered: its type and its fields."""


def events(made: Body, body: Body) -> Iterator[bytes]:
    """The stream whose terminal event carries `made`."""
    for number, (name, fields) in enumerate(_parts(made)):
        yield sse.frame(orjson.dumps({"type": name, "sequence_number": number, **fields}), name)


def _parts(made: Body) -> Iterator[Part]:
    unfinished = {"completed_at": None, "error": None, "incomplete_details": None}
    opened = {**made, **unfinished, "status": "in_progress", "output": [], "usage": None}
    yield "response.created", {"response": opened}
    yield "response.in_progress", {"response": opened}
    for index, item in enumerate(made["output"]):
        yield from _item(item, {"output_index": index})
    yield f"response.{made['status']}", {"response": made}


def _item(item: Body, at: Body) -> Iterator[Part]:
    inner = {**at, "item_id": item["id"]}
    kind = item["type"]
    yield "response.output_item.added", {**at, "item": _opened(item)}
    if kind == "reasoning":
        for index, part in enumerate(item["summary"]):
            yield from _summary(part, {**inner, "summary_index": index})
    elif kind == "message":
        for index, part in enumerate(item["content"]):
            yield from _content(part, {**inner, "content_index": index})
    elif kind == "function_call":
        yield from _text("response.function_call_arguments", "arguments", item["arguments"], inner)
    else:
        yield from _text("response.custom_tool_call_input", "input", item["input"], inner)
    yield "response.output_item.done", {**at, "item": item}


def _opened(item: Body) -> Body:
    empty: Body = {"summary": [], "content": [], "arguments": "", "input": ""}
    made = {key: empty.get(key, value) for key, value in item.items()}
    if "status" in made:
        made["status"] = "in_progress"
    return made


def _summary(part: Body, at: Body) -> Iterator[Part]:
    yield "response.reasoning_summary_part.added", {**at, "part": {**part, "text": ""}}
    for piece in answers.pieces(part["text"]):
        yield "response.reasoning_summary_text.delta", {**at, "delta": piece}
    yield "response.reasoning_summary_text.done", {**at, "text": part["text"]}
    yield "response.reasoning_summary_part.done", {**at, "part": part}


def _content(part: Body, at: Body) -> Iterator[Part]:
    name = "refusal" if part["type"] == "refusal" else "text"
    empty = {key: [] if isinstance(value, list) else value for key, value in part.items()}
    yield "response.content_part.added", {**at, "part": {**empty, name: ""}}
    if name == "refusal":
        yield from _text("response.refusal", "refusal", part["refusal"], at)
    else:
        tokens = answers.pieces(part["text"])
        for piece, entry in itertools.zip_longest(tokens, part["logprobs"][: len(tokens)]):
            logprobs = [entry] if entry else []
            yield "response.output_text.delta", {**at, "delta": piece, "logprobs": logprobs}
        for index, note in enumerate(part["annotations"]):
            fields = {**at, "annotation_index": index, "annotation": note}
            yield "response.output_text.annotation.added", fields
        done = {**at, "text": part["text"], "logprobs": part["logprobs"]}
        yield "response.output_text.done", done
    yield "response.content_part.done", {**at, "part": part}


def _text(name: str, field: str, text: str, at: Body) -> Iterator[Part]:
    for piece in answers.halves(text):
        yield f"{name}.delta", {**at, "delta": piece}
    yield f"{name}.done", {**at, field: text}


def error_event(message: str) -> bytes:
    """An error in the middle of a stream."""
    fields = {"type": "error", "code": "server_error", "message": message, "param": None}
    return sse.frame(orjson.dumps({**fields, "sequence_number": 0}), "error")

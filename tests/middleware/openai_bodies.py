"""Builders of OpenAI requests, answers and streams."""

from __future__ import annotations

from typing import Any

import orjson

from trivet.messages import Answer, NotStored, Request
from trivet.middleware.dialects.base import Dialect, StoreRules
from trivet.middleware.dialects.sse import split

RULES = StoreRules(tool_calls=True, refusals=True, max_entry=1 << 20)
DONE = b"data: [DONE]\n\n"


def ask(**fields: Any) -> bytes:
    """A chat request."""
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "temperature": 0}
    return orjson.dumps({**body, **fields})


def message(content: str | None = "Hello there.", **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, "refusal": None, **fields}


def choice(index: int = 0, finish: Any = "stop", **fields: Any) -> dict[str, Any]:
    made = {"index": index, "message": message(), "logprobs": None, "finish_reason": finish}
    return {**made, **fields}


def completion(*choices: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A chat completion."""
    made: dict[str, Any] = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1700000000,
        "model": "m-2026",
        "choices": list(choices) or [choice()],
        "usage": {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12},
    }
    return {**made, **fields}


def call(number: int = 0, arguments: str = '{"city":"Bern"}', **fields: Any) -> dict[str, Any]:
    function = {"name": "weather", "arguments": arguments}
    return {"id": f"call_{number}", "type": "function", "function": function, **fields}


def calling(*calls: dict[str, Any], finish: str = "tool_calls") -> dict[str, Any]:
    """A chat completion that calls tools."""
    return completion(choice(finish=finish, message=message(None, tool_calls=list(calls))))


def chunk(*choices: dict[str, Any], **fields: Any) -> bytes:
    made: dict[str, Any] = {"id": "chatcmpl-1", "object": "chat.completion.chunk"}
    made |= {"created": 1700000000, "model": "m-2026", "choices": list(choices)}
    return b"data: %b\n\n" % orjson.dumps({**made, **fields})


def delta(index: int = 0, finish: Any = None, /, **fields: Any) -> dict[str, Any]:
    return {"index": index, "delta": fields, "logprobs": None, "finish_reason": finish}


def hello() -> list[bytes]:
    """A complete chat stream."""
    return [
        chunk(delta(role="assistant", content="", refusal=None)),
        chunk(delta(content="Hello")),
        chunk(delta(content=" there.")),
        chunk(delta(0, "stop")),
        DONE,
    ]


def record(dialect: Dialect, request: Request, value: Any, rules: StoreRules = RULES) -> Answer:
    found = dialect.record(request, orjson.dumps(value), rules)
    assert isinstance(found, Answer), found
    return found


def refused(found: Answer | NotStored) -> str:
    assert isinstance(found, NotStored), found
    return found.reason


def follow(
    dialect: Dialect, request: Request, events: list[bytes], rules: StoreRules = RULES
) -> Answer | NotStored:
    recorder = dialect.recorder(request)
    for event in events:
        recorder.feed(event)
    return recorder.finish(rules)


def followed(dialect: Dialect, request: Request, events: list[bytes]) -> dict[str, Any]:
    found = follow(dialect, request, events)
    assert isinstance(found, Answer), found
    value: dict[str, Any] = orjson.loads(found.body)
    return value


def chunks(stream: bytes) -> list[dict[str, Any]]:
    """The chunks of a rendered stream, which has to end with `[DONE]`."""
    events = split(stream)
    assert b"".join(events) == stream
    assert events[-1] == DONE
    return [orjson.loads(event[6:]) for event in events[:-1]]

"""The requests and answers that everything here is measured with."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

KEY = "tvt_bench_key"
PATH = "/v1/chat/completions"
REQUEST_BYTES = 4096
ANSWER_BYTES = 1020
_SERIAL = "000000000000"
_CREATED = 1_790_000_000


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def chat_body(*, size: int = REQUEST_BYTES, stream: bool = False, spaced: bool = False) -> bytes:
    """A chat request of exactly `size` bytes: some turns, then one that fills it up.

    It holds one serial number of twelve digits (see `numbered`).
    """
    turns = [
        {"role": role, "content": f"{text} " * 12}
        for role, text in (
            ("user", "Which trains leave for Aarhus before noon?"),
            ("assistant", "There are three, at 7, 9 and 11."),
        )
        * 2
    ]
    body: dict[str, Any] = {
        "model": "gpt-4o-mini",
        "messages": [
            {"role": "system", "content": f"You are a travel desk. Case {_SERIAL}."},
            *turns,
            {"role": "user", "content": ""},
        ],
        "temperature": 0,
        "max_tokens": 512,
    }
    if stream:
        body["stream"] = True

    def encode() -> bytes:
        return (json.dumps(body) if spaced else _compact(body)).encode()

    missing = size - len(encode())
    filler = "Which one has a dining car and how long does it take? " * (missing // 40 + 1)
    body["messages"][-1]["content"] = filler[:missing]
    made = encode()
    assert len(made) == size, len(made)
    return made


def post(body: bytes, *, path: str = PATH, key: str = KEY, extra: bytes = b"") -> bytes:
    """The bytes of one HTTP/1.1 request with the headers that an OpenAI client sends.

    `extra` are further header lines, each ended by CRLF.
    """
    head = (
        f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\naccept: application/json\r\n"
        "content-type: application/json\r\nuser-agent: trivet-bench\r\n"
        f"authorization: Bearer {key}\r\ncontent-length: {len(body)}\r\n"
    )
    return head.encode() + extra + b"\r\n" + body


def numbered(request: bytes, first: int = 0, count: int | None = None) -> Iterator[bytes]:
    """Requests that differ in their serial number only, without end or `count` of them."""
    before, _, after = request.partition(_SERIAL.encode())
    numbers = itertools.count(first) if count is None else range(first, first + count)
    for number in numbers:
        yield b"%b%012d%b" % (before, number, after)


def answer() -> bytes:
    """A complete chat answer of exactly `ANSWER_BYTES`."""
    message = {"role": "assistant", "content": "", "refusal": None}
    body: dict[str, Any] = {
        "id": "chatcmpl-bench0000000000000000000",
        "object": "chat.completion",
        "created": _CREATED,
        "model": "gpt-4o-mini",
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 900, "completion_tokens": 180, "total_tokens": 1080},
    }
    words = "The train at 9 has a dining car and takes three hours. " * 30
    message["content"] = words[: ANSWER_BYTES - len(_compact(body))]
    made = _compact(body).encode()
    assert len(made) == ANSWER_BYTES
    return made


def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
    """One event of a chat stream."""
    body = {
        "id": "chatcmpl-bench0000000000000000000",
        "object": "chat.completion.chunk",
        "created": _CREATED,
        "model": "gpt-4o-mini",
        "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}],
    }
    return f"data: {_compact(body)}\n\n".encode()


def stream_end() -> bytes:
    """The events that end a chat stream, its usage included."""
    usage = {"prompt_tokens": 900, "completion_tokens": 180, "total_tokens": 1080}
    last = {
        "id": "chatcmpl-bench0000000000000000000",
        "object": "chat.completion.chunk",
        "created": _CREATED,
        "model": "gpt-4o-mini",
        "choices": [],
        "usage": usage,
    }
    return chunk({}, "stop") + f"data: {_compact(last)}\n\ndata: [DONE]\n\n".encode()

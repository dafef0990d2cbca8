"""What the engine reads and writes: OpenAI chat completions, and a simple form of Messages."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from trivet.errors import RequestError
from trivet.prefix.engine.model import Generated, Message, Sampling

Body = dict[str, Any]
DEFAULT_TOKENS = 512
_ROLES = frozenset({"system", "developer", "user", "assistant"})
_CANNOT = ("tools", "functions", "logprobs", "audio", "prediction", "web_search_options")


@dataclass(frozen=True, slots=True)
class Order:
    """One request, read and checked."""

    messages: list[Message]
    sampling: Sampling
    stream: bool
    include_usage: bool = False


def read_chat(body: Body) -> Order:
    """Read a chat completions request. Raises `RequestError` 400 naming the field."""
    for name in _CANNOT:
        if body.get(name):
            raise RequestError(400, f"This engine does not do '{name}'.", field=name)
    if body.get("n") not in (None, 1):
        raise RequestError(400, "This engine gives one choice: 'n' is 1.", field="n")
    if (body.get("response_format") or {}).get("type", "text") != "text":
        raise RequestError(400, "This engine answers in text only.", field="response_format")
    options = body.get("stream_options") or {}
    limit = body.get("max_completion_tokens") or body.get("max_tokens")
    return Order(
        _messages(body.get("messages")),
        _sampling(body, limit, body.get("stop")),
        bool(body.get("stream")),
        bool(options.get("include_usage")),
    )


def read_messages(body: Body) -> Order:
    """Read an Anthropic Messages request. Raises `RequestError` 400 naming the field."""
    for name in ("tools", "thinking", "mcp_servers"):
        if body.get(name):
            raise RequestError(400, f"{name}: this engine does not do that", field=name)
    limit = _number(body, "max_tokens", None, 1, 1 << 20)
    if limit is None:
        raise RequestError(400, "max_tokens: Field required", field="max_tokens")
    messages = _messages(body.get("messages"))
    if body.get("system"):
        messages.insert(0, {"role": "system", "content": _text(body["system"])})
    sampling = _sampling(body, limit, body.get("stop_sequences"))
    return Order(messages, sampling, bool(body.get("stream")))


def _messages(given: Any) -> list[Message]:
    if not isinstance(given, list) or not given:
        raise RequestError(400, "'messages' holds at least one message.", field="messages")
    read: list[Message] = []
    for at, message in enumerate(given):
        role = message.get("role") if isinstance(message, Mapping) else None
        if role not in _ROLES:
            raise RequestError(400, f"'messages[{at}].role' is not known.", field="messages")
        name = "system" if role == "developer" else role
        read.append({"role": name, "content": _text(message.get("content"))})
    return read


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list) and all(
        isinstance(part, Mapping) and isinstance(part.get("text"), str) for part in content
    ):
        return "".join(part["text"] for part in content)
    raise RequestError(400, "This engine reads text only.", field="messages")


def _sampling(body: Body, limit: Any, stop: Any) -> Sampling:
    stops = [stop] if isinstance(stop, str) else stop or []
    if not isinstance(stops, list) or not all(isinstance(one, str) for one in stops):
        raise RequestError(400, "'stop' is a text or a list of texts.", field="stop")
    if limit is not None and (not isinstance(limit, int) or limit < 1):
        raise RequestError(400, "'max_tokens' is 1 at least.", field="max_tokens")
    seed = _number(body, "seed", None, -(2**63), 2**63 - 1)
    return Sampling(
        max_tokens=limit or DEFAULT_TOKENS,
        temperature=_number(body, "temperature", 1.0, 0, 2),
        top_p=_number(body, "top_p", 1.0, 0, 1),
        seed=None if seed is None else int(seed),
        stop=tuple(stops),
    )


def _number(body: Body, name: str, default: Any, low: float, high: float) -> Any:
    value = body.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise RequestError(400, f"'{name}' is a number from {low} to {high}.", field=name)
    return value


class ChatWriter:
    """Writes one answer as chat completions."""

    id_header = "x-request-id"

    def __init__(self, model: str, order: Order) -> None:
        self._head: Body = {
            "id": f"chatcmpl-{secrets.token_hex(12)}",
            "created": int(time.time()),
            "model": model,
        }
        self._order = order

    def start(self) -> bytes:
        """The events before the first text."""
        return self._chunk({"role": "assistant", "content": ""}, None)

    def piece(self, text: str) -> bytes:
        """The event of a piece of text."""
        return self._chunk({"content": text}, None)

    def end(self, done: Generated) -> bytes:
        """The events behind the last text."""
        tail = self._chunk({}, done.finish)
        if self._order.include_usage:
            last = {**self._chunk_head(), "choices": [], "usage": _openai_usage(done)}
            tail += b"data: " + orjson.dumps(last) + b"\n\n"
        return tail + b"data: [DONE]\n\n"

    def _chunk_head(self) -> Body:
        return {**self._head, "object": "chat.completion.chunk"}

    def _chunk(self, delta: Body, finish: str | None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        made = {**self._chunk_head(), "choices": [choice]}
        if self._order.include_usage:
            made["usage"] = None
        return b"data: " + orjson.dumps(made) + b"\n\n"

    def whole(self, text: str, done: Generated) -> bytes:
        """The answer as JSON."""
        message = {"role": "assistant", "content": text, "refusal": None}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": done.finish}
        head = {**self._head, "object": "chat.completion"}
        return orjson.dumps({**head, "choices": [choice], "usage": _openai_usage(done)})


def _openai_usage(done: Generated) -> Body:
    return {
        "prompt_tokens": done.prompt_tokens,
        "completion_tokens": done.output_tokens,
        "total_tokens": done.prompt_tokens + done.output_tokens,
    }


class MessagesWriter:
    """Writes one answer as an Anthropic message."""

    id_header = "request-id"

    def __init__(self, model: str, prompt_tokens: int) -> None:
        self._prompt = prompt_tokens
        self._head: Body = {
            "id": f"msg_{secrets.token_hex(12)}",
            "type": "message",
            "role": "assistant",
            "model": model,
        }

    def _message(self, content: list[Body], stop: str | None, tokens: int) -> Body:
        usage = {"input_tokens": self._prompt, "output_tokens": tokens}
        ended = {"stop_reason": stop, "stop_sequence": None, "usage": usage}
        return {**self._head, "content": content, **ended}

    def start(self) -> bytes:
        """The events before the first text."""
        opened = _event("message_start", {"message": self._message([], None, 1)})
        block = {"index": 0, "content_block": {"type": "text", "text": ""}}
        return opened + _event("content_block_start", block)

    def piece(self, text: str) -> bytes:
        """The event of a piece of text."""
        delta = {"type": "text_delta", "text": text}
        return _event("content_block_delta", {"index": 0, "delta": delta})

    def end(self, done: Generated) -> bytes:
        """The events behind the last text."""
        ended = {"stop_reason": _stop_reason(done), "stop_sequence": None}
        last = {"delta": ended, "usage": {"output_tokens": done.output_tokens}}
        return b"".join(
            (
                _event("content_block_stop", {"index": 0}),
                _event("message_delta", last),
                _event("message_stop", {}),
            )
        )

    def whole(self, text: str, done: Generated) -> bytes:
        """The answer as JSON."""
        content: list[Body] = [{"type": "text", "text": text}]
        return orjson.dumps(self._message(content, _stop_reason(done), done.output_tokens))


Writer = ChatWriter | MessagesWriter
Reader = Callable[[Body], Order]


def _stop_reason(done: Generated) -> str:
    return "max_tokens" if done.finish == "length" else "end_turn"


def _event(name: str, fields: Body) -> bytes:
    return f"event: {name}\ndata: ".encode() + orjson.dumps({"type": name, **fields}) + b"\n\n"


def error(messages: bool, failed: RequestError) -> bytes:
    """An error body in the caller's dialect."""
    if messages:
        kind = "overloaded_error" if failed.status >= 500 else "invalid_request_error"
        made: Body = {"type": "error", "error": {"type": kind, "message": failed.message}}
    else:
        kind = "server_error" if failed.status >= 500 else "invalid_request_error"
        named = {"message": failed.message, "type": kind}
        made = {"error": {**named, "param": failed.field, "code": failed.code}}
    return orjson.dumps(made)

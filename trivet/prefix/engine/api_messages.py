"""Anthropic Messages in text: https://platform.claude.com/docs/en/api/messages."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

import orjson

from trivet.errors import RequestError
from trivet.prefix.engine.answers import Choice
from trivet.prefix.engine.api_errors import anthropic_error
from trivet.prefix.engine.fields import Body, flag, limit, refuse_others, refused, section, stops
from trivet.prefix.engine.openai_fields import Order, params_of, schema_text
from trivet.prefix.engine.prompts import Message, Prompts, messages_of, text_of

_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "tools": ([],),
    "tool_choice": ({"type": "none"}, {"type": "auto"}),
    "thinking": ({"type": "disabled"},),
    "mcp_servers": ([],),
    "container": (),
    "context_management": (),
    "n": (1,),
    "stop": (),
}


def read_messages(body: Body, prompts: Prompts) -> Order:
    """Read a request. Raises `RequestError` 400 naming the field."""
    refuse_others(body, _NEUTRAL)
    most = limit(body, "max_tokens")
    if most is None:
        raise RequestError(400, "Field required", field="max_tokens")
    shown = {**body, "stop": list(stops(body, "stop_sequences")) or None}
    params = params_of(shown, most, None, _schema(body))
    messages, options = chat_of(body), section(body, "chat_template_kwargs")
    tokens = prompts.chat(messages, options, continue_final=is_begun(messages))
    prompt = prompts.fitting(tokens, "messages")
    stream = flag(body, "stream")
    return Order([prompt], params, stream=stream, schema_field="output_config.format")


def chat_of(body: Body) -> list[Message]:
    """The messages of a request, its system prompt before them."""
    messages = messages_of(body.get("messages"))
    if body.get("system"):
        messages.insert(0, {"role": "system", "content": text_of(body["system"], "system")})
    return messages


def is_begun(messages: list[Message]) -> bool:
    """Whether the caller has begun the answer itself: a last message of the assistant goes on."""
    return messages[-1]["role"] == "assistant"


def _schema(body: Body) -> str | None:
    form = section(section(body, "output_config"), "format")
    if not form:
        return None
    if form.get("type") != "json_schema":
        raise refused("output_config.format.type", "is json_schema")
    return schema_text(form.get("schema"), "output_config.format")


class MessagesWriter:
    """Writes one answer as a message.

    Input tokens are told in three parts that sum up to the prompt: read from the cache, written to
    it (full blocks of `block_size`), and the rest.
    """

    id_header = "request-id"

    def __init__(self, model: str, block_size: int) -> None:
        self._block_size = block_size
        self._head: dict[str, Any] = {
            "id": f"msg_{secrets.token_hex(12)}",
            "type": "message",
            "role": "assistant",
            "model": model,
        }

    def start(self, choices: Sequence[Choice]) -> bytes:
        """See `answers.Writer`."""
        opened = _event("message_start", {"message": self._message(choices[0], [], None)})
        block = {"index": 0, "content_block": {"type": "text", "text": ""}}
        return opened + _event("content_block_start", block)

    def piece(self, choice: Choice, output: Any) -> bytes:
        """See `answers.Writer`."""
        if not output.text:
            return b""
        delta = {"type": "text_delta", "text": output.text}
        return _event("content_block_delta", {"index": 0, "delta": delta})

    def end(self, choices: Sequence[Choice]) -> bytes:
        """See `answers.Writer`."""
        done = choices[0]
        last = {"delta": _ended(done), "usage": self._usage(done)}
        return b"".join(
            (
                _event("content_block_stop", {"index": 0}),
                _event("message_delta", last),
                _event("message_stop", {}),
            )
        )

    def broken(self, failed: RequestError) -> bytes:
        """See `answers.Writer`."""
        return b"event: error\ndata: " + orjson.dumps(anthropic_error(failed)) + b"\n\n"

    def whole(self, choices: Sequence[Choice]) -> bytes:
        """See `answers.Writer`."""
        done = choices[0]
        return orjson.dumps(self._message(done, [{"type": "text", "text": done.text}], done))

    def _message(
        self, choice: Choice, content: list[dict[str, Any]], done: Choice | None
    ) -> dict[str, Any]:
        ended = _ended(done) if done else {"stop_reason": None, "stop_sequence": None}
        return {**self._head, "content": content, **ended, "usage": self._usage(choice)}

    def _usage(self, choice: Choice) -> dict[str, int]:
        prompt = choice.generation.prompt_tokens
        cached = choice.generation.cached_tokens
        written = max(0, prompt // self._block_size * self._block_size - cached)
        return {
            "input_tokens": prompt - cached - written,
            "cache_creation_input_tokens": written,
            "cache_read_input_tokens": cached,
            "output_tokens": choice.tokens,
        }


def _ended(choice: Choice) -> dict[str, str | None]:
    if choice.finish == "length":
        return {"stop_reason": "max_tokens", "stop_sequence": None}
    if choice.stopped_by is not None:
        return {"stop_reason": "stop_sequence", "stop_sequence": choice.stopped_by}
    return {"stop_reason": "end_turn", "stop_sequence": None}


def _event(name: str, fields: dict[str, Any]) -> bytes:
    return f"event: {name}\ndata: ".encode() + orjson.dumps({"type": name, **fields}) + b"\n\n"

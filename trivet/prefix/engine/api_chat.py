"""OpenAI chat completions: https://platform.openai.com/docs/api-reference/chat."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from typing import Any

import orjson

from trivet.errors import RequestError
from trivet.prefix.engine.answers import Choice
from trivet.prefix.engine.api_errors import openai_error
from trivet.prefix.engine.fields import Body, flag, integer, limit, refuse_others, section
from trivet.prefix.engine.openai_fields import (
    UNLIMITED,
    Order,
    choices_of,
    opening_of,
    params_of,
    schema_of,
    usage_wanted,
)
from trivet.prefix.engine.prompts import Prompts, messages_of

MOST_LOGPROBS = 20
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "audio": (),
    "modalities": (["text"],),
    "prediction": (),
    "web_search_options": (),
    "chat_template": (),
    "documents": ([],),
    "echo": (False,),
}

Spell = Callable[[int], str]
"""The text of one token."""


def read_chat(body: Body, prompts: Prompts) -> Order:
    """Read a request. Raises `RequestError` 400 naming the field."""
    refuse_others(body, _NEUTRAL)
    logprobs = None
    if flag(body, "logprobs"):
        logprobs = integer(body, "top_logprobs", 0, MOST_LOGPROBS) or 0
    elif body.get("top_logprobs"):
        raise RequestError(400, "'top_logprobs' needs 'logprobs': true.", field="top_logprobs")
    most = limit(body, "max_completion_tokens", "max_tokens") or UNLIMITED
    params = params_of(body, most, logprobs, schema_of(body))
    messages, options = messages_of(body.get("messages")), section(body, "chat_template_kwargs")
    tokens = prompts.chat(messages, options, **opening_of(body))
    prompt = prompts.fitting(tokens, "messages")
    return Order([prompt], params, choices_of(body), flag(body, "stream"), usage_wanted(body))


def usage_of(choices: Sequence[Choice]) -> dict[str, Any]:
    """OpenAI's usage: each prompt counts once, and its cached tokens are the first choice's."""
    firsts = {choice.prompt: choice for choice in reversed(choices)}.values()
    prompt = sum(choice.generation.prompt_tokens for choice in firsts)
    cached = sum(choice.generation.cached_tokens for choice in firsts)
    answer = sum(choice.tokens for choice in choices)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": answer,
        "total_tokens": prompt + answer,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


def event(value: Any) -> bytes:
    """One event of a stream without names."""
    return b"data: " + orjson.dumps(value) + b"\n\n"


class ChatWriter:
    """Writes one answer as a chat completion."""

    id_header = "x-request-id"

    def __init__(self, model: str, order: Order, spell: Spell) -> None:
        self._head: dict[str, Any] = {
            "id": f"chatcmpl-{secrets.token_hex(12)}",
            "created": int(time.time()),
            "model": model,
        }
        self._order = order
        self._spell = spell

    def start(self, choices: Sequence[Choice]) -> bytes:
        """See `answers.Writer`."""
        first = {"role": "assistant", "content": ""}
        return b"".join(self._chunk(choice, first, None) for choice in choices)

    def piece(self, choice: Choice, output: Any) -> bytes:
        """See `answers.Writer`."""
        made = b""
        if output.text or output.logprobs:
            told = self._logprobs(output.logprobs or ())
            made = self._chunk(choice, {"content": output.text}, told)
        if choice.finish is not None:
            made += self._chunk(choice, {}, None, choice.finish)
        return made

    def end(self, choices: Sequence[Choice]) -> bytes:
        """See `answers.Writer`."""
        last = b""
        if self._order.include_usage:
            last = event({**self._chunk_head(), "choices": [], "usage": usage_of(choices)})
        return last + b"data: [DONE]\n\n"

    def broken(self, failed: RequestError) -> bytes:
        """See `answers.Writer`."""
        return event(openai_error(failed))

    def whole(self, choices: Sequence[Choice]) -> bytes:
        """See `answers.Writer`."""
        told = [
            {
                "index": choice.index,
                "message": {"role": "assistant", "content": choice.text, "refusal": None},
                "logprobs": self._logprobs(choice.logprobs),
                "finish_reason": choice.finish,
            }
            for choice in choices
        ]
        head = {**self._head, "object": "chat.completion"}
        return orjson.dumps({**head, "choices": told, "usage": usage_of(choices)})

    def _chunk_head(self) -> dict[str, Any]:
        return {**self._head, "object": "chat.completion.chunk"}

    def _chunk(
        self,
        choice: Choice,
        delta: dict[str, str],
        logprobs: dict[str, Any] | None,
        finish: str | None = None,
    ) -> bytes:
        told = {"index": choice.index, "delta": delta, "logprobs": logprobs}
        made = {**self._chunk_head(), "choices": [{**told, "finish_reason": finish}]}
        if self._order.include_usage:
            made["usage"] = None
        return event(made)

    def _logprobs(self, drawn: Sequence[Any]) -> dict[str, Any] | None:
        if self._order.params.logprobs is None:
            return None
        content = [
            {
                **self._token(one.token, one.logprob),
                "top_logprobs": [self._token(token, logprob) for token, logprob in one.top],
            }
            for one in drawn
        ]
        return {"content": content, "refusal": None}

    def _token(self, token: int, logprob: float) -> dict[str, Any]:
        text = self._spell(token)
        return {"token": text, "logprob": floor(logprob), "bytes": list(text.encode())}


def floor(logprob: float) -> float:
    """A log probability that JSON can hold: minus infinity is OpenAI's -9999."""
    return max(logprob, -9999.0)

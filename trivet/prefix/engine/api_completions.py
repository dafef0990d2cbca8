"""OpenAI text completions: https://platform.openai.com/docs/api-reference/completions."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from typing import Any

import orjson

from trivet.errors import RequestError
from trivet.prefix.engine.answers import Choice
from trivet.prefix.engine.api_chat import Spell, event, floor, usage_of
from trivet.prefix.engine.api_errors import openai_error
from trivet.prefix.engine.fields import (
    MOST_CHOICES,
    Body,
    flag,
    integer,
    limit,
    refuse_others,
    refused,
)
from trivet.prefix.engine.openai_fields import (
    Order,
    choices_of,
    params_of,
    schema_of,
    usage_wanted,
)
from trivet.prefix.engine.prompts import Prompts

_DEFAULT_TOKENS = 16
"""OpenAI's and vLLM's default for this API."""
_MOST_LOGPROBS = 20
_NEUTRAL: dict[str, tuple[Any, ...]] = {"suffix": ("",), "best_of": (1,), "prompt_embeds": ()}


def read_completions(body: Body, prompts: Prompts) -> Order:
    """Read a request. Raises `RequestError` 400 naming the field."""
    choices = choices_of(body)
    refuse_others(body, {**_NEUTRAL, "best_of": (1, choices)})
    logprobs = integer(body, "logprobs", 0, _MOST_LOGPROBS)
    echo = flag(body, "echo")
    if echo and logprobs is not None:
        raise refused("echo", "does not go with 'logprobs': the prompt's are not computed")
    most = limit(body, "max_tokens") or _DEFAULT_TOKENS
    params = params_of(body, most, logprobs, schema_of(body))
    texts = _prompts(body.get("prompt"), flag(body, "add_special_tokens", True), prompts)
    if len(texts) * choices > MOST_CHOICES:
        raise refused("n", f"times the number of prompts is {MOST_CHOICES} at most")
    told = tuple(text for text, _ in texts) if echo else ()
    tokens = [prompts.fitting(tokens, "prompt") for _, tokens in texts]
    return Order(tokens, params, choices, flag(body, "stream"), usage_wanted(body), told, "prompt")


def _prompts(given: Any, special: bool, prompts: Prompts) -> list[tuple[str, list[int]]]:
    """Each prompt's text and tokens: of a text, of token ids, or of a list of either."""
    if isinstance(given, str) or (isinstance(given, list) and given and _is_ids(given)):
        given = [given]
    if not isinstance(given, list) or not given:
        raise refused("prompt", "is a text, a list of token ids, or a list of either")
    if len(given) > MOST_CHOICES:
        raise refused("n", f"times the number of prompts is {MOST_CHOICES} at most")
    read: list[tuple[str, list[int]]] = []
    for one in given:
        if isinstance(one, str):
            read.append((one, prompts.text(one, special=special)))
        elif isinstance(one, list):
            tokens = prompts.ids(one)
            read.append((prompts.decode(tokens), tokens))
        else:
            raise refused("prompt", "is a text, a list of token ids, or a list of either")
    return read


def _is_ids(given: list[Any]) -> bool:
    return not isinstance(given[0], str | list)


class CompletionsWriter:
    """Writes one answer as a text completion."""

    id_header = "x-request-id"

    def __init__(self, model: str, order: Order, spell: Spell) -> None:
        self._head: dict[str, Any] = {
            "id": f"cmpl-{secrets.token_hex(12)}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": model,
        }
        self._order = order
        self._spell = spell
        self._written: dict[int, int] = {}
        """Characters of each choice's text so far: where the next token's text begins."""

    def start(self, choices: Sequence[Choice]) -> bytes:
        """See `answers.Writer`: this API has no opening event but the echo."""
        if not self._order.echo:
            return b""
        return b"".join(self._chunk(choice, self._order.echo[choice.prompt]) for choice in choices)

    def piece(self, choice: Choice, output: Any) -> bytes:
        """See `answers.Writer`."""
        if not (output.text or output.logprobs or choice.finish):
            return b""
        told = self._logprobs(choice.index, output.logprobs or ())
        return self._chunk(choice, output.text, told, choice.finish)

    def end(self, choices: Sequence[Choice]) -> bytes:
        """See `answers.Writer`."""
        last = b""
        if self._order.include_usage:
            last = event({**self._head, "choices": [], "usage": usage_of(choices)})
        return last + b"data: [DONE]\n\n"

    def broken(self, failed: RequestError) -> bytes:
        """See `answers.Writer`."""
        return event(openai_error(failed))

    def whole(self, choices: Sequence[Choice]) -> bytes:
        """See `answers.Writer`."""
        told = [
            self._told(
                choice,
                (self._order.echo[choice.prompt] if self._order.echo else "") + choice.text,
                self._logprobs(choice.index, choice.logprobs),
                choice.finish,
            )
            for choice in choices
        ]
        return orjson.dumps({**self._head, "choices": told, "usage": usage_of(choices)})

    def _chunk(
        self,
        choice: Choice,
        text: str,
        logprobs: dict[str, Any] | None = None,
        finish: str | None = None,
    ) -> bytes:
        made = {**self._head, "choices": [self._told(choice, text, logprobs, finish)]}
        if self._order.include_usage:
            made["usage"] = None
        return event(made)

    def _told(
        self, choice: Choice, text: str, logprobs: dict[str, Any] | None, finish: str | None
    ) -> dict[str, Any]:
        told = {"index": choice.index, "text": text, "logprobs": logprobs}
        return {**told, "finish_reason": finish}

    def _logprobs(self, index: int, drawn: Sequence[Any]) -> dict[str, Any] | None:
        if self._order.params.logprobs is None:
            return None
        tokens, offsets = [], []
        at = self._written.get(index, 0)
        for one in drawn:
            tokens.append(self._spell(one.token))
            offsets.append(at)
            at += len(tokens[-1])
        self._written[index] = at
        return {
            "tokens": tokens,
            "token_logprobs": [floor(one.logprob) for one in drawn],
            "top_logprobs": [
                {self._spell(token): floor(logprob) for token, logprob in one.top} for one in drawn
            ],
            "text_offset": offsets,
        }

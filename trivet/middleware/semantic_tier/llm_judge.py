"""A model behind one of the upstreams as the judge of two answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import orjson

from trivet.errors import UpstreamError
from trivet.messages import Api, Usage
from trivet.middleware.arrival.headers import RawHeaders
from trivet.middleware.arrival.routing import Target
from trivet.middleware.dialects.texts import answer_text
from trivet.middleware.prefix_tier.usage_tap import UsageTap
from trivet.middleware.upstream import Sender
from trivet.semantic.judge_prompt import judge_messages, read_verdict

_PATH = "/v1/chat/completions"
_MOST = 1 << 20
"""Bytes of an answer that holds one word."""
_PATIENCE_S = 120.0


Told = Callable[[Usage | None, str], None]


class LlmJudge:
    """Asks `model` at `target` with temperature 0, and with the upstream's own credential only."""

    name = "llm"

    def __init__(
        self,
        client: Sender,
        target: Target,
        model: str,
        prompt: str | None = None,
        told: Told = lambda usage, model: None,
    ) -> None:
        """`told` is told what each answer cost, where it says so, and the model that gave it."""
        self._told = told
        self._client = client
        self._target = target
        self._model = model
        self._prompt = prompt

    async def judge(self, question: str, stored: str, fresh: str) -> bool | None:
        """See `Judge.judge`."""
        messages = judge_messages(self._prompt, question, stored, fresh)
        if messages is None:
            return None
        asked = {"model": self._model, "temperature": 0, "messages": messages}
        try:
            async with asyncio.timeout(_PATIENCE_S):
                body = await self._ask(orjson.dumps(asked))
        except (UpstreamError, TimeoutError):
            return None
        if body is not None:
            tap = UsageTap("application/json")
            tap.take(body)
            self._told(*tap.told())
        answer = None if body is None else answer_text(Api.CHAT, body)
        return None if answer is None else read_verdict(answer)

    async def _ask(self, body: bytes) -> bytes | None:
        response = await self._client.send(
            self._target.config, "POST", _PATH, self._headers(), body
        )
        try:
            parts, size = [], 0
            async for chunk in response.chunks():
                parts.append(chunk)
                size += len(chunk)
                if size > _MOST:
                    return None
            return b"".join(parts) if response.status == 200 else None
        finally:
            response.close()

    def _headers(self) -> RawHeaders:
        headers = [(b"content-type", b"application/json"), (b"accept-encoding", b"identity")]
        if self._target.credential is not None:
            headers.append((b"authorization", b"Bearer " + self._target.credential))
        return headers

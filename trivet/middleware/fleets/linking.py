"""Learns which blocks of tokens a prompt has, from the server's own tokenizer, after it was sent.

Only for servers that publish KV events, and beside the request path: a prompt that is not linked
yet is routed by what was sent where.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import orjson

from trivet.middleware.fleets.replicas import ReplicaSet
from trivet.middleware.fleets.way import Way
from trivet.middleware.http_client.client import HttpClient, Limits
from trivet.middleware.http_client.errors import HttpError
from trivet.middleware.http_client.request import root_of, write_request
from trivet.prefix.routing.kv_index import nodes_of

_AT_ONCE: Final = 4
_ASK: Final = Limits(connect=2.0, silence=10.0)
_LARGEST: Final = 16 << 20
_FIELDS: Final = {
    "/chat/completions": ("messages", "tools", "chat_template_kwargs"),
    "/completions": ("prompt",),
}
"""What shapes the tokens, as vLLM's `/tokenize` takes it."""


class Linking:
    """Bounded: where several prompts wait already, the next ones are left out."""

    def __init__(self, client: HttpClient) -> None:
        self._client = client
        self._tasks: set[asyncio.Task[None]] = set()

    def learn(self, replicas: ReplicaSet, way: Way, path: str, body: bytes) -> None:
        """Link the prompt of a call that was sent."""
        fields = next((given for end, given in _FIELDS.items() if path.endswith(end)), None)
        size = replicas.index.size
        if not fields or not size or way.steps in replicas.links or len(self._tasks) >= _AT_ONCE:
            return
        task = asyncio.create_task(self._link(replicas, way, fields, body), name="trivet-linking")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _link(
        self, replicas: ReplicaSet, way: Way, fields: tuple[str, ...], body: bytes
    ) -> None:
        assert way.replica is not None
        try:
            whole: dict[str, Any] = orjson.loads(body)
        except orjson.JSONDecodeError:
            return
        asked = {name: whole[name] for name in ("model", *fields) if name in whole}
        tokens = await self._tokens(replicas.replicas[way.replica].root, asked)
        size, salt = replicas.index.size, whole.get("cache_salt")
        if tokens:
            nodes = nodes_of(tokens, size, salt if isinstance(salt, str) else "")
            replicas.links.learn(way.steps, nodes, len(tokens) / size)

    async def _tokens(self, base: str, asked: dict[str, Any]) -> list[int]:
        """Empty where the server does not tell."""
        fields = [(b"content-type", b"application/json")]
        try:
            root = root_of(base)
            request = write_request(root, "POST", "/tokenize", fields, orjson.dumps(asked))
            response = await self._client.send(root.origin, request, _ASK)
        except HttpError:
            return []
        parts, size = [], 0
        try:
            while size <= _LARGEST and (chunk := await response.read_some()):
                parts.append(chunk)
                size += len(chunk)
            told = orjson.loads(b"".join(parts))
        except (HttpError, orjson.JSONDecodeError):
            return []
        finally:
            response.close()
        found = told.get("tokens") if isinstance(told, dict) else None
        right = isinstance(found, list) and all(type(one) is int and one >= 0 for one in found)
        return found if isinstance(found, list) and right else []

    async def close(self) -> None:
        """End what is under way."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

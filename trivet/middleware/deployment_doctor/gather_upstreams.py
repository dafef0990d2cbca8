"""Facts about upstreams: each dialect is sent an empty request, which its API refuses."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from email.utils import parsedate_to_datetime
from typing import Any

import orjson

from trivet.errors import UpstreamError
from trivet.middleware.deployment_doctor.facts import UpstreamFacts
from trivet.middleware.fleets.replicas import replicas_of
from trivet.middleware.running.config import DialectFamily, UpstreamConfig
from trivet.middleware.upstream import UpstreamClient
from trivet.prefix.backends.registry import backend_of

_WAIT_S = 10.0
_LARGEST = 64 << 10
_PATHS: dict[DialectFamily, str] = {"openai": "/v1/chat/completions", "anthropic": "/v1/messages"}
_ANTHROPIC_VERSION = (b"anthropic-version", b"2023-06-01")
_REFUSED = frozenset({400, 401, 402, 403, 422, 429})
"""What an API says to a request that lacks everything; 404 and 405 are of a path that is not."""
_NATIVE = frozenset({"gemini", "bedrock"})


async def gather_upstreams(
    upstreams: Sequence[UpstreamConfig], env: Mapping[str, str]
) -> tuple[UpstreamFacts, ...]:
    """How each server of each upstream is; they are asked side by side."""
    client = UpstreamClient()
    try:
        asked = [
            _server(client, upstream, one.root, env)
            for upstream in upstreams
            for one in replicas_of(upstream)
        ]
        return tuple(await asyncio.gather(*asked))
    finally:
        await client.close()


async def _server(
    client: UpstreamClient, upstream: UpstreamConfig, root: str, env: Mapping[str, str]
) -> UpstreamFacts:
    key = env.get(upstream.credential_env or "", "").strip()
    known: dict[str, Any] = {
        "name": upstream.name,
        "url": root,
        "dialects": upstream.dialects,
        "dialects_named": "dialects" in upstream.model_fields_set,
        "native": backend_of(upstream.cache, upstream.base_url).kind in _NATIVE,
        "key_env": upstream.credential_env,
        "key_set": bool(key),
    }
    config = upstream.model_copy(update={"base_url": root, "read_timeout": _WAIT_S})
    statuses: dict[DialectFamily, int] = {}
    spoken: set[DialectFamily] = set()
    ahead: float | None = None
    for family in upstream.dialects:
        try:
            status, headers, body = await _ask(client, config, family, key)
        except UpstreamError as error:
            return UpstreamFacts(**known, trouble=error.message)
        statuses[family] = status
        if speaks(family, status, body):
            spoken.add(family)
        ahead = _ahead(headers, time.time()) if ahead is None else ahead
    return UpstreamFacts(**known, statuses=statuses, spoken=frozenset(spoken), ahead_s=ahead)


async def _ask(
    client: UpstreamClient, config: UpstreamConfig, family: DialectFamily, key: str
) -> tuple[int, Mapping[bytes, bytes], bytes]:
    headers = [(b"content-type", b"application/json"), (b"accept", b"application/json")]
    if family == "anthropic":
        headers.append(_ANTHROPIC_VERSION)
    if key and key.isascii() and key.isprintable():
        given = key.encode()
        name = b"x-api-key" if family == "anthropic" else b"authorization"
        headers.append((name, given if family == "anthropic" else b"Bearer " + given))
    answer = await client.send(config, "POST", _PATHS[family], headers, b"{}")
    try:
        body = b""
        async for chunk in answer.chunks():
            body += chunk
            if len(body) > _LARGEST:
                break
        return answer.status, {name.lower(): value for name, value in answer.headers}, body
    finally:
        answer.close()


def speaks(family: DialectFamily, status: int, body: bytes) -> bool:
    """Whether that is how the dialect refuses."""
    try:
        said = orjson.loads(body)
    except orjson.JSONDecodeError:
        return False
    if status not in _REFUSED or not isinstance(said, dict):
        return False
    # Servers of the OpenAI family have errors of several shapes, none of which is Anthropic's.
    return (said.get("type") == "error") == (family == "anthropic")


def _ahead(headers: Mapping[bytes, bytes], now: float) -> float | None:
    try:
        told = parsedate_to_datetime(headers.get(b"date", b"").decode("ascii"))
    except (ValueError, UnicodeDecodeError):
        return None
    # A Date is cut to the second, so it is half a second behind on the average.
    return told.timestamp() + 0.5 - now

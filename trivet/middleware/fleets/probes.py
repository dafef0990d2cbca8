"""Tries out at start whether the servers of one's own keep tenants' prefixes apart.

Three short completions for each server: a prompt, the same beginning again as the same tenant, and
once more as another; between them, on slots, others that make the server move what it holds. What
is sent is what the tier's own backend prepares. Until a server with slots has passed, tenants keep
nothing there; each tenant's own salt is sent all along. The prefix tier reads `unverified` and
`unsafe`.

Several processes may try out one server at once, and then take each other's slots: a probe that
somebody may have disturbed is made again, after pauses that are not the same for all.
"""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import orjson

from trivet.errors import UpstreamError
from trivet.messages import Api, Usage
from trivet.middleware.admin.control import Component
from trivet.middleware.arrival.headers import RawHeaders
from trivet.middleware.arrival.routing import Routing
from trivet.middleware.fleets.replicas import replicas_of
from trivet.middleware.prefix_tier.signed_tenant import NAME
from trivet.middleware.running.config import UpstreamConfig
from trivet.middleware.upstream import UpstreamClient
from trivet.prefix.backends.base import Ask, PrefixBackend
from trivet.prefix.backends.registry import backend_of
from trivet.prefix.backends.usage import usage_of
from trivet.prefix.prompts.outline import outline_of
from trivet.prefix.routing.isolation import (
    SIZES,
    SLOT_SIZES,
    Counted,
    Seen,
    Verdict,
    counted,
    hits_between,
    kept,
    prompt,
    verdict,
)
from trivet.telemetry import Observer, PrefixProbed

_JSON: Final = (b"content-type", b"application/json")
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 60.0
_TRIES: Final = 6
"""Of one server, while others' requests may have come between."""
_UNTRIED: Final = "it was not tried out yet whether it keeps tenants apart"
_PATH: Final = "/v1/completions"


class Probes:
    """The probes of one process. `unverified` and `unsafe` name upstreams, with why."""

    def __init__(
        self,
        client: UpstreamClient,
        upstreams: Sequence[UpstreamConfig],
        routing: Routing,
        observer: Observer,
        jitter: Callable[[], float] = lambda: random.SystemRandom().uniform(0.25, 1.75),
    ) -> None:
        """`jitter` is what each pause is multiplied by."""
        self._client = client
        self._routing = routing
        self._observer = observer
        self._jitter = jitter
        self._found: dict[str, dict[str, Verdict]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._tried = [one for one in upstreams if _backend(one).isolates in _OWN]
        self.unsafe: dict[str, str] = {}
        self.unverified = {
            one.name: _UNTRIED for one in self._tried if _backend(one).isolates != "tenant"
        }

    def start(self) -> None:
        """Begin. A server that does not answer yet is tried again."""
        for upstream in self._tried:
            task = asyncio.create_task(self._try(upstream), name=f"trivet-probe-{upstream.name}")
            self._tasks.append(task)

    async def close(self) -> None:
        """End what is under way."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def components(self) -> tuple[Component, ...]:
        """What was found, by upstream. None of it keeps the proxy from its work."""
        return tuple(self._component(one.name) for one in self._tried)

    def doubt(self, name: str) -> str:
        """What speaks against tenants being apart at an upstream of that name: `leaks`,
        `unverified` or `loading`, and why; empty for nothing, and where none is tried out."""
        if all(one.name != name for one in self._tried):
            return ""
        state, detail = self._state(name)
        return "" if state == "isolated" else f"{state}: {detail}" if detail else state

    def _component(self, name: str) -> Component:
        return Component(f"prefix:{name}", True, *self._state(name))

    def _state(self, name: str) -> tuple[str, str]:
        detail = self.unsafe.get(name) or self.unverified.get(name, "")
        state = "leaks" if name in self.unsafe else "unverified" if detail else "isolated"
        if not detail and name not in self._found:
            state = "loading"
        return state, detail

    async def _try(self, upstream: UpstreamConfig) -> None:
        servers = {one.label: one.root for one in replicas_of(upstream)}
        found = self._found.setdefault(upstream.name, {})
        told: dict[str, Verdict] = {}
        pause, tries = _FIRST_PAUSE_S, 0
        while servers:
            tries, began = tries + 1, time.monotonic()
            for label, root in list(servers.items()):
                result = found[label] = await self._server(upstream, root)
                again = result.disturbed and tries < _TRIES
                if not again and told.get(label) != result:
                    told[label] = result
                    state = "unverified" if result.state == "failed" else result.state
                    self._observer(PrefixProbed(upstream.name, label, state, result.detail))
                if not again and result.state != "failed":
                    del servers[label]
            self._judge(upstream, found, len(servers))
            if servers:
                # Probes that last longer than their pauses would go on meeting.
                took = time.monotonic() - began
                await asyncio.sleep(max(pause, took) * self._jitter())
                pause = min(2 * pause, _LONGEST_PAUSE_S)

    def _judge(self, upstream: UpstreamConfig, found: dict[str, Verdict], left: int) -> None:
        """An upstream is what its worst server is."""
        name = upstream.name
        leaks = [one.detail for one in found.values() if one.state == "leaks"]
        others = [one.detail for one in found.values() if one.state in ("unverified", "failed")]
        if leaks:
            self.unsafe[name] = leaks[0]
        if not (leaks or others or left):
            self.unverified.pop(name, None)
        elif name in self.unverified:
            self.unverified[name] = (leaks + others)[0]

    async def _server(self, upstream: UpstreamConfig, root: str) -> Verdict:
        """What one server does. It may be asked by others meanwhile."""
        probe = _Probe(self._client, self._routing, upstream, root)
        try:
            return await probe.run()
        except UpstreamError as error:
            return Verdict("failed", str(error))


_OWN: Final = ("salt", "slot", "tenant")


def _backend(upstream: UpstreamConfig) -> PrefixBackend:
    return backend_of(upstream.cache, upstream.base_url, upstream.engine_secret_env)


class _Probe:
    """One server, asked three times."""

    def __init__(
        self, client: UpstreamClient, routing: Routing, upstream: UpstreamConfig, root: str
    ) -> None:
        self._client = client
        self._signer = routing.signer
        self._upstream = upstream
        self._root = root
        self._backend = _backend(upstream)
        target = routing.named(upstream.name)
        self._credential = None if target is None else target.credential
        self._salts = (os.urandom(32).hex(), os.urandom(32).hex())
        self._between = False
        """Others' requests were seen to come between two of ours."""

    async def run(self) -> Verdict:
        """Raises `UpstreamError`."""
        model = await self._model()
        if not model:
            return Verdict("failed", "it does not name its models at /v1/models")
        found = Verdict("failed", "it refuses short completions")
        for size in SLOT_SIZES if self._backend.isolates == "slot" else SIZES:
            seen = await self._seen(model, size)
            if isinstance(seen, Verdict):
                found = seen if found.state == "failed" else found
                continue
            found = verdict(self._backend.kind, seen, between=self._between)
            if found.state != "unverified" or seen.same is None:
                break
        return found

    async def _seen(self, model: str, size: int) -> Seen | Verdict:
        text, other = (prompt(size, secrets.token_bytes(size)) for _ in range(2))
        told: list[int | None] = []
        for who, ending in ((0, "one"), (0, "two"), (1, "three")):
            if who and not kept(told[-1]):
                break  # Whatever the other gets now says nothing.
            if who and self._backend.isolates == "slot":
                # A slot's prompt goes to the host's cache when another takes its place, and comes
                # from there to a slot that has held something.
                await self._ask(model, other, 0)
                await self._ask(model, other[::-1], who)
            before = await self._counted()
            status, answer = await self._ask(model, f"{text} {ending}", who)
            if status != 200:
                return Verdict("failed", f"a completion got status {status}")
            details = _cached(answer)
            usage = usage_of(answer)
            if details is None and usage is not None:
                after = await self._counted()
                details = hits_between(before, after, usage.input_tokens)
                self._between |= details is None and before is not None and after is not None
            told.append(details if details is not None else _zero(usage, told))
        return Seen(*told, *[None] * (3 - len(told)))

    async def _ask(self, model: str, text: str, who: int) -> tuple[int, dict[str, Any]]:
        body = {"model": model, "prompt": text, "max_tokens": 1, "temperature": 0}
        raw = orjson.dumps(body)
        slots = self._upstream.slots or 1
        slot = who if who < slots else None
        outline = outline_of(Api.COMPLETIONS, body)
        asked = Ask(Api.COMPLETIONS, model, raw, outline, self._salts[who], slot, slots - 1)
        prepared = self._backend.prepare(asked)
        headers = [*self._headers(who), *prepared.headers]
        return await self._json("POST", _PATH, headers, prepared.body)

    async def _model(self) -> str:
        status, told = await self._json("GET", "/v1/models", self._headers(0), b"")
        data = told.get("data")
        if status == 200 and isinstance(data, list) and data and isinstance(data[0], dict):
            return str(data[0].get("id", ""))
        return next((name for name in self._upstream.models if "*" not in name), "")

    async def _counted(self) -> Counted | None:
        if self._backend.kind not in ("vllm", "sglang"):
            return None
        _, text = await self._text("GET", "/metrics", [], b"")
        return counted(self._backend.kind, text.decode("utf-8", "replace"))

    def _headers(self, who: int) -> RawHeaders:
        headers: RawHeaders = [_JSON]
        if self._credential is not None:
            headers.append((b"authorization", b"Bearer " + self._credential))
        if self._upstream.engine_secret_env is not None:
            headers.append((NAME, b"(probe %d)" % who))
        return headers

    async def _json(
        self, method: str, target: str, headers: RawHeaders, body: bytes
    ) -> tuple[int, dict[str, Any]]:
        status, raw = await self._text(method, target, headers, body)
        try:
            told = orjson.loads(raw)
        except orjson.JSONDecodeError:
            told = None
        return status, told if isinstance(told, dict) else {}

    async def _text(
        self, method: str, target: str, headers: RawHeaders, body: bytes
    ) -> tuple[int, bytes]:
        signed = self._signer.signed(self._upstream, headers, body)
        response = await self._client.send_to(
            self._upstream, self._root, method, target, signed, body
        )
        try:
            return response.status, await response.read()
        finally:
            response.close()


def _cached(answer: dict[str, Any]) -> int | None:
    """Cached tokens, where the answer tells them: an absent field is not a zero."""
    usage, timings = answer.get("usage"), answer.get("timings")
    if isinstance(timings, dict) and isinstance(timings.get("cache_n"), int):
        return int(timings["cache_n"])
    details = usage.get("prompt_tokens_details") if isinstance(usage, dict) else None
    found = details.get("cached_tokens") if isinstance(details, dict) else None
    return found if isinstance(found, int) else None


def _zero(usage: Usage | None, told: Sequence[int | None]) -> int | None:
    """vLLM leaves the details out where nothing was cached: a zero, if it told before."""
    return 0 if usage is not None and any(told) else None

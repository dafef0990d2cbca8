"""The prefix tier: what a model call is sent as, so that the upstream's own cache serves it.

Markers and salts are transport: they are made after the key, and they never change an answer. To
upstreams of which nothing is known, requests go as the same bytes object, past all of this. A
backend that fails costs caching, not the call; but nothing goes unsalted to a server that several
tenants share.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from trivet.errors import UpstreamError
from trivet.messages import Api
from trivet.middleware.arrival.headers import RawHeaders
from trivet.middleware.call import Call
from trivet.middleware.fleets.way import Way
from trivet.middleware.prefix_tier.asks import Asked, outline_for, readable_native, signed_by_aws
from trivet.middleware.prefix_tier.fan_out import FanOut
from trivet.middleware.prefix_tier.keep_warm import KeepWarm
from trivet.middleware.prefix_tier.pinging import warm_of
from trivet.middleware.prefix_tier.placing import NOWHERE, Placed, Placing
from trivet.middleware.prefix_tier.slots import Slot, SlotBook
from trivet.middleware.prefix_tier.warmth import NotWarm
from trivet.middleware.running.config import UpstreamConfig
from trivet.middleware.upstream import UpstreamClient, UpstreamResponse
from trivet.policies.prefix_model import PrefixPolicy
from trivet.policies.settings import may_use_upstream
from trivet.policies.tenants import PolicySet
from trivet.prefix.backends.base import SERVER_HEADERS, Ask, PrefixBackend, Prepared
from trivet.prefix.backends.last_resort import caching_off
from trivet.prefix.backends.registry import backend_of
from trivet.prefix.pool.hashing import tenant_salt
from trivet.prefix.prompts.extent import MOST_PARTS, brief
from trivet.prefix.prompts.outline import Outline
from trivet.prefix.routing.affinity import steps_of
from trivet.telemetry import Observer, PrefixFailed, ignore

_FAILED: Final = 400
_PROXY: Final = "(proxy)"
"""Whose requests those of the proxy itself are; no tenant has brackets in its name."""
_CROWDED: Final = f"no breakpoints: the prompt has more than {MOST_PARTS:,} parts"
_OFF: Final = PrefixPolicy(enabled=False)


@dataclass(slots=True)
class Sent:
    """What goes upstream, and what was found out on the way."""

    body: bytes
    headers: RawHeaders
    way: Way | None = None
    outline: Outline | None = None
    """None where the body was not read: nothing depends on it there."""
    prepared: Prepared | None = None
    placed: Placed = NOWHERE


class Prefixes:
    """The prefix tier of one process, in front of the HTTP client."""

    def __init__(
        self,
        client: UpstreamClient,
        upstreams: Sequence[UpstreamConfig],
        secret: bytes,
        policies: Callable[[], PolicySet],
        slots: SlotBook,
        observer: Observer = ignore,
    ) -> None:
        self._client = client
        self._secret = secret
        self._policies = policies
        self._slots = slots
        self._observer = observer
        self._salt = lru_cache(maxsize=4096)(self._make_salt)
        self._backends = {
            one.name: backend_of(one.cache, one.base_url, one.engine_secret_env)
            for one in upstreams
        }
        self._open = {
            one.name: self._backends[one.name]
            for one in upstreams
            if one.replicas or self._backends[one.name].isolates not in ("none", "tenant")
        }
        self._failed: set[str] = set()
        self._placing = Placing()
        self._fan_out = FanOut()
        self.keep_warm: KeepWarm | None = None
        self.unsafe: Mapping[str, str] = {}
        """Upstreams that were seen to let tenants' prefixes meet, with what mends it."""
        self.unverified: Mapping[str, str] = {}
        """Upstreams of which it is not known whether they do: tenants share nothing there."""

    def ask(self, call: Call, body: bytes) -> Awaitable[UpstreamResponse]:
        """Send a call's `body` to its upstream. The awaitable raises `UpstreamError`."""
        upstream = call.upstream
        if upstream.name not in self._open:
            self._never_warm(call)
            return self._client.send(upstream, "POST", call.target, call.headers, body)
        return self._ask(call, body)

    async def send(
        self, upstream: UpstreamConfig, method: str, target: str, headers: RawHeaders, body: bytes
    ) -> UpstreamResponse:
        """Send a chat request of the proxy's own. Raises `UpstreamError`."""
        if upstream.name not in self._open:
            return await self._client.send(upstream, method, target, headers, body)
        asked = Asked(Api.CHAT, "", _PROXY, _OFF, upstream, target, headers, body)
        sent = await self.prepare(asked)
        return await self._client.send(upstream, method, target, sent.headers, sent.body, sent.way)

    def backend(self, upstream: str) -> PrefixBackend:
        """The prefix cache behind an upstream."""
        return self._backends[upstream]

    def shared(self, upstream: UpstreamConfig) -> bool:
        """Whether it is a server of one's own on which tenants other than one may run."""
        return self._backends[upstream.name].isolates in ("salt", "slot") and not (
            self._only_tenant(upstream)
        )

    async def prepare(self, asked: Asked) -> Sent:
        """What is sent in place of `asked`. Raises `UpstreamError` 400 where tenants would meet."""
        if brief(asked.body):
            return self._prepare(asked)
        return await asyncio.to_thread(self._prepare, asked)

    async def prepare_native(self, asked: Asked) -> Sent:
        """The same for a body that nobody has read yet; what is no JSON object, or holds more than
        is looked at, goes as it came: at an API of a provider nothing in it keeps tenants apart."""
        readable = await asyncio.to_thread(readable_native, asked.body)
        return await self.prepare(asked) if readable else Sent(asked.body, asked.headers)

    async def fan_out(
        self, sent: Sent, policy: PrefixPolicy, send: Callable[[], Awaitable[UpstreamResponse]]
    ) -> UpstreamResponse:
        """Send it, after whoever writes the same prefix at this moment, as long as the policy says.
        What `send` raises is raised."""
        wait = policy.fan_out.wait
        if not (wait and sent.placed.marks):
            return await send()
        with await self._fan_out.enter(*sent.placed.keys(), wait) as lead:
            response = await send()
            if response.status < _FAILED:
                lead.began()
            return response

    async def _ask(self, call: Call, body: bytes) -> UpstreamResponse:
        request = call.request
        asked = Asked(
            *(request.api, request.model, call.tenant, call.policy.prefix),
            *(call.upstream, call.target, call.headers, body),
            route=call.route,
        )
        sent = await self.prepare(asked)
        call.sent = sent
        response = await self.fan_out(sent, call.policy.prefix, lambda: self._sent(call, sent))
        answered = response.status < _FAILED and call.purpose == "request"
        if answered and call.policy.prefix.keep_warm.budget_usd:
            self._keep_warm(call, sent)
        return response

    def _keep_warm(self, call: Call, sent: Sent) -> None:
        if self.keep_warm is None:
            return
        try:
            kind = self._backends[call.upstream.name].kind
            self.keep_warm.asked(*warm_of(call, sent, kind, self._placing))
        except Exception as error:
            # A ping less, and no answer less.
            self._tell(call.upstream.name, error)

    def _never_warm(self, call: Call) -> None:
        if self.keep_warm is not None and call.policy.prefix.keep_warm.budget_usd:
            about = (call.tenant, call.upstream.name, call.request.model)
            self.keep_warm.asked([], NotWarm(*about, "no-ping-api"))

    def _sent(self, call: Call, sent: Sent) -> Awaitable[UpstreamResponse]:
        return self._client.send(
            call.upstream, "POST", call.target, sent.headers, sent.body, sent.way
        )

    def _prepare(self, asked: Asked) -> Sent:
        backend = self._backends[asked.upstream.name]
        salt = self._salt(asked.tenant, asked.policy.epoch)
        if asked.api is Api.EMBEDDINGS and backend.isolates not in ("salt", "slot"):
            return Sent(asked.body, asked.headers)
        try:
            outline = outline_for(asked, backend)
            way = Way(steps_of(outline, salt.encode())) if asked.upstream.replicas else None
            placed = self._placing.choose(asked, outline, backend)
            ask = self._ask_of(asked, backend, outline, salt)._replace(marks=placed.marks)
            prepared = backend.prepare(ask)
            placed = self._placing.sent(placed, prepared)
            if outline.cut:
                prepared = prepared._replace(notes=(*prepared.notes, _CROWDED))
        except Exception as error:
            # A cache in trouble costs caching, not the call.
            return self._without(asked, backend, error)
        prepared = self._kept_apart(asked, backend, prepared)
        headers = _headers(asked.headers, prepared)
        return Sent(prepared.body, headers, way, outline, prepared, placed)

    def _ask_of(self, asked: Asked, backend: PrefixBackend, outline: Outline, salt: str) -> Ask:
        slot = Slot(None, 0)
        if backend.isolates == "slot":
            slots = asked.upstream.slots or 1
            slot = self._slots.slot(asked.upstream.name, asked.tenant, slots)
            # A server that reads no salt reads a tenant's own as little as any other: only slots
            # have a way to hold nothing back.
            if self._untrusted(asked):
                slot = slot._replace(number=None)
        return Ask(
            asked.api,
            asked.model,
            asked.body,
            outline,
            salt,
            slot.number,
            slot.common,
            common=asked.upstream.credential_env is not None,
            bearer=not signed_by_aws(asked.target, asked.headers),
        )

    def _kept_apart(self, asked: Asked, backend: PrefixBackend, prepared: Prepared) -> Prepared:
        """The same, or caching off, where it keeps tenants apart. Raises `UpstreamError`."""
        why = "" if prepared.apart else "what it asks for there is kept apart by nothing"
        if backend.isolates == "salt" and asked.upstream.name in self.unsafe:
            why = self.unsafe[asked.upstream.name]
        if not why or self._only_tenant(asked.upstream):
            return prepared
        raise UpstreamError(
            "prefix-not-apart",
            f"The upstream {asked.upstream.name!r} does not keep the prefixes of several tenants "
            f"apart: {why}.",
            400,
        )

    def _without(self, asked: Asked, backend: PrefixBackend, error: Exception) -> Sent:
        name = asked.upstream.name
        self._tell(name, error)
        if backend.isolates not in ("salt", "slot"):
            return Sent(asked.body, asked.headers)
        common = (asked.upstream.slots or 1) - 1
        body = caching_off(backend.isolates, asked.body, os.urandom(32).hex(), common)
        if body is None or (backend.isolates == "slot" and asked.api is Api.MESSAGES):
            raise UpstreamError(
                "prefix-unsalted",
                f"A request to the upstream {asked.upstream.name!r} cannot be kept apart from "
                "other tenants' prefixes.",
                500,
            )
        return Sent(body, _headers(asked.headers, Prepared(body, dropped=SERVER_HEADERS)))

    def _tell(self, upstream: str, error: Exception) -> None:
        told, kind = f"{type(error).__name__}: {error}", self._backends[upstream].kind
        self._observer(PrefixFailed(upstream, kind, told, upstream not in self._failed))
        self._failed.add(upstream)

    def _untrusted(self, asked: Asked) -> bool:
        doubted = asked.upstream.name in self.unsafe or asked.upstream.name in self.unverified
        return doubted and not self._only_tenant(asked.upstream)

    def _only_tenant(self, upstream: UpstreamConfig) -> bool:
        """Whether no other tenant will ever have a prefix at the upstream. Callers that no policy
        declares can be joined by others at any time."""
        policies = self._policies()
        users = (may_use_upstream(one, upstream.name) for one in policies.tenants.values())
        return policies.declared and sum(users) <= 1

    def _make_salt(self, tenant: str, epoch: int) -> str:
        return tenant_salt(self._secret, tenant, epoch)


def _headers(headers: RawHeaders, prepared: Prepared) -> RawHeaders:
    if not prepared.headers and not any(name in prepared.dropped for name, _ in headers):
        return headers
    gone = prepared.dropped.union(name for name, _ in prepared.headers)
    return [*(item for item in headers if item[0] not in gone), *prepared.headers]

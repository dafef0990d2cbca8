"""Requests on paths that no dialect reads: on to the upstream, as they came.

Of calls in a provider's own API the body is read, so that its prefix cache can be asked for; at a
server that several tenants share, only what belongs to nobody passes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from functools import partial

from trivet.middleware.arrival.admission import Admission
from trivet.middleware.arrival.headers import RawHeaders, RequestHeaders, to_upstream
from trivet.middleware.arrival.intake import Intake
from trivet.middleware.arrival.passthrough import (
    check_open,
    check_shared,
    framing,
    has_body,
    returned,
)
from trivet.middleware.arrival.routing import Routing, Target
from trivet.middleware.arrival.visit import Visit
from trivet.middleware.call import Live, Reply
from trivet.middleware.prefix_tier.asks import Asked
from trivet.middleware.prefix_tier.counting import is_count, unsteered
from trivet.middleware.prefix_tier.metering import Billed, Metering
from trivet.middleware.prefix_tier.native import Native, native_of
from trivet.middleware.prefix_tier.signed_tenant import tenant_header
from trivet.middleware.prefix_tier.tier import Prefixes, Sent
from trivet.middleware.upstream import UpstreamClient
from trivet.policies.directives import read_purpose
from trivet.prefix.markers.money import Purpose

_DIGITS = 12
"""Of a body's length, at most."""


class Passing:
    """What passes through one process."""

    def __init__(
        self,
        routing: Routing,
        intake: Intake,
        admission: Admission,
        senders: tuple[UpstreamClient, Prefixes | None, Metering | None],
        hidden_headers: frozenset[bytes],
    ) -> None:
        self._routing = routing
        self._intake = intake
        self._admission = admission
        self._client, self._prefixes, self._metering = senders
        self._hidden = hidden_headers

    async def serve(self, visit: Visit, headers: RequestHeaders, named: Target | None) -> Reply:
        """The upstream's reply. Raises `RequestError` for what is not open, `UpstreamError`."""
        assert visit.caller is not None
        policy = visit.caller.policy
        check_open(policy, visit.method, visit.path)
        target = self._routing.first(policy, visit.family, named)
        visit.upstream = target.config.name
        prefixes = self._prefixes
        shared = prefixes is not None and prefixes.shared(target.config)
        if target.credential is not None or shared:
            check_shared(policy, visit.method, visit.path)
        self._admission.enter(policy)
        visit.on_end = lambda: self._admission.leave(policy, visit.size)
        native, counts = None, shared and is_count(visit.method, visit.path)
        if prefixes is not None:
            kind = prefixes.backend(target.config.name).kind
            native = native_of(kind, visit.method, visit.path)
        # What a call cost can be read of an answer that is not compressed.
        plain = native is not None
        forwarded = to_upstream(headers, target.credential, self._hidden, plain=plain)
        forwarded += tenant_header(target.config, policy.tenant)
        framed = framing(headers)
        sent = None
        if counts and has_body(headers):
            raw = await self._intake.whole(visit.receive, visit.direct)
            visit.watch.begin()
            sent = await asyncio.to_thread(unsteered, forwarded, raw)
        elif native is not None:
            visit.purpose = read_purpose(headers)
            visit.model = native.model
            sent = await self._native(visit, native, target, (forwarded, framed))
        to = (target.config, visit.method, visit.target)
        began = time.perf_counter()
        if sent is not None and prefixes is not None:
            send = partial(self._client.send, *to, sent.headers, sent.body, sent.way)
            response = await prefixes.fan_out(sent, policy.prefix, send)
        else:
            body: bytes | AsyncIterator[bytes] = b""
            if has_body(headers):
                body = self._intake.stream(visit.receive, visit.watch.begin)
            else:
                visit.watch.begin()
            response = await self._client.send(*to, forwarded + framed, body)
        visit.watch.begin()
        visit.note.outcome, visit.note.reason = "bypass", "passthrough"
        if native is not None and self._metering is not None:
            way = None if sent is None else sent.way
            billed = _billed(native, policy.tenant, target.config.name, visit.purpose)
            self._metering.meter(response, billed, target.config, way)

        def release() -> None:
            visit.note.upstream_s = time.perf_counter() - began
            visit.note.usage, visit.note.response_model = response.told()
            response.close()

        return Live(response.status, returned(response), response.chunks(), release)

    async def _native(
        self,
        visit: Visit,
        native: Native,
        target: Target,
        sent: tuple[RawHeaders, RawHeaders],
    ) -> Sent | None:
        """A call in a provider's own API, read whole; None where its body passes through unread."""
        headers, framed = sent
        prefixes = self._prefixes
        if prefixes is None or not framed or not self._may_be_read(framed[0][1]):
            return None
        assert visit.caller is not None
        policy = visit.caller.policy
        raw = await self._intake.whole(visit.receive, visit.direct)
        self._admission.load(policy, len(raw))
        visit.size = len(raw)
        visit.watch.begin()
        asked = Asked(
            native.api,
            native.model,
            policy.tenant,
            policy.prefix,
            target.config,
            visit.target,
            headers,
            raw,
        )
        return await prefixes.prepare_native(asked)

    def _may_be_read(self, length: bytes) -> bool:
        return length.isdigit() and len(length) <= _DIGITS and self._intake.holds(int(length))


def _billed(native: Native, tenant: str, upstream: str, purpose: Purpose) -> Billed:
    api = native.api.value
    return Billed(tenant, api, api, native.model, upstream, purpose)

"""Hits on requests that came before: no decoding, and no task where memory holds the answer.

Whatever is not such a hit is left to the usual path, which decides everything afresh.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from typing import Any

from trivet.exact.tier import ExactTier, Hit, Miss
from trivet.middleware.arrival.headers import RawHeaders
from trivet.middleware.arrival.recall import Known, Recall
from trivet.middleware.arrival.visit import ASKED, NEW
from trivet.middleware.call import Note, Whole
from trivet.middleware.reply import Replies
from trivet.policies.tenants import Identified
from trivet.telemetry import Observer, RequestDone

Origin = tuple[float, str | None, int]
"""When a request began (`perf_counter`), its trace context, and the bytes of its body."""
Identify = Callable[[RawHeaders, str | None], Identified | None]
"""Whose request this is, by headers and peer address; None is a caller that is not known."""


class QuickLane:
    """Answers what `recall` knows and the tier holds in memory."""

    def __init__(
        self,
        identify: Identify,
        recall: Recall,
        tier: ExactTier,
        replies: Replies,
        observer: Observer,
    ) -> None:
        """`recall` is filled by the usual path. No argument is copied."""
        self._identify = identify
        self._recall = recall
        self._tier = tier
        self._replies = replies
        self._observer = observer

    def answer(
        self, scope: dict[str, Any], body: bytes, began: float
    ) -> Whole | Coroutine[Any, Any, Whole | None] | None:
        """The reply to a whole request given as an ASGI scope; None sends it the usual way.

        A coroutine has to ask the store first, and may come to None too.
        """
        headers: RawHeaders = scope["headers"]
        client = scope["client"]
        caller = self._identify(headers, client[0] if client else None)
        if caller is None:
            return None
        limits = caller.policy.limits
        if limits.requests_in_flight is not None or limits.bytes_in_flight is not None:
            return None
        path, query = scope["raw_path"].decode("latin-1"), scope["query_string"]
        target = f"{path}?{query.decode('latin-1')}" if query else path
        known = self._recall.find(caller, target, headers, body)
        if known is None:
            scope[NEW] = caller
            return None
        origin = (began, _traceparent(headers), len(body))
        hit = self._tier.peek(known.question)
        if hit is not None:
            return self._replay(known, hit, origin) if _tagged(known, hit) else None
        if self._tier.in_memory:
            return None

        def pass_on(found: Hit | Miss) -> None:
            # The usual path decides afresh, but need not ask the store what it was asked here.
            self._recall.forget(caller, target, headers, body)
            scope[ASKED] = known.question, found

        return self._ask(known, origin, pass_on)

    async def _ask(
        self, known: Known, origin: Origin, pass_on: Callable[[Hit | Miss], None]
    ) -> Whole | None:
        found = await self._tier.find(known.question)
        if isinstance(found, Hit) and _tagged(known, found):
            return self._replay(known, found, origin)
        pass_on(found)
        return None

    def _replay(self, known: Known, hit: Hit, origin: Origin) -> Whole:
        note = Note()
        reply = self._replies.hit(known, note, hit)
        self._observer(_done(known, note, hit, reply, origin))
        return reply


def _tagged(known: Known, hit: Hit) -> bool:
    return known.labels <= hit.entry.labels


def _traceparent(headers: RawHeaders) -> str | None:
    found = [value for name, value in headers if name == b"traceparent"]
    return b", ".join(found).decode("latin-1") if found else None


def _done(known: Known, note: Note, hit: Hit, reply: Whole, origin: Origin) -> RequestDone:
    request = known.request
    began, traceparent, received = origin
    now = time.perf_counter()
    return RequestDone(
        tenant=known.caller.tenant,
        api=request.api,
        model=request.model,
        upstream=known.upstream,
        status=200,
        stream=request.stream,
        tier=note.tier,
        outcome=note.outcome,
        reason=note.reason,
        total_s=now - began,
        upstream_s=0.0,
        first_byte_s=now - began,
        request_bytes=received,
        response_bytes=len(reply.body),
        usage=hit.entry.usage,
        stored=False,
        traceparent=traceparent,
        response_model=hit.entry.model,
        reply_headers=reply.headers,
        route=known.route,
    )

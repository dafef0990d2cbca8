"""One upstream call, recorded while it passes by: the leader's side of a flight."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from trivet.errors import UpstreamError
from trivet.exact.entry import Entry
from trivet.exact.flight import Failed, Flight, Head, Result, Stored, Unstored
from trivet.exact.store import Bound
from trivet.exact.tier import ExactTier, Miss
from trivet.messages import Answer, ExactKey, NotStored, Request
from trivet.middleware.arrival.headers import replayable
from trivet.middleware.call import Call
from trivet.middleware.dialects.base import Dialect, Recorder, StoreRules
from trivet.middleware.dialects.sse import Splitter
from trivet.middleware.replay import ask_usage, hides_usage
from trivet.middleware.upstream import Sender, UpstreamResponse
from trivet.policies.eligibility import Eligible

STALE_FOR: Final = frozenset({500, 502, 503, 504})
"""Upstream answers that a stale one may stand in for (RFC 5861 section 4)."""


class _Copy(Protocol):
    def take(self, chunk: bytes) -> None: ...

    def finish(self, rules: StoreRules) -> Answer | NotStored: ...


class _JsonCopy:
    def __init__(self, dialect: Dialect, request: Request, limit: int) -> None:
        self._dialect = dialect
        self._request = request
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0

    def take(self, chunk: bytes) -> None:
        self._size += len(chunk)
        if self._size <= self._limit:
            self._parts.append(chunk)

    def finish(self, rules: StoreRules) -> Answer | NotStored:
        if self._size > self._limit:
            return NotStored("too-large")
        return self._dialect.record(self._request, b"".join(self._parts), rules)


class _StreamCopy:
    def __init__(self, recorder: Recorder, limit: int) -> None:
        self._recorder = recorder
        self._splitter = Splitter()
        # A stream carries an answer in about ten to thirty times its size of framing.
        self._left = 64 * limit

    def take(self, chunk: bytes) -> None:
        self._left -= len(chunk)
        if self._left > 0:
            for event in self._splitter.push(chunk):
                self._recorder.feed(event)

    def finish(self, rules: StoreRules) -> Answer | NotStored:
        if self._left <= 0:
            return NotStored("too-large")
        return self._recorder.finish(rules)


class _NoCopy:
    def __init__(self, reason: str) -> None:
        self._reason = reason

    def take(self, chunk: bytes) -> None:
        pass

    def finish(self, rules: StoreRules) -> Answer | NotStored:
        return NotStored(self._reason)


class Leader:
    """Makes upstream calls for flights, judges what came back, and stores it."""

    def __init__(
        self, client: Sender, tier: ExactTier, clock: Callable[[], float] = time.time
    ) -> None:
        self._client = client
        self._tier = tier
        self._clock = clock

    async def run(self, call: Call, plan: Eligible, missed: Miss, flight: Flight) -> None:
        """Ask the upstream; every chunk goes to the flight at once, the judgement at the end."""
        started, began = self._clock(), time.perf_counter()
        try:
            response = await self._client.ask(call, asking_usage(call, call.request.forward))
        except UpstreamError as error:
            call.note.upstream_s += time.perf_counter() - began
            flight.finish(Failed(error))
            return
        try:
            result = await self._pass_by(call, plan, response, flight, (missed.key, started))
        except UpstreamError as error:
            result = Failed(error)
        finally:
            call.note.upstream_s += time.perf_counter() - began
            response.close()
        if isinstance(result, Stored) and not plan.store:
            result = Stored(result.entry, "ttl-0")
        elif isinstance(result, Stored):
            kept = self._tier.keep(result.entry, bound_of(call), replaces=missed.replaces)
            result = Stored(result.entry, await kept)
        flight.finish(result)

    async def _pass_by(
        self,
        call: Call,
        plan: Eligible,
        response: UpstreamResponse,
        flight: Flight,
        origin: tuple[ExactKey, float],
    ) -> Result:
        streamed = response.media_type == "text/event-stream"
        flight.start(Head(response.status, tuple(response.headers), streamed))
        copy: _Copy | None = None
        while chunk := await response.read_some():
            await flight.push(chunk)
            if streamed:
                # Who reads it has its turn before the copy has: no caller waits for that.
                await asyncio.sleep(0)
            copy = copy or _copy_for(call, response, streamed)
            copy.take(chunk)
        copy = copy or _copy_for(call, response, streamed)
        rules = StoreRules(
            tool_calls=call.settings.tool_calls == "exact",
            refusals=call.settings.refusals,
            max_entry=call.settings.max_entry,
        )
        answer = copy.finish(rules)
        if isinstance(answer, NotStored):
            return Unstored(answer.reason, *response.told())
        response.settle(answer.usage, answer.model)
        return Stored(_entry(call, plan, response, answer, origin))


def asking_usage(call: Call, body: bytes) -> bytes:
    """The body, asking for a stream's usage where the caller did not; the same object if it did."""
    if hides_usage(call.dialect, call.request) and call.upstream.stream_usage == "inject":
        return ask_usage(body)
    return body


def forbids_storing(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether the upstream said `Cache-Control: no-store`."""
    for name, value in headers:
        if name.lower() == b"cache-control" and b"no-store" in value.lower():
            return True
    return False


def _copy_for(call: Call, response: UpstreamResponse, streamed: bool) -> _Copy:
    if response.status != 200:
        # A replay says 200: other successes (accepted, partial) are another answer.
        return _NoCopy(f"status-{response.status}")
    if response.coded:
        return _NoCopy("content-encoding")
    if forbids_storing(response.headers):
        return _NoCopy("upstream-no-store")
    if streamed:
        return _StreamCopy(call.dialect.recorder(call.request), call.settings.max_entry)
    if response.media_type == "application/json":
        return _JsonCopy(call.dialect, call.request, call.settings.max_entry)
    return _NoCopy("content-type")


def _entry(
    call: Call,
    plan: Eligible,
    response: UpstreamResponse,
    answer: Answer,
    origin: tuple[ExactKey, float],
) -> Entry:
    key, started = origin
    expires = started + plan.ttl
    return Entry(
        key=key,
        tenant=call.tenant,
        api=call.request.api,
        canonical=call.question.canonical if call.question else b"",
        body=answer.body,
        model=answer.model,
        usage=answer.usage,
        ids=answer.ids,
        created=started,
        expires=expires,
        stale_until=expires + plan.stale_if_error,
        labels=call.labels,
        headers=replayable(response.headers),
    )


def bound_of(call: Call) -> Bound:
    """How much the tenant may keep."""
    return Bound(call.policy.limits.entries, call.policy.limits.bytes)

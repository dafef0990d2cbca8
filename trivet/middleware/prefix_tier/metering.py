"""What every model call costs, told once, whoever asked and whatever becomes of the answer.

Between whoever asks an upstream and the prefix tier: each answer without an error carries a meter.
The recorder's usage is used where there is one; else the bytes that passed are looked at, when the
answer has ended. A caller who leaves is billed for what came until then, as far as it was told.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from trivet.messages import Usage
from trivet.middleware.arrival.headers import RawHeaders
from trivet.middleware.call import Call
from trivet.middleware.prefix_tier.flood import FloodGuard
from trivet.middleware.prefix_tier.prompt_record import route_of_call
from trivet.middleware.prefix_tier.usage_tap import NOTHING, Told, UsageTap
from trivet.middleware.running.config import UpstreamConfig
from trivet.middleware.upstream import Sender, UpstreamClient, UpstreamResponse
from trivet.policies.eligibility import Eligible
from trivet.prefix.markers.money import Purpose
from trivet.telemetry import ModelCall, Observer

if TYPE_CHECKING:
    from trivet.middleware.fleets.way import Way


class Billed(NamedTuple):
    """Whose call it is, and of what kind."""

    tenant: str
    route: str
    api: str
    model: str
    """As it was asked for."""
    upstream: str
    purpose: Purpose = "request"


_ALONE: Final = 64 << 10
"""Bytes of a first piece of body that is kept as it came."""


class Meter:
    """Reads one answer. `end` tells the observer, once."""

    __slots__ = ("_billed", "_done", "_ended", "_first", "_media", "_tap", "_told")

    def __init__(
        self, billed: Billed, media_type: str | None, done: Callable[[Billed, Told], None]
    ) -> None:
        """Without a media type the answer cannot be read: it is compressed."""
        self._billed = billed
        self._media = media_type
        self._done = done
        self._first = b""
        self._tap: UsageTap | None = None
        self._told: Told | None = None
        self._ended = False

    def take(self, chunk: bytes) -> None:
        """The next piece of the body."""
        if self._tap is None and not self._first and len(chunk) <= _ALONE:
            # Most JSON answers come in one piece, and whoever records them reads them.
            self._first = chunk
        else:
            tap = self._opened()
            if tap is not None:
                tap.take(chunk)

    def settle(self, usage: Usage | None, model: str) -> None:
        """What the answer cost, by somebody who read all of it."""
        self._told = Told(usage, model)
        self._release()

    def told(self) -> Told:
        """What the answer cost, as far as is known by now."""
        if self._told is not None:
            return self._told
        tap = self._opened()
        return NOTHING if tap is None else tap.told()

    def end(self) -> None:
        """The answer has ended, or nobody reads on."""
        if not self._ended:
            self._ended = True
            self._told = self.told()
            self._release()
            self._done(self._billed, self._told)

    def _opened(self) -> UsageTap | None:
        if self._tap is None and self._media is not None:
            self._tap = UsageTap(self._media)
            if self._first:
                self._tap.take(self._first)
        return self._tap

    def _release(self) -> None:
        self._first, self._tap, self._media = b"", None, None


_FROM_OUTSIDE: Final = frozenset({"request", "warm"})
"""Purposes of calls that somebody sent to the proxy."""


def _could_hit(call: Call) -> bool:
    """Whether it came from outside and a cache with its answer would have answered."""
    plan = call.plan
    return isinstance(plan, Eligible) and plan.lookup and call.purpose in _FROM_OUTSIDE


class Metering:
    """A `Sender` whose answers are metered."""

    def __init__(
        self,
        inner: Sender,
        client: UpstreamClient,
        observer: Observer,
        guard: FloodGuard | None = None,
    ) -> None:
        self._inner = inner
        self._client = client
        self._observer = observer
        self._guard = guard

    async def ask(self, call: Call, body: bytes) -> UpstreamResponse:
        """Send a call's `body` to its upstream. Raises `UpstreamError`."""
        guard = self._guard
        if guard is None or not _could_hit(call):
            return self._metered(call, await self._inner.ask(call, body))
        if not guard.admit(counted=call.purpose == "request"):
            await guard.wait(call.tenant)
        try:
            response = await self._inner.ask(call, body)
        except BaseException:
            guard.leave()
            raise
        return self._metered(call, response, guard.leave)

    def _metered(
        self, call: Call, response: UpstreamResponse, left: Callable[[], None] | None = None
    ) -> UpstreamResponse:
        request, sent = call.request, call.sent
        billed = Billed(
            call.tenant,
            route_of_call(call),
            str(request.api),
            request.model,
            call.upstream.name,
            call.purpose,
        )
        way = None if sent is None else sent.way
        self.meter(response, billed, call.upstream, way)
        response.left = left
        return response

    async def send(
        self, upstream: UpstreamConfig, method: str, target: str, headers: RawHeaders, body: bytes
    ) -> UpstreamResponse:
        """Send a request of the proxy's own, not metered. Raises `UpstreamError`."""
        return await self._inner.send(upstream, method, target, headers, body)

    def meter(
        self,
        response: UpstreamResponse,
        billed: Billed,
        upstream: UpstreamConfig,
        way: Way | None = None,
    ) -> None:
        """Meter an answer, unless it is an error: those are not billed."""
        if response.status >= 400:
            return

        def done(billed: Billed, told: Told) -> None:
            usage = told.usage
            if usage is not None and way is not None:
                self._client.told(upstream, way, usage.cache_read_tokens)
            self._observer(
                ModelCall(
                    billed.tenant,
                    billed.route,
                    billed.api,
                    told.model or billed.model,
                    billed.upstream,
                    usage,
                    billed.purpose,
                )
            )

        response.meter = Meter(billed, None if response.coded else response.media_type, done)

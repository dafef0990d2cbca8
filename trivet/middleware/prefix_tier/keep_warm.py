"""Keeps prefixes warm where that pays: a ping shortly before a prefix would expire.

Off unless a policy has a daily budget (`prefix.keep_warm.budget_usd`). A ping reads the prefix,
for a tenth of its price; whoever comes after it reads too, in place of writing for 1.25 or 2 times
the price. Whether somebody comes is told by the gaps of this kind of prompt so far
(`trivet.prefix.markers.gaps.warming`): as soon as they say that nobody does, the pings end. The
requests, their callers' credentials among them, are in memory while their prefixes are kept warm.
Of each prefix it is told whether a ping was sent, and why none was (`warmth`).
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, NamedTuple

from trivet.errors import UpstreamError
from trivet.middleware.arrival.headers import RawHeaders
from trivet.middleware.prefix_tier.warmth import NotWarm, Reason, Warmth
from trivet.middleware.running.config import UpstreamConfig
from trivet.prefix.markers.gaps import Habit, warming
from trivet.prefix.markers.rules import Ttl
from trivet.telemetry import Observer, ignore

_MOST: Final = 256
_BYTES: Final = 32 << 20
"""Of all requests that are kept."""
_DAY_S: Final = 86_400
_TICK_S: Final = 1.0


class Warm(NamedTuple):
    """A prefix that may be kept warm, and the request that does it."""

    key: bytes
    """Names the prefix, of one tenant at one upstream."""
    tenant: str
    route: str
    upstream: UpstreamConfig
    target: str
    headers: RawHeaders
    body: bytes
    model: str
    tokens: int
    """Of the prefix."""
    rest: int
    """Behind it: paid in full with each ping."""
    ttl: Ttl
    read: float
    budget_usd: float
    """The tenant's, a day."""
    habit: Callable[[float], Habit]
    """How soon such prefixes are asked for again, as known at a time."""


@dataclass(slots=True)
class _Kept:
    warm: Warm
    asked: float
    """When a caller last asked for it."""
    renewed: float
    """When its lifetime last began."""

    @property
    def due(self) -> float:
        """When the ping has to go: a twentieth of the lifetime before its end."""
        return self.renewed + 0.95 * self.warm.ttl.seconds


class KeepWarm:
    """Of one process, on one event loop. `ping` sends one and says whether it was answered;
    `price` is US dollars for one uncached token of a model at an upstream, by the tokens of the
    whole prompt; None if not known."""

    def __init__(
        self,
        ping: Callable[[Warm], Awaitable[bool]],
        price: Callable[[str, str, int], float | None],
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        observer: Observer = ignore,
    ) -> None:
        self._ping = ping
        self._price = price
        self._clock = clock
        self._wall = wall
        self._warmth = Warmth(observer)
        self._kept: OrderedDict[bytes, _Kept] = OrderedDict()
        self._spent: dict[str, float] = {}
        self._day = 0
        self._task: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._kept)

    def spent(self, tenant: str) -> float:
        """US dollars that a tenant's pings cost today (UTC), as estimated."""
        return self._spent.get(tenant, 0.0)

    def state(self, tenant: str, upstream: str, model: str) -> Reason | None:
        """What became of the tenant's last prefix there; None where nothing was seen yet."""
        return self._warmth.state(tenant, upstream, model)

    def asked(self, path: Sequence[bytes], warm: Warm | NotWarm | None) -> None:
        """A request with these prefixes was answered; what it goes on from needs no ping of its
        own any more. `warm` takes its place."""
        for key in path:
            self._kept.pop(key, None)
        if isinstance(warm, NotWarm):
            self._warmth.see(*warm)
            return
        if warm is None or warm.budget_usd <= 0:
            return
        now = self._clock()
        self._kept[warm.key] = _Kept(warm, now, now)
        size = sum(len(kept.warm.body) for kept in self._kept.values())
        while len(self._kept) > _MOST or size > _BYTES:
            _, gone = self._kept.popitem(last=False)
            size -= len(gone.warm.body)
            self._see(gone.warm, "no-room")
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="trivet-keep-warm")

    def forget(self, tenant: str) -> None:
        """Nothing of this tenant is kept any longer."""
        for key in [key for key, kept in self._kept.items() if kept.warm.tenant == tenant]:
            del self._kept[key]
        self._warmth.forget(tenant)

    async def tick(self) -> None:
        """Send the pings that are due and pay; let go of the prefixes that none is sent for."""
        now = self._clock()
        for key, kept in [item for item in self._kept.items() if item[1].due <= now]:
            reason = await self._renew(kept, now)
            self._see(kept.warm, reason)
            if reason == "ping":
                kept.renewed = now
            elif self._kept.get(key) is kept:
                del self._kept[key]

    async def close(self) -> None:
        """End, and forget all requests."""
        self._kept.clear()
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        while self._kept:
            await asyncio.sleep(_TICK_S)
            await self.tick()

    def _see(self, warm: Warm, reason: Reason) -> None:
        self._warmth.see(warm.tenant, warm.upstream.name, warm.model, reason)

    async def _renew(self, kept: _Kept, now: float) -> Reason:
        if now >= kept.renewed + kept.warm.ttl.seconds:
            return "too-late"
        return await self._sent(kept.warm) if self._pays(kept, now) else "not-worth"

    def _pays(self, kept: _Kept, now: float) -> bool:
        warm = kept.warm
        found = warming(warm.habit(now), now - kept.asked, warm.ttl, _cost(warm))
        return found.pings > 0

    async def _sent(self, warm: Warm) -> Reason:
        price = self._price(warm.model, warm.upstream.name, warm.tokens + warm.rest)
        if price is None:
            return "no-price"
        cost = price * warm.tokens * _cost(warm)
        today = int(self._wall() // _DAY_S)
        if today != self._day:
            self._day, self._spent = today, {}
        spent = self.spent(warm.tenant) + cost
        if spent > warm.budget_usd:
            return "over-budget"
        # Before it is sent: what fails on its way may have been billed.
        self._spent[warm.tenant] = spent
        try:
            return "ping" if await self._ping(warm) else "failed"
        except UpstreamError:
            return "failed"


def _cost(warm: Warm) -> float:
    """Of one ping, times the price of the prefix uncached."""
    return warm.read + warm.rest / max(1, warm.tokens)

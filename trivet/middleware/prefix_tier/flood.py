"""The load that an empty cache would send to the model, and a guard against it.

A cache that answers the share h of the requests keeps 1/(1-h) times today's load off the model: a
flush, an outage of the store or a cold start sends it all at once. The guard knows h and its own
trailing baseline; while h is far below, it lets so many model calls through at once, makes a
bounded number wait, and refuses the rest. Without a limit it only shows the figures.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from trivet.errors import UpstreamError
from trivet.middleware.running.config import FloodConfig
from trivet.telemetry import Event, Flood, FloodShed, Observer, RequestDone, ignore

_RECENT_S: Final = 10.0
"""Half-life of the hit share of now."""
_FOLD_S: Final = 1.0
_LONGEST_S: Final = 10.0
"""Of a time without requests, so much counts: a night says nothing about a cache."""
_ENOUGH: Final = 20.0
"""Requests that a share has to rest on."""
_LEARN_S: Final = 60.0
"""How long the share is watched before it is a baseline, where none was given."""
_ANSWERED: Final = frozenset({"hit", "stale", "collapsed"})
_MOST_SHARE: Final = 0.999


class _State(NamedTuple):
    hits: float
    all: float
    baseline: float | None
    seen_s: float


def folded(state: _State, hits: int, misses: int, elapsed_s: float, window_s: float) -> _State:
    """The state after `elapsed_s` seconds in which so many requests hit and missed: pure."""
    span = min(elapsed_s, _LONGEST_S)
    left = 0.5 ** (span / _RECENT_S)
    counted, every = state.hits * left + hits, state.all * left + hits + misses
    seen, baseline = state.seen_s + span, state.baseline
    if every >= _ENOUGH:
        share = counted / every
        if baseline is None:
            baseline = share if seen >= _LEARN_S else None
        else:
            baseline += (share - baseline) * (1 - 0.5 ** (span / window_s))
    return _State(counted, every, baseline, seen)


class FloodGuard:
    """Counts hits as an observer, and misses as they ask for a model call. For one event loop."""

    hears: Final = frozenset({RequestDone})

    def __init__(self, config: FloodConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self.observer: Observer = ignore
        """Told of the state, about once a second while there are requests, and of refusals."""
        self._config = config
        self._clock = clock
        self._state = _State(0.0, 0.0, config.baseline, 0.0)
        self._hits = self._misses = self._in_flight = self._shed = 0
        self._at = clock()
        self._flooded = False
        self._waiting: deque[asyncio.Future[None]] = deque()

    def __call__(self, event: Event, /) -> None:
        """An observer: answers of caches are counted."""
        if type(event) is RequestDone and event.outcome in _ANSWERED and event.purpose == "request":
            self._hits += 1
            self._fold()

    @property
    def flood(self) -> Flood:
        """What is known now."""
        hits, every, baseline, _ = self._state
        usual = min(baseline or 0.0, _MOST_SHARE)
        return Flood(
            share=hits / every if every else 0.0,
            baseline=usual,
            load=1 / (1 - usual),
            flooded=self._flooded,
            in_flight=self._in_flight,
            waiting=len(self._waiting),
        )

    def told(self) -> dict[str, float | bool | int | None]:
        """The same for people, JSON-able."""
        return {
            **self.flood._asdict(),
            "max_calls": self._config.max_calls,
            "shed": self._shed,
            "baseline_known": self._state.baseline is not None,
        }

    def admit(self, *, counted: bool = True) -> bool:
        """A request that a cache may answer needs a model call. True lets it in, and `leave` has to
        follow; else it has to `wait`. Warming is not `counted` in the hit share."""
        self._misses += counted
        self._fold()
        if self._free():
            self._in_flight += 1
            return True
        return False

    async def enter(self, tenant: str, *, counted: bool = True) -> None:
        """`admit`, and `wait` where that is needed."""
        if not self.admit(counted=counted):
            await self.wait(tenant)

    async def wait(self, tenant: str) -> None:
        """Wait to be let in: then `leave` has to follow. Raises `UpstreamError` 503 where too many
        wait, or for too long."""
        if len(self._waiting) >= self._config.queue:
            raise self._refusal(tenant, "queue-full")
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            async with asyncio.timeout(self._config.wait):
                await turn
        except TimeoutError:
            if not _given(turn):
                raise self._refusal(tenant, "wait") from None
        except asyncio.CancelledError:
            if _given(turn):
                self.leave()
            raise
        finally:
            if turn in self._waiting:
                self._waiting.remove(turn)

    def leave(self) -> None:
        """A call that was let in has ended."""
        self._in_flight -= 1
        self._let_in()

    def _free(self) -> bool:
        limit = self._config.max_calls
        return limit is None or not self._flooded or self._in_flight < limit

    def _let_in(self) -> None:
        while self._waiting and self._free():
            turn = self._waiting.popleft()
            if not turn.done():
                self._in_flight += 1
                turn.set_result(None)

    def _refusal(self, tenant: str, reason: str) -> UpstreamError:
        self._shed += 1
        self.observer(FloodShed(tenant, reason))
        message = "The caches are cold and the model is given no more calls now; try again soon."
        return UpstreamError("flood", message, 503)

    def _fold(self) -> None:
        now = self._clock()
        if now - self._at < _FOLD_S:
            return
        elapsed, self._at = now - self._at, now
        state = folded(self._state, self._hits, self._misses, elapsed, self._config.window)
        self._state, self._hits, self._misses = state, 0, 0
        cold = state.baseline is not None and state.all >= _ENOUGH
        self._flooded = cold and state.hits / state.all < self._config.below * (
            state.baseline or 0.0
        )
        self.observer(self.flood)
        self._let_in()


def _given(turn: asyncio.Future[None]) -> bool:
    return turn.done() and not turn.cancelled()

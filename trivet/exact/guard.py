"""A store's time budget and circuit breaker: in trouble it costs at most its budget, then nothing.

Reads and writes have a breaker each. Reads open: the store is `down`. Only writes open (disk full,
read-only replica): it is `degraded`. Each change of state is told once, and no other.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from trivet.errors import StoreError
from trivet.exact.entry import Entry
from trivet.exact.purges import Changes, SharedStore
from trivet.exact.store import Bound, StoreStats
from trivet.messages import ExactKey
from trivet.telemetry import Observer, StoreOperation, StoreState

_T = TypeVar("_T")
_STALL_S = 0.01
"""A timer that fires this much late says that the event loop stood still, not the store."""
_LONGEST = 10
"""Times its budget that a call may take when the event loop is busy with other things."""
_FATAL = frozenset({"corrupt", "auth", "format", "policy"})
"""Reasons that another try will not change: they open the breaker at the first failure."""
_OURS = frozenset({"unstorable", "closed"})
"""Reasons that say nothing about the store's health."""


@dataclass(frozen=True, slots=True)
class Budget:
    """Seconds that the calls of a store may take, and how the breaker goes about failures."""

    get_s: float = 0.05
    put_s: float = 1.0
    purge_s: float = 30.0
    failures: int = 3
    """Failures in a row that open the breaker. Calls that wait together time out as one: it may
    be a single round trip, or a moment's pause."""
    probe_s: float = 1.0
    """Seconds between two tries while it is open."""


@dataclass(slots=True)
class _Breaker:
    """Closed until `limit` failures in a row; then open until a success."""

    limit: int
    failures: int = 0
    reason: str | None = None
    retry_at: float = field(default=0.0)
    counted_at: float = field(default=-math.inf)
    """When a failure was counted last: timeouts of calls begun before say nothing more."""

    def succeed(self) -> None:
        self.failures, self.reason = 0, None

    def fail(self, error: StoreError, began: float, now: float) -> None:
        if error.reason != "timeout" or began >= self.counted_at:
            self.failures += 1
            self.counted_at = now
        if self.reason is None and (self.failures >= self.limit or error.reason in _FATAL):
            self.reason = str(error)


class GuardedStore:
    """Any shared store behind a budget and a breaker. Raises `StoreError` and nothing else.

    While the breaker is open, calls raise `StoreError("open")` at once. A probe in the background
    closes it for reads; every `probe_s` one write is let through to see whether writes work.
    """

    def __init__(
        self,
        inner: SharedStore,
        budget: Budget,
        observer: Observer,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = inner.name
        self._inner = inner
        self._budget = budget
        self._observe = observer
        self._clock = clock
        self._reads = _Breaker(budget.failures)
        self._writes = _Breaker(budget.failures)
        self._state: Literal["up", "degraded", "down"] | None = None
        self._probe: asyncio.Task[None] | None = None
        self._closed = False

    async def get(self, tenant: str, key: ExactKey) -> Entry | None:
        """See `ExactStore.get`. At most `get_s` seconds."""
        started = self._clock()
        outcome, size = "cancelled", 0
        try:
            entry = await self._read(self._inner.get, tenant, key)
            outcome, size = ("miss", 0) if entry is None else ("hit", entry.size)
        except StoreError as error:
            outcome = error.reason
            raise
        finally:
            seconds = self._clock() - started
            self._observe(StoreOperation(self.name, "get", outcome, seconds, size))
        return entry

    async def put(self, entry: Entry, bound: Bound) -> str:
        """See `ExactStore.put`. At most `put_s` seconds; it may still happen after them."""
        return await self._timed(
            "put", entry.size, self._budget.put_s, self._inner.put, entry, bound
        )

    async def delete(self, tenant: str, key: ExactKey) -> None:
        """See `ExactStore.delete`."""
        await self._write(self._budget.put_s, self._inner.delete, tenant, key)

    async def purge(self, tenant: str, label: str | None, at: float) -> int:
        """See `ExactStore.purge`. Tried even while the breaker is open: somebody waits."""
        self._writes.retry_at = 0.0
        return await self._timed(
            "purge", 0, self._budget.purge_s, self._inner.purge, tenant, label, at
        )

    async def changes(self, cursor: int) -> Changes:
        """See `SharedStore.changes`. Outside the breaker's count: the probe is for that."""
        if self._reads.reason is not None:
            raise StoreError("open")
        return await _within(self._budget.put_s, self._inner.changes(cursor))

    async def usage(self, tenant: str | None) -> StoreStats:
        """See `ExactStore.usage`."""
        if self._reads.reason is not None:
            raise StoreError("open")
        return await _within(self._budget.put_s, self._inner.usage(tenant))

    async def ready(self) -> None:
        """Ask the store itself. A failure opens the breaker, a success closes it."""
        try:
            await _within(self._budget.put_s, self._inner.ready())
        except StoreError as error:
            self._reads.failures = self._budget.failures
            self._failed(self._reads, error, self._clock())
            raise
        if self._reads.reason is not None:
            self._writes.succeed()
        self._succeeded(self._reads)

    async def close(self) -> None:
        """See `ExactStore.close`."""
        self._closed = True
        if self._probe is not None:
            self._probe.cancel()
            with suppress(asyncio.CancelledError):
                await self._probe
        with suppress(StoreError):
            await _within(self._budget.purge_s, self._inner.close())

    async def _timed(
        self,
        operation: Literal["put", "purge"],
        size: int,
        seconds: float,
        call: Callable[..., Awaitable[_T]],
        *args: object,
    ) -> _T:
        started, outcome = self._clock(), "cancelled"
        try:
            if operation == "put" and self._reads.reason is not None:
                raise StoreError("open")  # The probe tries, so that no answer waits for it.
            result = await self._write(seconds, call, *args)
            outcome = "ok"
        except StoreError as error:
            outcome = error.reason
            raise
        finally:
            took = self._clock() - started
            self._observe(StoreOperation(self.name, operation, outcome, took, size))
        return result

    async def _read(self, call: Callable[..., Awaitable[_T]], *args: object) -> _T:
        if self._reads.reason is not None:
            raise StoreError("open")
        return await self._run(self._reads, self._budget.get_s, call(*args))

    async def _write(self, seconds: float, call: Callable[..., Awaitable[_T]], *args: object) -> _T:
        now = self._clock()
        if self._writes.reason is not None:
            if now < self._writes.retry_at:
                raise StoreError("open")
            self._writes.retry_at = now + self._budget.probe_s
        return await self._run(self._writes, seconds, call(*args))

    async def _run(self, breaker: _Breaker, seconds: float, work: Awaitable[_T]) -> _T:
        began = self._clock()
        try:
            result = await _within(seconds, work)
        except StoreError as error:
            self._failed(breaker, error, began)
            raise
        self._succeeded(breaker)
        return result

    def _succeeded(self, breaker: _Breaker) -> None:
        if breaker.failures or self._state is None:
            breaker.succeed()
            self._tell()

    def _failed(self, breaker: _Breaker, error: StoreError, began: float) -> None:
        if error.reason in _OURS:
            return
        now = self._clock()
        breaker.fail(error, began, now)
        breaker.retry_at = now + self._budget.probe_s
        if breaker.reason is not None:
            self._tell()
        if self._reads.reason is not None and self._probe is None and not self._closed:
            self._probe = asyncio.get_running_loop().create_task(self._probing())

    def _tell(self) -> None:
        """Tell the state if it is another than the one told last."""
        state: Literal["up", "degraded", "down"] = "up"
        reason = ""
        if self._reads.reason is not None:
            state, reason = "down", self._reads.reason
        elif self._writes.reason is not None:
            state, reason = "degraded", self._writes.reason
        if state != self._state:
            self._state = state
            self._observe(StoreState(self.name, state, reason))

    async def _probing(self) -> None:
        try:
            while self._reads.reason is not None:
                await asyncio.sleep(self._budget.probe_s)
                with suppress(StoreError):
                    await _within(self._budget.put_s, self._inner.ready())
                    self._reads.succeed()
                    self._writes.succeed()  # What failed while it was down says nothing about now.
        finally:
            self._probe = None
        self._tell()


async def _within(seconds: float, work: Awaitable[_T]) -> _T:
    """The result of `work`, or `StoreError("timeout")` after about `seconds`."""
    limit = asyncio.timeout(None)
    alarm = _Alarm(limit, seconds)
    try:
        async with limit:
            return await work
    except TimeoutError:
        raise StoreError("timeout", f"timeout: no answer within {seconds:g} s") from None
    except StoreError:
        raise
    except Exception as error:  # A store must never fail a request, whatever its library does.
        raise StoreError("internal", f"internal: {type(error).__name__}: {error}") from error
    finally:
        alarm.cancel()


class _Alarm:
    """Ends `limit` after `seconds`, in so far as the event loop was there to see an answer.

    While the loop itself comes late, an answer that has arrived may lie unread: the store is
    given as much time again, up to `_LONGEST` times `seconds` in all.
    """

    __slots__ = ("_due", "_last", "_limit", "_loop", "_timer")

    def __init__(self, limit: asyncio.Timeout, seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._limit = limit
        self._due = self._loop.time() + seconds
        self._last = self._due + (_LONGEST - 1) * seconds
        self._timer = self._loop.call_at(self._due, self._ring)

    def cancel(self) -> None:
        self._timer.cancel()

    def _ring(self) -> None:
        now = self._loop.time()
        late = now - self._due
        if late <= _STALL_S or now >= self._last:
            self._limit.reschedule(now)
        else:
            self._due = min(now + late, self._last)
            self._timer = self._loop.call_at(self._due, self._ring)

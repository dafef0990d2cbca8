"""A slow verifier shared by concurrent requests: batches, off the event loop, within a deadline.

In trouble it costs a request at most the deadline, and next to nothing once the breaker is open.
"""

from __future__ import annotations

import asyncio
import math
import queue
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from trivet.semantic.types import TextPair, Verdict, Verifier
from trivet.telemetry import Observer, StoreState, ignore

DEADLINE_S = 0.25
"""Seconds that a lookup waits for a verdict."""
_MAX_BATCH = 4
"""As many pairs took a model of 6 layers and width 384 up to half of the deadline (one core)."""
_QUEUE = 64
_SHARE = 4
"""No tenant takes more than this part of the queue."""
_FAILURES = 3
"""In a row, after which the breaker opens. Calls that are late together are one."""
_AGAIN_S = 2.0
"""Seconds until a call tries again what failed, while the breaker is open."""
_JOIN_S = 1.0

_Outcome = list[Verdict] | str
"""The verdicts, or what went wrong, for people."""
_Ended = Callable[[_Outcome], None]


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    """One pair on its way. Its future is done once nobody waits for it any more."""

    tenant: str
    pair: TextPair
    future: asyncio.Future[Verdict | str]


@dataclass(slots=True, eq=False)
class _Batch:
    """What the thread works on."""

    waiting: list[_Waiting]
    began: float
    counted: bool = False
    """Its lateness was counted as a failure, so its success is none."""


class BoundedVerifier:
    """A verifier for many coroutines of one event loop, in a thread of its own. Raises nothing.

    Without a verdict, the reason as a metric label: `verifier-timeout`, `verifier-crash`,
    `verifier-busy`, `verifier-open` (the breaker), `verifier-closed`.
    """

    def __init__(
        self, verifier: Verifier, deadline_s: float = DEADLINE_S, observer: Observer = ignore
    ) -> None:
        self._deadline_s = deadline_s
        self._observe = observer
        self._name = verifier.name
        self._thread = _Thread(verifier)
        self._queue: list[_Waiting] = []
        self._batch: _Batch | None = None
        self._failures = 0
        self._counted_at = self._timely_at = self._again_at = -math.inf
        self._trouble = ""
        self._closed = False

    @property
    def trouble(self) -> str:
        """Why the breaker is open; empty while it is closed. For readiness."""
        return self._trouble

    async def verify(self, pair: TextPair, tenant: str = "") -> Verdict | str:
        """A verdict, or the reason why there is none. At most `deadline_s` seconds."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        refused = self._refused(tenant, began)
        if refused:
            return refused
        waiting = _Waiting(tenant, pair, loop.create_future())
        self._queue.append(waiting)
        if self._batch is None:
            # At the end of this turn of the loop, so that calls of one turn make one batch.
            loop.call_soon(self._next)
        try:
            await asyncio.wait((waiting.future,), timeout=self._deadline_s)
            if waiting.future.done():
                return waiting.future.result()
        finally:
            waiting.future.cancel()
        self._late(began)
        return "verifier-timeout"

    async def close(self) -> None:
        """Refuse what waits and let the thread end. A thread that hangs is left behind."""
        self._closed = True
        batch = [] if self._batch is None else self._batch.waiting
        _settle([*self._queue, *batch], "verifier-closed")
        self._queue.clear()
        await asyncio.to_thread(self._thread.close, _JOIN_S)

    def _refused(self, tenant: str, now: float) -> str:
        if self._closed:
            return "verifier-closed"
        if self._trouble and (self._batch is not None or now < self._again_at):
            return "verifier-open"
        own = sum(one.tenant == tenant for one in self._queue)
        return "verifier-busy" if len(self._queue) >= _QUEUE or own >= _QUEUE // _SHARE else ""

    def _next(self) -> None:
        if self._batch is not None or self._closed:
            return
        wanted = [one for one in self._queue if not one.future.done()]
        some, self._queue = wanted[:_MAX_BATCH], wanted[_MAX_BATCH:]
        if some:
            self._start(_Batch(some, asyncio.get_running_loop().time()))

    def _start(self, batch: _Batch) -> None:
        loop = asyncio.get_running_loop()
        self._batch = batch

        def ended(outcome: _Outcome) -> None:
            # A loop that was closed meanwhile has nobody who waits.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._ended, batch, outcome)

        try:
            self._thread.submit([one.pair for one in batch.waiting], ended)
        except RuntimeError as error:  # No thread can be started.
            loop.call_soon(self._ended, batch, str(error))

    def _ended(self, batch: _Batch, outcome: _Outcome) -> None:
        self._batch = None
        if self._closed:
            return
        if isinstance(outcome, str):
            _settle(batch.waiting, "verifier-crash")
            if not batch.counted:
                self._count(batch, outcome)
        else:
            for one, verdict in zip(batch.waiting, outcome, strict=True):
                _settle([one], verdict)
            self._succeeded(batch)
        self._next()

    def _late(self, began: float) -> None:
        """A call that began at `began` ran out of time, for a batch that is slow or hangs."""
        batch = self._batch
        if batch is None or self._timely_at >= began or began < self._counted_at:
            return  # It waited behind others' pairs, or was late together with others.
        self._count(batch, f"A verdict took more than {self._deadline_s:g} s.")

    def _count(self, batch: _Batch, told: str) -> None:
        now = asyncio.get_running_loop().time()
        batch.counted = True
        self._counted_at = now
        self._failures += 1
        if self._failures < _FAILURES and not self._trouble:
            return
        self._again_at = now + _AGAIN_S
        _settle(self._queue, "verifier-open")
        self._queue.clear()
        self._tell(told)

    def _succeeded(self, batch: _Batch) -> None:
        now = asyncio.get_running_loop().time()
        if now - batch.began > self._deadline_s:
            return
        self._timely_at = now
        if not batch.counted:
            self._failures = 0
            self._tell("")

    def _tell(self, trouble: str) -> None:
        before, self._trouble = self._trouble, trouble
        if bool(before) != bool(trouble):
            state = StoreState(f"verifier:{self._name}", "down" if trouble else "up", trouble)
            self._observe(state)


def _settle(some: Sequence[_Waiting], result: Verdict | str) -> None:
    for one in some:
        if not one.future.done():
            one.future.set_result(result)


class _Thread:
    """Runs batches one after the other, in a thread that starts with the first.

    It is a daemon, so that a model that hangs cannot keep the process from ending.
    """

    def __init__(self, verifier: Verifier) -> None:
        self._verifier = verifier
        self._jobs: queue.SimpleQueue[tuple[list[TextPair], _Ended] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def submit(self, pairs: list[TextPair], ended: _Ended) -> None:
        """Verify; `ended` is called in the thread, once. Raises `RuntimeError` if none starts."""
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="trivet-verifier", daemon=True)
            thread.start()
            self._thread = thread
        self._jobs.put((pairs, ended))

    def close(self, wait_s: float) -> None:
        """End after the job at hand. Waits at most `wait_s`."""
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join(wait_s)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            pairs, ended = job
            ended(self._outcome(pairs))

    def _outcome(self, pairs: list[TextPair]) -> _Outcome:
        try:
            found = self._verifier.verify(pairs)
        except BaseException as error:  # Somebody waits for this thread: nothing may end it.
            return f"{self._verifier.name} failed: {error!r}"
        if len(found) != len(pairs):
            return f"{self._verifier.name} gave {len(found)} verdicts for {len(pairs)} pairs."
        return found

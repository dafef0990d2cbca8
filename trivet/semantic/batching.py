"""An embedder shared by concurrent requests: batches, off the event loop, each text once.

In trouble it costs a request at most the deadline, and nothing once the breaker is open.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from trivet.errors import EmbedderError
from trivet.semantic.embedding_thread import EmbeddingThread, Outcome
from trivet.semantic.recent import RecentVectors
from trivet.semantic.types import Embedder
from trivet.telemetry import Observer, StoreState, ignore

if TYPE_CHECKING:
    from trivet.semantic.types import Vectors

_PROBE = "When is the library open on weekdays?"
_BATCH_CHARS = 4096
"""Characters of a batch: what waits behind it must not wait for 16 long texts."""
_SHARE, _LEAST = 4, 16
"""No tenant takes more than this part of the queue, or this many places."""
_FATAL = frozenset({"changed", "shape", "length"})
"""Reasons that another try will not change: they open the breaker at the first failure."""
_JOIN_S = 1.0

_Asked = tuple[str, str]
"""Tenant and text: vectors are shared within a tenant only, since a text that was embedded
before is answered sooner."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on what is queued and kept, and how the breaker goes about failures."""

    queue: int = 1024
    """Texts that wait or are being embedded; more are refused with reason `busy`."""
    recent_bytes: int = 16 << 20
    failures: int = 3
    """Failures in a row after which the breaker opens. Calls that are late together are one."""
    probe_s: float = 2.0
    """Seconds between two tries while it is open."""
    check_s: float = 30.0
    """Seconds after which the next batch first checks that the model is the one that was opened
    (`fingerprint_now`, where the embedder has it)."""


@dataclass(slots=True, eq=False)
class _Waiting:
    """One text on its way. `waiters` are the calls that still wait for it."""

    future: asyncio.Future[Vectors | EmbedderError]
    waiters: int = 0


@dataclass(slots=True, eq=False)
class _Batch:
    """What the thread works on. A probe asks for nobody."""

    asked: dict[_Asked, _Waiting] = field(default_factory=dict)
    began: float = 0.0
    counted: bool = False
    """Its lateness was counted as a failure, so its success is none."""


class BatchedEmbedder:
    """An embedder for many coroutines of one event loop. Raises `EmbedderError` and nothing else.

    The reasons: `timeout`, `busy`, `open` (the breaker), `changed` (the model on disk or behind
    the endpoint is another one), `closed`, and those of the embedder; what it raises beyond its
    contract is `crash`.
    """

    def __init__(
        self,
        embedder: Embedder,
        max_batch: int = 16,
        deadline_s: float = 0.5,
        limits: Limits = Limits(),
        observer: Observer = ignore,
    ) -> None:
        self.embedder = embedder
        self._max_batch, self._deadline_s, self._limits = max_batch, deadline_s, limits
        self._observe = observer
        self._store = f"embedder:{embedder.name}"
        self._recent = RecentVectors(limits.recent_bytes)
        self._queue: dict[_Asked, _Waiting] = {}
        self._batch: _Batch | None = None
        self._thread = EmbeddingThread(embedder, limits.check_s)
        self._probe: asyncio.Task[None] | None = None
        self._failures = 0
        self._counted_at = -math.inf
        self._timely_at = -math.inf
        """When a batch last ended that took no longer than the deadline."""
        self._refusal: EmbedderError | None = None
        self._state: Literal["up", "down"] | None = None
        self._closed = False

    @property
    def trouble(self) -> str:
        """Why the breaker is open; empty while it is closed. For readiness."""
        return "" if self._refusal is None else str(self._refusal)

    async def embed(self, text: str, tenant: str = "") -> Vectors:
        """The vector of a text, of shape (dimension,), read-only. At most `deadline_s` seconds.

        Within a tenant, equal texts that are in flight, or were embedded recently, are embedded
        once. A batch that is late goes on: a later call finds its vectors.
        """
        if self._closed:
            raise EmbedderError("closed", "The embedder was closed.")
        if self._refusal is not None:
            raise EmbedderError(_while_open(self._refusal), str(self._refusal))
        asked = tenant, text
        found = self._recent.get(asked)
        if found is not None:
            return found
        waiting = self._waiting(asked)
        began = asyncio.get_running_loop().time()
        waiting.waiters += 1
        try:
            await asyncio.wait((waiting.future,), timeout=self._deadline_s)
        finally:
            waiting.waiters -= 1
        if not waiting.future.done():
            self._late(began)
            raise EmbedderError("timeout", f"Embedding took more than {self._deadline_s:g} s.")
        result = waiting.future.result()
        if isinstance(result, EmbedderError):
            raise EmbedderError(result.reason, str(result))
        return result

    async def close(self) -> None:
        """Refuse what waits and let the thread end. A thread that hangs is left behind."""
        self._closed = True
        if self._probe is not None:
            self._probe.cancel()
            with suppress(asyncio.CancelledError):
                await self._probe
        error = EmbedderError("closed", "The embedder was closed.")
        self._settle({**self._queue, **(self._batch.asked if self._batch else {})}, error)
        self._queue.clear()
        await asyncio.to_thread(self._thread.close, _JOIN_S)

    def _waiting(self, asked: _Asked) -> _Waiting:
        running = self._batch.asked if self._batch else {}
        found = running.get(asked) or self._queue.get(asked)
        if found is not None:
            return found
        if len(running) + len(self._queue) >= self._limits.queue:
            raise EmbedderError("busy", f"{self._limits.queue} texts wait to be embedded.")
        tenant = _tenant(asked)
        if sum(_tenant(one) == tenant for one in self._queue) >= max(
            _LEAST, self._limits.queue // _SHARE
        ):
            raise EmbedderError("busy", "Too many of this tenant's texts wait to be embedded.")
        waiting = _Waiting(asyncio.get_running_loop().create_future())
        self._queue[asked] = waiting
        if self._batch is None:
            # At the end of this turn of the loop, so that calls of one turn make one batch.
            asyncio.get_running_loop().call_soon(self._next)
        return waiting

    def _next(self) -> None:
        if self._batch is not None or self._closed:
            return
        batch, chars = _Batch(), 0
        for asked in _in_turn(self._queue):
            if len(batch.asked) >= self._max_batch:
                break
            chars += min(len(asked[1]), _BATCH_CHARS)
            if batch.asked and chars > _BATCH_CHARS:
                break
            waiting = self._queue.pop(asked)
            if waiting.waiters:
                batch.asked[asked] = waiting
        if batch.asked:
            self._start(batch, [text for _, text in batch.asked])

    def _start(self, batch: _Batch, texts: list[str]) -> None:
        loop = asyncio.get_running_loop()
        self._batch, batch.began = batch, loop.time()

        def ended(outcome: Outcome) -> None:
            # A loop that was closed meanwhile has nobody who waits.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._ended, batch, outcome)

        try:
            self._thread.submit(texts, ended)
        except RuntimeError as error:  # No thread can be started.
            loop.call_soon(self._ended, batch, EmbedderError("crash", str(error)))

    def _ended(self, batch: _Batch, outcome: Outcome) -> None:
        self._batch = None
        if self._closed:
            return
        if isinstance(outcome, EmbedderError):
            self._settle(batch.asked, outcome)
            self._failed(outcome, batch)
        else:
            for (asked, waiting), result in zip(batch.asked.items(), outcome, strict=False):
                if not isinstance(result, EmbedderError):
                    self._recent.put(asked, result)
                waiting.future.set_result(result)
            if not all(isinstance(result, EmbedderError) for result in outcome):
                self._succeeded(batch)
        self._next()

    def _settle(self, asked: dict[_Asked, _Waiting], error: EmbedderError) -> None:
        for waiting in asked.values():
            if not waiting.future.done():
                waiting.future.set_result(error)

    def _late(self, began: float) -> None:
        """A call that began at `began` ran out of time, for a batch that is slow or hangs."""
        batch = self._batch
        if batch is None or self._timely_at >= began:
            return  # It waited behind others' texts, which says nothing about the model.
        if began >= self._counted_at:
            error = EmbedderError("timeout", f"Embedding took more than {self._deadline_s:g} s.")
            self._count(error, batch)

    def _failed(self, error: EmbedderError, batch: _Batch) -> None:
        if not batch.counted:
            self._count(error, batch)

    def _count(self, error: EmbedderError, batch: _Batch) -> None:
        batch.counted = True
        self._counted_at = asyncio.get_running_loop().time()
        self._failures += 1
        fatal = error.reason in _FATAL
        if self._refusal is None and not (fatal or self._failures >= self._limits.failures):
            return
        # Also while it is open: what answers again may be another model.
        self._refusal = error
        self._settle(self._queue, EmbedderError(_while_open(error), str(error)))
        self._queue.clear()
        if error.reason == "changed":
            self._recent.clear()
        self._tell("down", str(error))
        if self._probe is None or self._probe.done():
            self._probe = asyncio.get_running_loop().create_task(self._try_again())

    def _succeeded(self, batch: _Batch) -> None:
        now = asyncio.get_running_loop().time()
        took = now - batch.began
        if took <= self._deadline_s:
            self._timely_at = now
        if batch.counted or (self._refusal is not None and took > self._deadline_s):
            return
        self._failures, self._refusal = 0, None
        self._tell("up", "")

    async def _try_again(self) -> None:
        while True:
            await asyncio.sleep(self._limits.probe_s)
            if self._refusal is None:
                return
            if self._batch is None:
                self._start(_Batch(), [_PROBE])

    def _tell(self, state: Literal["up", "down"], reason: str) -> None:
        if state != self._state:
            self._state = state
            self._observe(StoreState(self._store, state, reason))


def _tenant(asked: _Asked) -> str:
    """Whose text it is; below a tenant, a scope may name a user after a line end."""
    return asked[0].partition("\n")[0]


def _in_turn(queue: Iterable[_Asked]) -> list[_Asked]:
    """What waits, one of each tenant at a time, so that none waits for all of another's."""
    turns: dict[str, int] = {}
    placed: list[tuple[int, _Asked]] = []
    for asked in queue:
        turn = turns[_tenant(asked)] = turns.get(_tenant(asked), -1) + 1
        placed.append((turn, asked))
    return [asked for _, asked in sorted(placed, key=lambda one: one[0])]


def _while_open(error: EmbedderError) -> str:
    return "changed" if error.reason == "changed" else "open"

"""The engine: event loops that submit and read, and one thread that steps the model.

Engine.submit      on an event loop
  │ Intake.read    checked, bounded, hashed; or a RequestError
  ▼
arrivals ─▶ Stepper.accept ─▶ Stepper.step ─▶ ...     on the engine's thread, see stepper.py
                                              │
Generation  ◀──── one wake-up a step ─────────┘       back on the event loop
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from trivet.errors import RequestError
from trivet.prefix.engine.engine_stats import EngineStats, tiers_of
from trivet.prefix.engine.generation import Generation, Output
from trivet.prefix.engine.intake import Intake
from trivet.prefix.engine.loaded_model import LoadedModel
from trivet.prefix.engine.sampling_params import SamplingParams
from trivet.prefix.engine.sequence import Sequence
from trivet.prefix.engine.settings import EngineSettings, Parts, build
from trivet.prefix.engine.stepper import Live, Stepper

__all__ = ["Engine", "EngineSettings", "EngineStats", "Generation", "Output"]

_PAUSE_S = 0.005
"""Between two looks at requests that all have to wait."""

_REFUSALS = {
    "queue-full": (503, "The engine has as many requests waiting as it takes."),
    "tenant-queue-full": (429, "This tenant has as many requests waiting as it may."),
    "draining": (503, "The engine is shutting down."),
}


class Engine:
    """One model on one block pool.

    `submit` and what it returns are for event loops, of any number; all else happens on the
    engine's thread, between `start` and `close`. `clock` gives seconds.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        settings: EngineSettings,
        *,
        parts: Parts | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        parts = parts or build(loaded, settings)
        self.pool, self.events = parts.pool, parts.events
        self.intake = Intake(loaded, settings, self.pool.capacity)
        self._memory = parts.runner.memory
        self.stepper = Stepper(parts, settings.limits, clock)
        self._clock = clock
        self._stalled = False
        self._thread = threading.Thread(target=self._run, name="trivet-engine", daemon=True)
        # What both sides touch, under the condition's lock.
        self._wake = threading.Condition()
        self._arrivals: list[Live] = []
        self._arriving: Counter[str] = Counter()
        self._cancelled: set[int] = set()
        self._refused: Counter[str] = Counter()
        self._number = 0
        self._draining = self._closing = False

    def start(self) -> None:
        """Start the thread, once what the first JSON schema would wait for is read."""
        self.intake.grammars.warm()
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether the thread runs: a defect that ended it ends all requests, and refuses others."""
        return self._thread.is_alive()

    def submit(
        self,
        prompt: list[int],
        params: SamplingParams,
        *,
        tenant: str,
        salt: str,
        deadline_s: float | None = None,
        reuse: bool = True,
    ) -> Generation:
        """Let a request wait for its turn. On the event loop that will read the answer.

        Prompts share KV if their salts are equal; `tenant` is whose account it is on, and a name
        in metrics. Raises `RequestError`: 400 for what can never be answered, 429 and 503 with a
        code (`queue-full`, `tenant-queue-full`, `draining`) for what can be later.
        """
        asked = self.intake.read(prompt, params, tenant, salt)
        now = self._clock()
        with self._wake:
            self._refuse(tenant)
            self._number += 1
            sequence = Sequence(self._number, tenant, asked.chain, list(prompt), asked.params, now)
            sequence.reuse = reuse
            sequence.deadline = None if deadline_s is None else now + deadline_s
            generation = Generation(self._number, len(prompt), self._cancel)
            self._arrivals.append(Live(sequence, asked.composer, generation))
            self._arriving[tenant] += 1
            self._wake.notify_all()
        return generation

    def _refuse(self, tenant: str) -> None:
        reason = "draining"
        if not self._draining:
            reason = self.stepper.scheduler.waiting.refusal(tenant, self._arriving)
        if reason:
            self._refused[reason] += 1
            status, message = _REFUSALS[reason]
            raise RequestError(status, message, code=reason)

    def _cancel(self, number: int) -> None:
        with self._wake:
            self._cancelled.add(number)
            self._wake.notify_all()

    async def close(self, drain_s: float = 0.0) -> None:
        """Take no more requests, let the others end for `drain_s` seconds, then end them.

        Returns once the thread has ended and all blocks are back. Idempotent.
        """
        with self._wake:
            self._draining = True
        if self._thread.is_alive():
            await asyncio.to_thread(self._drain, drain_s)
        else:
            self._end_all()

    def _drain(self, seconds: float) -> None:
        with self._wake:
            self._wake.wait_for(lambda: not (self.stepper.live or self._arrivals), seconds)
            self._closing = True
            self._wake.notify_all()
        self._thread.join()

    def stats(self) -> EngineStats:
        """From any thread."""
        memory, stepper = self._memory, self.stepper
        return EngineStats(
            pool=self.pool.state(),
            tiers=tuple(tiers_of(self.pool.offload)),
            tenants={name: replace(each) for name, each in self.pool.counters().items()},
            waiting=len(stepper.scheduler.waiting) + len(self._arrivals),
            running=len(stepper.scheduler.running),
            steps=stepper.steps,
            failed_steps=stepper.failed_steps,
            computed_tokens=stepper.computed,
            generated_tokens=stepper.generated,
            finished=dict(stepper.finished),
            refused=dict(self._refused),
            block_size=self.pool.block_size,
            block_bytes=memory.bytes_per_block,
            kv_bytes=memory.nbytes,
        )

    # On the engine's thread.

    def _run(self) -> None:
        try:
            while self._has_work():
                self._stalled = not self.turn()
        finally:
            # Also after a defect: whoever waits is told, and whoever comes is refused.
            self._end_all()

    def _has_work(self) -> bool:
        """Wait until there is some; False once the engine closes."""
        with self._wake:
            if not self.stepper.live:
                self._wake.notify_all()  # For `_drain`.
            if self._stalled:
                self._wake.wait_for(self._is_called, _PAUSE_S)
            self._wake.wait_for(lambda: self._is_called() or self.stepper.live)
            return not self._closing

    def _is_called(self) -> bool:
        return bool(self._closing or self._arrivals or self._cancelled)

    def turn(self) -> bool:
        """Take what arrived, and run one step. False if all requests have to wait.

        Called by the engine's thread, or by a test that starts none.
        """
        self._take()
        return self.stepper.step()

    def _take(self) -> None:
        with self._wake:
            for live in self._arrivals:
                self.stepper.accept(live)
            for number in self._cancelled:
                self.stepper.end(number, "cancelled")
            self._arrivals.clear()
            self._arriving.clear()
            self._cancelled.clear()

    def _end_all(self) -> None:
        with self._wake:
            self._draining = True
        self._take()
        for number in [*self.stepper.live]:
            self.stepper.end(number, "cancelled")
        self.stepper.send()

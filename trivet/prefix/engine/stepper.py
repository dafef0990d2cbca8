"""The engine's thread, step by step: who computes, what came of it, who has ended.

Scheduler.plan      who computes what in this step, with which blocks
  ▼
Runner.run          the model: KV into the blocks, logits out
  ▼
Scheduler.done      sound KV may be shared
  ▼
sampler.draw        one token for each sequence that was computed to its end
  ▼
Composer.take       its text, or the end of the answer
  ▼
Scheduler.token     a block for its KV; or `finish`, and all blocks are back
  ▼
Mailbox.send        all parts of the step, one wake-up for each event loop
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch

from trivet.prefix.engine.composer import Composer
from trivet.prefix.engine.generation import Generation, Mailbox, Output
from trivet.prefix.engine.runner import Piece
from trivet.prefix.engine.sampler import Drawn, draw, usable
from trivet.prefix.engine.scheduler import Limits, Plan, Scheduler
from trivet.prefix.engine.sequence import Chunk, Finish, Sequence
from trivet.prefix.engine.settings import Parts

_log = logging.getLogger("trivet.engine")


class Live(NamedTuple):
    """One request that has not ended."""

    sequence: Sequence
    composer: Composer
    generation: Generation


class Stepper:
    """Owns scheduler, model and requests; for one thread. `clock` gives seconds."""

    def __init__(self, parts: Parts, limits: Limits, clock: Callable[[], float]) -> None:
        self.live: dict[int, Live] = {}
        """All requests that have not ended, by number."""
        self.scheduler = Scheduler(parts.pool, limits, parts.runner.grid)
        self.steps = 0
        self.failed_steps = 0
        """Steps that raised."""
        self.computed = 0
        """Tokens that went through the model."""
        self.generated = 0
        self.finished: Counter[Finish] = Counter()
        self._runner = parts.runner
        self._mailbox = Mailbox()
        self._clock = clock

    def accept(self, live: Live) -> None:
        """Let a request wait; it ends at once with `error` if it may not."""
        self.live[live.sequence.number] = live
        if self.scheduler.add(live.sequence):
            # Whoever submits it asks before, so it is one that its account can never hold.
            self.end(live.sequence.number, "error")

    def end(self, number: int, finish: Finish) -> None:
        """End a request without a further token, unless it has ended."""
        live = self.live.get(number)
        if live is not None:
            self._close(live, live.composer.end(finish))

    def send(self) -> None:
        """Hand out what has come of it."""
        for generation in self._mailbox.send():
            generation.cancel()

    def step(self) -> bool:
        """Run the model once. False if nothing could be computed: all wait."""
        plan = Plan()
        try:
            plan = self.scheduler.plan(self._clock())
            for sequence, finish in plan.ended:
                self.end(sequence.number, finish)
            if plan.chunks:
                with torch.inference_mode():
                    self._compute(plan.chunks)
        except Exception:
            # Torch, its driver, or a defect: nothing is known of the step but whom it was for.
            self.failed_steps += 1
            _log.exception("a step of the engine failed")
            hit = [chunk.sequence for chunk in plan.chunks]
            self._fail(hit or [live.sequence for live in self.live.values()])
        self.send()
        return bool(plan.chunks)

    def _compute(self, chunks: list[Chunk]) -> None:
        """One step. Each chunk's KV and logits are looked at, wanted or not.

        KV is shared only where both are numbers: what a masked slot held need not show in one of
        them alone.
        """
        ends = [chunk.sampled for chunk in chunks]
        logits = self._runner.run([_piece(chunk) for chunk in chunks])
        unsound = {*self._runner.broken}
        sound = [good and at not in unsound for at, good in enumerate(usable(logits))]
        self.steps += 1
        self.computed += sum(chunk.stop - chunk.start for chunk in chunks)
        for chunk, good in zip(chunks, sound, strict=True):
            if good:
                self.scheduler.done(chunk)
        broken = [chunk.sequence for chunk, good in zip(chunks, sound, strict=True) if not good]
        if broken:
            _log.error("the model gave no numbers for %d sequences", len(broken))
            self._fail(broken)
        rows = [at for at, good in enumerate(sound) if good and ends[at]]
        self._draw(logits[rows], [self.live[chunks[at].sequence.number] for at in rows])

    def _draw(self, logits: torch.Tensor, lives: list[Live]) -> None:
        going_on: list[tuple[Sequence, int]] = []
        for live, drawn in zip(
            lives, draw(logits, [live.composer.sampler for live in lives]), strict=True
        ):
            part = _taken(live, drawn)
            self.generated += len(part.tokens)
            if part.finish:
                self._close(live, part)
            else:
                going_on.append((live.sequence, drawn.token))
                self._mailbox.put(live.generation, part, live.sequence.cached_tokens)
        # Behind all that ended: their blocks may be what these need.
        for sequence, token in going_on:
            self.scheduler.token(sequence, token)

    def _fail(self, sequences: Iterable[Sequence]) -> None:
        """End these with `error`. Their blocks may hold NaN, which would reach whoever gets them:
        a padded slot is read with weight 0, and 0 times NaN is NaN."""
        doomed = [*sequences]
        blocks = [
            block
            for sequence in doomed
            if sequence.table is not None
            for block in sequence.table.blocks[sequence.table.committed :]
        ]
        try:
            if blocks:
                self._runner.memory.scrub(blocks)
        except Exception:
            # As in `step`: if the device is gone, so is what the blocks held.
            _log.exception("blocks could not be zeroed")
        for sequence in doomed:
            self.end(sequence.number, "error")

    def _close(self, live: Live, part: Output) -> None:
        self.scheduler.finish(live.sequence)
        del self.live[live.sequence.number]
        if part.finish is not None:
            self.finished[part.finish] += 1
        self._mailbox.put(live.generation, part, live.sequence.cached_tokens)


def _taken(live: Live, drawn: Drawn) -> Output:
    try:
        return live.composer.take(drawn)
    except Exception:
        # The tokenizer or the grammar on this answer's tokens: the others have nothing of it.
        _log.exception("an answer could not be read")
        return live.composer.end("error")


def _piece(chunk: Chunk) -> Piece:
    sequence = chunk.sequence
    assert sequence.table is not None
    tokens = sequence.tokens[chunk.start : chunk.stop]
    return Piece(tokens, chunk.start, sequence.table.blocks, wants_logits=True)

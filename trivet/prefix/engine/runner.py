"""Runs the model over pieces of sequences: tokens and block tables in, logits out.

Bitwise mode. Sums of floats depend on how they are split, and kernels split by shape, so a token's
KV usually differs in its last bits between a prompt that was computed whole and one that was
continued from the cache (He et al. 2025, "Defeating Nondeterminism in LLM Inference"). Here the
shapes never differ: a prompt is computed in chunks of `grid` tokens counted from position 0, its
last chunk in what is left, every other token alone, one chunk a forward, and attention reads keys
through a copy of the same length and layout each time. Which chunk a prompt token is in depends on
its position and, in the last chunk alone, on the prompt's length. So whole chunks of prompts have
the same bits whoever computed them, if only they are offered to others: blocks that a last chunk or
decoding filled came about in other shapes and are never committed. It assumes that one shape gives
the same bits twice: the same machine, thread count and library versions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from trivet.prefix.engine.attention import Span, Step, attending
from trivet.prefix.engine.kv_memory import KvMemory
from trivet.prefix.engine.loaded_model import LoadedModel

Determinism = Literal["", "bitwise"]


@dataclass(frozen=True, slots=True)
class Piece:
    """One sequence's part of a step.

    `tokens` come behind `start` others whose KV is in `blocks`, and get theirs written there.
    """

    tokens: Sequence[int]
    start: int
    blocks: Sequence[int]
    wants_logits: bool
    """Of the last token."""


class Runner:
    """A model on a KV memory of its own. Not for two threads at once.

    `grid` is 1, or in bitwise mode the block size: longer pieces then start on a multiple of it,
    and end on one unless the prompt ends there.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        blocks: int,
        block_size: int = 16,
        *,
        determinism: Determinism = "",
    ) -> None:
        self.memory = KvMemory(
            loaded.layers, blocks, block_size, dtype=loaded.dtype, device=loaded.device
        )
        self.broken: list[int] = []
        """Places in the last `run`'s pieces whose KV is not all numbers: not to be committed, and
        to be scrubbed before another sequence gets the blocks."""
        self.grid = block_size if determinism == "bitwise" else 1
        self._model = loaded.model
        self._facts = loaded.facts

    def run(self, pieces: Sequence[Piece]) -> torch.Tensor:
        """Logits (pieces that want them, vocabulary), float32, in the order of the pieces.

        A row may hold NaN. Raises `ValueError` for pieces that cannot be run, before anything is
        written, and what torch raises (`RuntimeError`); then no block of the step may be committed.
        """
        for piece in pieces:
            self._check(piece)
        found: set[int] = set()
        rows = [torch.empty(0, self._facts.vocabulary, device=self.memory.device)]
        with torch.inference_mode():
            for at, some in self._forwards(pieces):
                made, broken = self._step(some)
                rows.append(made)
                found.update(at + place for place in broken)
            self.broken = sorted(found)
            return rows[1] if len(rows) == 2 else torch.cat(rows)

    def _forwards(self, pieces: Sequence[Piece]) -> Iterator[tuple[int, Sequence[Piece]]]:
        """What is run at once, with the place of its first piece."""
        if self.grid == 1 and pieces:
            yield 0, pieces
        elif self.grid > 1:
            for at, piece in enumerate(pieces):
                yield from ((at, [part]) for part in _on_grid(piece, self.grid))

    def _check(self, piece: Piece) -> None:
        tokens, stop = piece.tokens, piece.start + len(piece.tokens)
        if not tokens or stop > len(piece.blocks) * self.memory.block_size:
            raise ValueError("a piece has a token, and blocks for all up to its last one")
        if stop > self._facts.context:
            raise ValueError(f"token {stop} is behind the model's {self._facts.context}")
        # On a GPU an id that the embedding does not have ends the process.
        if min(tokens) < 0 or max(tokens) >= self._facts.vocabulary:
            raise ValueError(f"a token id is not below the vocabulary {self._facts.vocabulary}")
        if len(tokens) > 1 and piece.start % self.grid:
            raise ValueError(f"in bitwise mode chunks start on multiples of {self.grid}")

    def _step(self, pieces: Sequence[Piece]) -> tuple[torch.Tensor, list[int]]:
        order = sorted(range(len(pieces)), key=lambda at: _place(pieces[at]))
        spans = [_span(pieces[at]) for at in order]
        tokens = np.concatenate([np.asarray(pieces[at].tokens, np.int64) for at in order])
        positions = np.concatenate([np.arange(span.start, span.stop) for span in spans])
        ends = np.cumsum([span.tokens for span in spans]) - 1
        last = dict(zip(order, ends.tolist(), strict=True))
        wanted = [last[at] for at, piece in enumerate(pieces) if piece.wants_logits]
        step = Step(spans, self.memory, copied=self.grid > 1)
        with attending(step):
            made = self._model(
                input_ids=self._row(tokens),
                position_ids=self._row(positions),
                use_cache=False,
                logits_to_keep=torch.tensor(wanted, dtype=torch.int64, device=self.memory.device),
            )
        return made.logits[0].float(), self._broken(step, order, ends)

    def _broken(self, step: Step, order: Sequence[int], ends: np.ndarray) -> list[int]:
        finite = np.ones(ends[-1] + 1, bool) if step.finite is None else step.finite.cpu().numpy()
        whole = np.logical_and.reduceat(finite, np.concatenate([[0], ends[:-1] + 1]))
        return [order[at] for at in np.flatnonzero(~whole).tolist()]

    def _row(self, values: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(values)[None].to(self.memory.device)


def _place(piece: Piece) -> tuple[bool, int]:
    """Single tokens first, the longest context first, as `Step` has them."""
    return len(piece.tokens) > 1, -piece.start


def _span(piece: Piece) -> Span:
    return Span(piece.start, len(piece.tokens), np.asarray(piece.blocks, np.int64))


def _on_grid(piece: Piece, grid: int) -> Iterator[Piece]:
    count = len(piece.tokens)
    for at in range(0, count, grid):
        tokens = piece.tokens[at : at + grid]
        wants = piece.wants_logits and at + grid >= count
        yield Piece(tokens, piece.start + at, piece.blocks, wants)

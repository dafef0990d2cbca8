"""A model that is no model: its next token depends on every token and position that it reads.

It keeps tokens and positions where a model keeps keys and values, and reads them through the block
table. So a wrong block, a block that was shared before it was computed, or one that was overwritten
gives another token than `answer` does.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, cast

import torch

from trivet.prefix.engine.engine import Engine, EngineSettings
from trivet.prefix.engine.kv_memory import KvMemory, LayerKv
from trivet.prefix.engine.loaded_model import LoadedModel, ModelFacts
from trivet.prefix.engine.runner import Piece, Runner
from trivet.prefix.engine.sampling_params import SamplingParams
from trivet.prefix.engine.scheduler import Limits
from trivet.prefix.engine.sequence import Sequence as Request
from trivet.prefix.engine.settings import Parts
from trivet.prefix.pool.blocks import BlockPool
from trivet.prefix.pool.events import EventLog
from trivet.prefix.pool.hashing import BlockChain, BlockHasher, Namespace
from trivet.prefix.pool.offload import OffloadTier
from trivet.prefix.pool.shares import Shares

torch.set_num_threads(1)

SIZE = 4
"""Tokens in a block."""
VOCABULARY = 32
END = 1
LAYER = LayerKv(1, 1, 1)


def chain(tokens: Sequence[int], salt: str) -> BlockChain:
    return BlockHasher(Namespace("fake"), salt, block_size=SIZE).chain(tokens)


def request(number: int, tokens: Sequence[int], tenant: str = "acme", *, most: int = 8) -> Request:
    made = chain(tokens, f"{tenant}-salt")
    return Request(number, tenant, made, list(tokens), SamplingParams(most), 0.0)


@lru_cache(100_000)
def scores(tokens: tuple[int, ...]) -> torch.Tensor:
    """(VOCABULARY,) logits after these tokens; the end token is never likely."""
    chance = random.Random(repr(tokens))
    made = torch.tensor([chance.gauss(0, 2) for _ in range(VOCABULARY)])
    made[END] = -20.0
    return made


def answer(prompt: Sequence[int], count: int) -> list[int]:
    """The greedy answer, without blocks."""
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(int(scores(tuple(tokens)).argmax()))
    return tokens[len(prompt) :]


class FakeRunner:
    """Stands in for `Runner`; `nan_token` is one that gives NaN, `failing` raises once."""

    def __init__(self, blocks: int, grid: int = 1) -> None:
        self.memory = KvMemory([LAYER], blocks, SIZE, dtype=torch.float32)
        self.grid = grid
        self.broken: list[int] = []
        self.nan_token: int | None = None
        self.failing: Exception | None = None
        self.steps: list[list[int]] = []
        """Tokens in each piece of each step."""

    def run(self, pieces: Sequence[Piece]) -> torch.Tensor:
        self.steps.append([len(piece.tokens) for piece in pieces])
        for piece in pieces:
            self._write(piece)
        if self.failing is not None:
            failed, self.failing = self.failing, None
            self._spoil(pieces)
            raise failed
        return torch.stack([self._logits(piece) for piece in pieces if piece.wants_logits])

    def _write(self, piece: Piece) -> None:
        for at, token in enumerate(piece.tokens, piece.start):
            block, place = piece.blocks[at // SIZE], at % SIZE
            self.memory.keys[0][block, place, 0, 0] = token
            self.memory.values[0][block, place, 0, 0] = at

    def _spoil(self, pieces: Sequence[Piece]) -> None:
        for piece in pieces:
            for at in range(piece.start, piece.start + len(piece.tokens)):
                self.memory.keys[0][piece.blocks[at // SIZE], at % SIZE] = float("nan")

    def _logits(self, piece: Piece) -> torch.Tensor:
        stop = piece.start + len(piece.tokens)
        rows = torch.tensor(piece.blocks)
        # All slots of the blocks are read, as a kernel reads padding: NaN there is NaN here.
        padding = self.memory.keys[0][rows].sum() * 0
        tokens = self.memory.keys[0][rows].flatten()[:stop].tolist()
        places = self.memory.values[0][rows].flatten()[:stop].tolist()
        if padding.isnan() or self.nan_token in tokens:
            return torch.full((VOCABULARY,), float("nan"))
        assert places == list(range(stop)), "a block of another place"
        return scores(tuple(int(token) for token in tokens))


class Letters:
    """A tokenizer whose tokens are letters."""

    def decode(self, tokens: Sequence[int], **_: Any) -> str:
        return "".join(chr(ord("a") + token % 26) for token in tokens)


def facts(context: int = 200) -> ModelFacts:
    return ModelFacts(
        name="fake", context=context, vocabulary=VOCABULARY, end_tokens=frozenset({END}),
        revision="1", tokenizer="letters", dtype="float32", layout="fake",
    )  # fmt: skip


class Clock:
    """Seconds, as the test says."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def engine_of(
    blocks: int = 64,
    *,
    limits: Limits | None = None,
    shares: Shares | None = None,
    offload: OffloadTier | None = None,
    grid: int = 1,
    context: int = 200,
    clock: Clock | None = None,
    platform: tuple[tuple[int, ...], ...] = (),
) -> tuple[Engine, FakeRunner]:
    """An engine on a fake model, without a thread: `turn` steps it."""
    runner = FakeRunner(blocks, grid)
    events = EventLog()
    shares = shares or Shares()
    pool = BlockPool(blocks, SIZE, shares=shares, offload=offload, emit=events)
    loaded = LoadedModel(facts(context), None, Letters(), (LAYER,), torch.float32)
    settings = EngineSettings(
        0, block_size=SIZE, limits=limits or Limits(), shares=shares, platform=platform
    )
    parts = Parts(cast(Runner, runner), pool, events)
    return Engine(loaded, settings, parts=parts, clock=clock or Clock()), runner

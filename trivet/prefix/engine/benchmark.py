"""What the prefix cache saves with one model on this machine: `trivet engine bench`.

Prompts are random tokens, so nothing hits but what is meant to; answers are greedy. Times are wall
clock, from `submit` on, medians of the rounds.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from statistics import median

from trivet.errors import ConfigError, Problem
from trivet.prefix.engine.engine import Engine
from trivet.prefix.engine.kv_memory import bytes_per_token
from trivet.prefix.engine.loaded_model import LoadedModel
from trivet.prefix.engine.sampling_params import SamplingParams
from trivet.prefix.engine.settings import EngineSettings

_TENANT = "bench"
_SPARE_BLOCKS = 1


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes in tokens, and how often each thing is measured."""

    prefix: int = 2048
    tail: int = 64
    rounds: int = 5
    batch: int = 16
    prompt: int = 32
    """Of the generations, which make `answer` tokens each."""
    answer: int = 64
    conversations: int = 6
    turns: int = 8
    system: int = 120
    """What all conversations begin with."""
    added: int = 96
    """By each turn: an answer and the next question."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured value. Times are milliseconds."""

    name: str
    value: float
    unit: str


class Benchmark:
    """Measures one model. No part finds another's KV: each makes prompts of its own."""

    def __init__(self, loaded: LoadedModel, settings: EngineSettings, shape: Shape) -> None:
        self._loaded = loaded
        self._settings = settings
        self.shape = shape
        self._random = random.Random(20)

    def check(self) -> None:
        """Raise `ConfigError` where the model or the memory is too small for the shape."""
        shape = self.shape
        facts, layers = self._loaded.facts, self._loaded.layers
        talk = shape.system + shape.turns * shape.added
        longest = max(shape.prefix + shape.tail, talk, shape.prompt + shape.answer) + 1
        if longest > facts.context:
            message = (
                f"the longest prompt here has {longest} tokens (a prefix and its tail, or a chat"
                f" of {talk}); the model takes {facts.context}"
            )
            raise _problem("--prefix", message)
        settings = self._settings
        each = settings.block_size * bytes_per_token(layers, self._loaded.dtype)
        needed = each * (2 * -(-longest // settings.block_size) + _SPARE_BLOCKS)
        if settings.kv_memory < needed:
            raise _problem("--kv-memory", f"at least {needed:,} bytes are needed for these sizes")

    def tokens(self, count: int) -> list[int]:
        """A prompt that shares no block with another one."""
        most = self._loaded.facts.vocabulary - 1
        return [self._random.randint(0, most) for _ in range(count)]

    @asynccontextmanager
    async def engine(self, settings: EngineSettings | None = None) -> AsyncIterator[Engine]:
        """A running engine, warmed up by one short request."""
        made = Engine(self._loaded, settings or self._settings)
        made.start()
        try:
            await first_token(made, self.tokens(self.shape.tail))
            yield made
        finally:
            await made.close()

    async def first_tokens(self, engine: Engine) -> list[Figure]:
        """Time to first token of prefix and tail, cold and with the prefix cached."""
        shape = self.shape
        cold, warm = [], []
        for _ in range(shape.rounds):
            prefix = self.tokens(shape.prefix)
            cold.append(await first_token(engine, prefix + self.tokens(shape.tail)))
            warm += [await first_token(engine, prefix + self.tokens(shape.tail)) for _ in range(3)]
        stats = engine.stats()
        return [
            Figure("cold: time to first token", median(cold) * 1e3, "ms"),
            Figure("warm: time to first token", median(warm) * 1e3, "ms"),
            Figure("cold over warm", median(cold) / median(warm), "x"),
            Figure("KV of a token", stats.block_bytes / stats.block_size, "B"),
        ]

    async def restored(self) -> list[Figure]:
        """Time to first token of a prefix that host memory gives back, beside a cold one's."""
        shape, size = self.shape, self._settings.block_size
        blocks = -(-(shape.prefix + shape.tail) // size) + _SPARE_BLOCKS
        per_block = size * bytes_per_token(self._loaded.layers, self._loaded.dtype)
        small = replace(
            self._settings,
            kv_memory=blocks * per_block,
            host_memory=4 * blocks * per_block,
            disk_memory=0,
        )
        cold, restored = [], []
        async with self.engine(small) as engine:
            for _ in range(shape.rounds):
                prefix = self.tokens(shape.prefix)
                cold.append(await first_token(engine, prefix + self.tokens(shape.tail)))
                await first_token(engine, self.tokens(shape.prefix + shape.tail))
                restored.append(await first_token(engine, prefix + self.tokens(shape.tail)))
            saved = engine.pool.counters()[_TENANT].offload_hits
        return [
            Figure("restored from host: time to first token", median(restored) * 1e3, "ms"),
            Figure("cold over restored", median(cold) / median(restored), "x"),
            Figure("tokens of it that host memory gave", saved / shape.rounds, "tok"),
        ]

    async def generated(self, engine: Engine, batch: int) -> Figure:
        """Tokens a second of `batch` answers at once, prompts included in the time."""
        shape, rates = self.shape, []
        params = SamplingParams(shape.answer, temperature=0, ignore_eos=True)
        for _ in range(shape.rounds):
            prompts = [self.tokens(shape.prompt) for _ in range(batch)]
            began = time.perf_counter()
            await asyncio.gather(*(whole(engine, prompt, params) for prompt in prompts))
            rates.append(batch * shape.answer / (time.perf_counter() - began))
        return Figure(f"{batch} at once: generated", median(rates), "tok/s")

    async def conversed(self) -> list[Figure]:
        """Prompt tokens a second over a chat trace, with the cache and without it."""
        shape = self.shape
        rounds = max(1, shape.rounds // 2)
        with_, without, shares, gains = [], [], [], []
        count = sum(len(prompt) for turn in self.trace() for prompt in turn)
        async with self.engine() as engine:
            counters = engine.pool.counters()[_TENANT]
            for _ in range(rounds):
                before = counters.hits
                warm = [await played(engine, self.trace())]
                cold = await played(engine, self.trace(), reuse=False)
                # Short beside the cold one: one on each side of it and one more, so that what else
                # the machine does is in both.
                warm += [await played(engine, self.trace()) for _ in range(2)]
                share = (counters.hits - before) / len(warm) / count
                with_.append(count / median(warm))
                without.append(count / cold)
                shares.append(share)
                gains.append(cold / median(warm) * (1 - share))
        return [
            Figure("chat trace: prompt tokens cached", median(shares) * 100, "%"),
            Figure("chat trace: prompt tokens, no reuse", median(without), "tok/s"),
            Figure("chat trace: prompt tokens", median(with_), "tok/s"),
            Figure("chat trace: gain over 1/(1 - cached share)", median(gains), ""),
        ]

    def trace(self) -> list[list[list[int]]]:
        """Turns, each with the prompt of every conversation that has come so far."""
        shape = self.shape
        system = self.tokens(shape.system)
        talks = [system[:] for _ in range(shape.conversations)]
        turns = []
        for _ in range(shape.turns):
            for talk in talks:
                talk += self.tokens(shape.added)
            turns.append([talk[:] for talk in talks])
        return turns


async def first_token(engine: Engine, prompt: list[int], *, reuse: bool = True) -> float:
    """Seconds from `submit` to the first token, greedy."""
    params = SamplingParams(1, temperature=0, ignore_eos=True)
    return await whole(engine, prompt, params, reuse=reuse)


async def whole(
    engine: Engine, prompt: list[int], params: SamplingParams, *, reuse: bool = True
) -> float:
    """Seconds from `submit` to the end of the answer."""
    began = time.perf_counter()
    generation = engine.submit(prompt, params, tenant=_TENANT, salt=_TENANT, reuse=reuse)
    async for part in generation:
        if part.finish not in (None, "length"):
            raise RuntimeError(f"a request of the benchmark ended with {part.finish}")
    return time.perf_counter() - began


async def played(
    engine: Engine, turns: Sequence[Sequence[list[int]]], *, reuse: bool = True
) -> float:
    """Seconds for all prompts, one token each; a turn begins when the one before has ended."""
    began = time.perf_counter()
    for turn in turns:
        await asyncio.gather(*(first_token(engine, prompt, reuse=reuse) for prompt in turn))
    return time.perf_counter() - began


async def measured(benchmark: Benchmark) -> AsyncIterator[Figure]:
    """All parts, one figure after the other as they are known."""
    async with benchmark.engine() as engine:
        for figure in await benchmark.first_tokens(engine):
            yield figure
        for batch in (1, benchmark.shape.batch):
            yield await benchmark.generated(engine, batch)
    for part in (benchmark.restored, benchmark.conversed):
        for figure in await part():
            yield figure


def _problem(option: str, message: str) -> ConfigError:
    return ConfigError(Problem("trivet engine bench", 0, 0, option, message))

"""The engine on real, tiny models: a hit changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from loop_builders import Letters
from tiny_models import VOCABULARY, loaded, unpaged

from trivet.prefix.engine.engine import Engine, EngineSettings, Generation
from trivet.prefix.engine.kv_memory import bytes_per_token
from trivet.prefix.engine.loaded_model import LoadedModel
from trivet.prefix.engine.sampler import Drawn
from trivet.prefix.engine.sampling_params import SamplingParams
from trivet.prefix.engine.scheduler import Limits

SIZE = 8
ANSWER = 12


def model_of(architecture: str) -> LoadedModel:
    return replace(loaded(architecture), tokenizer=Letters())


def prompt_of(kind: int, tail: int) -> list[int]:
    """A long beginning that several share, and an end of its own."""
    chance = torch.Generator().manual_seed(kind)
    begun = torch.randint(0, VOCABULARY, (37,), generator=chance).tolist()
    return [*begun, *((tail * 31 + at * 7) % VOCABULARY for at in range(tail % 9))]


PROMPTS = [prompt_of(number % 4, number) for number in range(24)]


@cache
def plain(architecture: str, prompt: tuple[int, ...]) -> tuple[int, ...]:
    """The greedy answer of the model's own attention, all computed anew for each token."""
    tokens = list(prompt)
    for _ in range(ANSWER):
        tokens.append(int(unpaged(loaded(architecture), tokens)[-1].argmax()))
    return tuple(tokens[len(prompt) :])


def settings_of(model: LoadedModel, blocks: int, **changed: Any) -> EngineSettings:
    block = SIZE * bytes_per_token(model.layers, model.dtype)
    given = {"host_memory": 0, "disk_memory": 0, **changed}
    for name in ("host_memory", "disk_memory"):
        given[name] = int(str(given[name])) * block
    return EngineSettings(blocks * block, block_size=SIZE, **given)


@asynccontextmanager
async def running(model: LoadedModel, blocks: int, **changed: Any) -> AsyncIterator[Engine]:
    engine = Engine(model, settings_of(model, blocks, **changed))
    engine.start()
    try:
        yield engine
    finally:
        await engine.close()
        engine.pool.check_integrity()
        assert engine.pool.state().used == 0


def asked(engine: Engine, prompt: Sequence[int], **changed: Any) -> Generation:
    params = SamplingParams(ANSWER, 0.0, logprobs=1, **changed)
    return engine.submit(list(prompt), params, tenant="acme", salt="salt")


async def drawn_of(generation: Generation) -> list[Drawn]:
    return [drawn async for part in generation for drawn in part.logprobs or ()]


async def tokens_of(generation: Generation) -> tuple[int, ...]:
    return tuple(drawn.token for drawn in await drawn_of(generation))


@pytest.mark.parametrize("architecture", ["llama", "qwen3", "gemma2", "gpt2"])
async def test_crowded_cold_and_warm_answers_are_the_models_own(architecture: str) -> None:
    model = model_of(architecture)
    limits = Limits(max_running=8, step_tokens=24)
    async with running(model, 20, host_memory=10, disk_memory=20, limits=limits) as engine:
        for _ in range(2):
            answers = await asyncio.gather(*(tokens_of(asked(engine, each)) for each in PROMPTS))
            assert answers == [plain(architecture, tuple(each)) for each in PROMPTS]
        counters = engine.stats().tenants["acme"]
        assert counters.hits > 0
        assert counters.offload_hits > 0
        assert counters.preemptions > 0


async def test_in_bitwise_mode_hits_and_preemptions_change_no_bit() -> None:
    model = model_of("llama")
    prompts = PROMPTS[:8]
    cold: list[list[Drawn]] = []
    for prompt in prompts:
        async with running(model, 40, determinism="bitwise") as engine:
            cold.append(await drawn_of(asked(engine, prompt)))
    limits = Limits(max_running=6, step_tokens=20)
    async with running(model, 20, determinism="bitwise", limits=limits, host_memory=9) as engine:
        for _ in range(2):
            warm = await asyncio.gather(*(drawn_of(asked(engine, each)) for each in prompts))
            assert warm == cold
        counters = engine.stats().tenants["acme"]
        assert min(counters.hits, counters.preemptions) > 0


async def test_a_seed_gives_the_same_answer_alone_and_in_a_crowd() -> None:
    model = model_of("llama")
    params = SamplingParams(ANSWER, 0.9, top_p=0.9, seed=11, logprobs=0)

    async def seeded(engine: Engine, prompt: Sequence[int]) -> tuple[int, ...]:
        return await tokens_of(engine.submit(list(prompt), params, tenant="acme", salt="salt"))

    alone = []
    for prompt in PROMPTS[:6]:
        async with running(model, 40) as engine:
            alone.append(await seeded(engine, prompt))
    async with running(model, 24, limits=Limits(max_running=6, step_tokens=20)) as engine:
        crowd = await asyncio.gather(*(seeded(engine, prompt) for prompt in PROMPTS[:6]))
        assert crowd == alone
        assert engine.stats().tenants["acme"].preemptions > 0


async def test_the_memory_is_what_was_computed_and_never_grows() -> None:
    model = model_of("llama")
    async with running(model, 30) as engine:
        before = engine.stats().kv_bytes
        await asyncio.gather(*(tokens_of(asked(engine, each)) for each in PROMPTS))
        assert engine.stats().kv_bytes == before
        # 2 x layers x KV heads x head dim x bytes a token.
        assert before == 30 * SIZE * 2 * 3 * 2 * 8 * 4

"""Law 6 on a small random model of every architecture: the cache changes no token of an answer."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import tiny_models
import torch
from law6_rig import (
    SIZE,
    Answer,
    Asking,
    Unpaged,
    apart,
    memory,
    reusable,
    running,
    shared,
    three_tenants,
)
from loop_builders import Letters

from trivet.prefix.engine.engine import Engine, EngineSettings, Generation
from trivet.prefix.engine.loaded_model import LoadedModel
from trivet.prefix.engine.sampling_params import SamplingParams
from trivet.prefix.engine.scheduler import Limits
from trivet.prefix.engine.sequence import Finish

COUNT = 4
"""Tokens of an answer."""

TIE = 4e-5
"""Of logits whose spread is about 1: ten times what paged and unpaged attention differ by."""

MOST_TIES = 1
"""In the answers of 100 prompts."""

ROOM = 1024
"""Blocks: more than all prompts and answers take."""

LENGTHS = [1, *(line + off for line in (16, 32, 48, 64, 80, 96) for off in (-1, 0, 1)), 112]
TAILS = [0, 1, 5, 15, 16, 17, 30]

ARCHITECTURES = [*sorted(tiny_models.CONFIGS), "mla"]


@cache
def prompts() -> list[list[int]]:
    """100: twenty lengths of five common beginnings, each with a tail of its own."""
    chance = random.Random(6)

    def tokens(count: int) -> list[int]:
        return chance.choices(range(tiny_models.VOCABULARY), k=count)

    bases = [tokens(max(LENGTHS)) for _ in range(5)]
    made = [
        base[:length] + tokens(TAILS[(at + number) % len(TAILS)])
        for number, base in enumerate(bases)
        for at, length in enumerate(LENGTHS)
    ]
    chance.shuffle(made)
    return made


@cache
def model(architecture: str) -> LoadedModel:
    torch.set_num_threads(1)
    if architecture == "mla":
        one = tiny_models.adopted("DeepseekV3Config", tiny_models.MLA)
    else:
        one = tiny_models.loaded(architecture)
    return replace(one, tokenizer=Letters())


@cache
def unpaged(architecture: str) -> Unpaged:
    made = Unpaged(model(architecture), COUNT, TIE)
    for prompt in prompts():
        made.answer(prompt)
    return made


@pytest.fixture(params=ARCHITECTURES)
def architecture(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    unpaged(name)
    return name


def assert_equal(architecture: str, answers: list[Answer]) -> None:
    assert unpaged(architecture).ties_of(prompts(), answers) <= MOST_TIES


def settings(architecture: str, blocks: int = ROOM, **more: int) -> EngineSettings:
    """`host` and `disk` in blocks; a step's chunks of prompts end anywhere."""
    one = model(architecture)
    return EngineSettings(
        memory(one, blocks),
        block_size=SIZE,
        host_memory=memory(one, more.get("host", 0)),
        disk_memory=memory(one, more.get("disk", 0)),
        limits=Limits(step_tokens=more.get("step_tokens", 512)),
    )


def test_the_prompts_have_answers_of_their_own(architecture: str) -> None:
    answers = {unpaged(architecture).answer(prompt) for prompt in prompts()}
    assert len(prompts()) == len({(*prompt,) for prompt in prompts()}) == 100
    assert len(answers) >= 90


def test_without_the_cache_answers_are_those_of_generate(architecture: str) -> None:
    with running(model(architecture), settings(architecture)) as engine:
        Asking(COUNT, at_once=100).of(engine, prompts())
        answers = Asking(COUNT, reuse=False).of(engine, prompts())
    assert {answer.cached for answer in answers} == {0}
    assert_equal(architecture, answers)


def test_cold_answers_are_those_of_generate(architecture: str) -> None:
    with running(model(architecture), settings(architecture)) as engine:
        answers = Asking(COUNT, space=apart).of(engine, prompts())
    assert {answer.cached for answer in answers} == {0}
    assert_equal(architecture, answers)


def test_answers_on_prefixes_of_other_prompts_and_of_their_own_are_those_of_generate(
    architecture: str,
) -> None:
    with running(model(architecture), settings(architecture)) as engine:
        first, again = (Asking(COUNT).of(engine, prompts()) for _ in range(2))
    assert_equal(architecture, first)
    assert_equal(architecture, again)
    whole = [
        [*prompt, *answer.tokens[:-1]] for prompt, answer in zip(prompts(), first, strict=True)
    ]
    expected = [shared(prompt, whole[:at]) for at, prompt in enumerate(prompts())]
    assert [answer.cached for answer in first] == expected
    assert set(expected) >= {*range(0, 112, SIZE)}
    assert [answer.cached for answer in again] == [*map(reusable, prompts())]


def test_after_eviction_answers_are_those_of_generate(architecture: str) -> None:
    with running(model(architecture), settings(architecture, blocks=24)) as engine:
        for _ in range(2):
            assert_equal(architecture, Asking(COUNT).of(engine, prompts()))
        counters = engine.stats().tenants["one"]
    assert counters.evictions > 10 * 24
    assert 0 < counters.hits < 2 * sum(map(reusable, prompts()))


def test_answers_on_blocks_that_came_back_from_host_and_disk_are_those_of_generate(
    architecture: str,
) -> None:
    made = settings(architecture, blocks=16, host=48, disk=1000)
    with running(model(architecture), made) as engine:
        first, again = (Asking(COUNT).of(engine, prompts()) for _ in range(2))
        counters = engine.stats().tenants["one"]
        host, disk = engine.stats().tiers
    assert_equal(architecture, first)
    assert_equal(architecture, again)
    assert [answer.cached for answer in again] == [*map(reusable, prompts())]
    assert counters.offload_hits > sum(map(reusable, prompts()))
    assert host.used == 48
    assert disk.used > 100


def test_32_at_once_have_the_answers_of_generate(architecture: str) -> None:
    asking = Asking(COUNT, at_once=100, space=three_tenants)
    with running(model(architecture), settings(architecture, step_tokens=100)) as engine:
        first, again = (asking.of(engine, prompts()) for _ in range(2))
        stats = engine.stats()
    assert_equal(architecture, first)
    assert_equal(architecture, again)
    assert sum(each.hits for each in stats.tenants.values()) > 6000
    # As many tokens a step as 32 sequences that decode together give.
    assert stats.generated_tokens / stats.steps > 8


def test_32_at_once_that_preempt_each_other_have_the_answers_of_generate(
    architecture: str,
) -> None:
    asking = Asking(COUNT, at_once=100, space=three_tenants)
    made = settings(architecture, blocks=48, host=32, disk=100, step_tokens=100)
    with running(model(architecture), made) as engine:
        first, again = (asking.of(engine, prompts()) for _ in range(2))
        tenants = engine.stats().tenants.values()
    assert_equal(architecture, first)
    assert_equal(architecture, again)
    assert sum(each.preemptions for each in tenants) > 0
    assert sum(each.offload_hits for each in tenants) > 0
    assert sum(each.evictions for each in tenants) > 0


def _leave(asked: Generation) -> None:
    asked.cancel()


def _break(_: Generation) -> None:
    """In the middle of the next step: some layers have written their KV, others have not."""

    def fail(*_: Any) -> None:
        hook.remove()
        raise RuntimeError("the driver is gone")

    hook = model("llama").model.model.layers[1].register_forward_pre_hook(fail)


@pytest.mark.parametrize("ending", [_leave, _break])
def test_a_prompt_that_was_computed_in_part_is_shared_as_far_as_it_was(
    ending: Callable[[Generation], None],
) -> None:
    engine = Engine(model("llama"), settings("llama", step_tokens=20))
    prompt = max(prompts(), key=len)

    async def begin() -> Finish | None:
        asked = engine.submit(prompt, SamplingParams(COUNT, 0.0), tenant="one", salt="one")
        engine.turn()
        engine.turn()
        ending(asked)
        engine.turn()
        return [part async for part in asked][-1].finish

    assert asyncio.run(begin()) in ("cancelled", "error")
    engine.start()
    answers = Asking(COUNT).of(engine, [prompt, *prompts()])
    asyncio.run(engine.close())
    assert answers[0].cached == 40 // SIZE * SIZE
    assert_equal("llama", answers[1:])
    assert answers[0].tokens == answers[1 + prompts().index(prompt)].tokens


@pytest.mark.parametrize("at", [0, 20, 70])
def test_kv_that_is_no_number_reaches_no_other_answer(at: int) -> None:
    """Also where a sliding window hides it from the chunk's last token."""
    one = tiny_models.adopted("MistralConfig", tiny_models.CONFIGS["mistral"][1])
    one = replace(one, tokenizer=Letters())
    poison = tiny_models.VOCABULARY - 1
    unpaged = Unpaged(one, COUNT, TIE)
    others = [each for each in prompts() if poison not in (*each, *unpaged.answer(each))]
    with torch.no_grad():
        one.model.get_input_embeddings().weight[poison] = float("nan")
    bad = [3] * at + [poison] + [4] * 150
    # Decoded together, so that slots behind the end of a sequence are read, under a mask.
    asking = Asking(COUNT, at_once=20)
    with running(one, EngineSettings(memory(one, 64))) as engine:
        for start in range(0, len(others), 30):
            some = others[start : start + 30]
            assert [each.finish for each in Asking(1).of(engine, [bad])] == ["error"]
            assert unpaged.ties_of(some, asking.of(engine, some)) <= MOST_TIES

"""The engine on SmolLM2-135M: transformers' own answers, JSON of a schema, text as it comes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence

import pytest
import torch

from trivet.prefix.engine.engine import Engine, EngineSettings, Generation
from trivet.prefix.engine.loaded_model import LoadedModel
from trivet.prefix.engine.loading import load
from trivet.prefix.engine.sampling_params import SamplingParams
from trivet.prefix.engine.scheduler import Limits

TOKENS = 16
SYSTEM = "You are a helpful assistant of a small shop that sells tea, coffee and cups. " * 3
QUESTIONS = [
    "What do you sell?",
    "Write a line with an emoji: ☕ and é.",
    "Count from one to ten.",
    "Name three kinds of tea.",
]


@pytest.fixture(scope="module")
def model() -> LoadedModel:
    return load("smollm2", threads=1)


@pytest.fixture
def engine(model: LoadedModel) -> Iterator[Engine]:
    made = Engine(model, EngineSettings(64 << 20, limits=Limits(max_running=8, step_tokens=128)))
    made.start()
    yield made
    asyncio.run(made.close())
    made.pool.check_integrity()
    assert made.pool.state().used == 0


def prompt_of(model: LoadedModel, question: str) -> list[int]:
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}]
    found: list[int] = model.tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, return_dict=True
    )["input_ids"]
    return found


def asked(engine: Engine, prompt: Sequence[int], params: SamplingParams) -> Generation:
    return engine.submit(list(prompt), params, tenant="acme", salt="salt")


async def read(generation: Generation) -> tuple[list[int], str]:
    parts = [part async for part in generation]
    tokens = [token for part in parts for token in part.tokens]
    return tokens, "".join(part.text for part in parts)


def generated(model: LoadedModel, prompt: Sequence[int]) -> list[int]:
    """What transformers says, by its own attention and its own cache."""
    model.model.set_attn_implementation("sdpa")
    try:
        given = torch.tensor([list(prompt)])
        made = model.model.generate(
            given,
            attention_mask=torch.ones_like(given),
            max_new_tokens=TOKENS,
            do_sample=False,
            pad_token_id=0,
        )
    finally:
        model.model.set_attn_implementation("trivet_paged")
    found: list[int] = made[0, len(prompt) :].tolist()
    return found


async def test_greedy_answers_are_those_of_transformers_cold_and_warm(
    model: LoadedModel, engine: Engine
) -> None:
    prompts = [prompt_of(model, question) for question in QUESTIONS]
    expected = [generated(model, prompt) for prompt in prompts]
    params = SamplingParams(TOKENS, 0.0)
    for _ in range(2):
        found = await asyncio.gather(*(read(asked(engine, each, params)) for each in prompts))
        assert [tokens for tokens, _ in found] == expected
        for tokens, text in found:
            assert text == model.tokenizer.decode(tokens, skip_special_tokens=True)
    assert engine.stats().tenants["acme"].hits > 3 * 64


async def test_a_schema_is_kept_to_whatever_is_drawn(model: LoadedModel, engine: Engine) -> None:
    schema = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 20},
            "price": {"type": "integer", "minimum": 0, "maximum": 99},
            "kind": {"enum": ["tea", "coffee", "cup"]},
        },
        "required": ["name", "price", "kind"],
        "additionalProperties": False,
    }
    prompt = prompt_of(model, "Describe one thing that you sell, as JSON.")
    params = [
        SamplingParams(120, 1.3, top_p=0.95, seed=seed, json_schema=json.dumps(schema))
        for seed in range(4)
    ]
    found = await asyncio.gather(*(read(asked(engine, prompt, each)) for each in params))
    for _, text in found:
        made = json.loads(text)
        assert sorted(made) == ["kind", "name", "price"]
        assert made["kind"] in ("tea", "coffee", "cup")
        assert 0 <= made["price"] <= 99
    again = await read(asked(engine, prompt, params[0]))
    assert again == found[0]

"""The runner with SmolLM2-135M-Instruct, from its GGUF file: real weights, real text."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import GenerationConfig

from trivet.prefix.engine.kv_movers import disk_mover, host_mover
from trivet.prefix.engine.loading import LoadedModel, load
from trivet.prefix.engine.runner import Determinism, Piece, Runner
from trivet.prefix.pool.blocks import BlockPool
from trivet.prefix.pool.hashing import BlockHasher, Namespace
from trivet.prefix.pool.offload import OffloadTier

QUESTIONS = [
    "What is the capital of France?",
    "Name three colours of the rainbow.",
    "Write one sentence about the sea, and another one about the mountains behind it.",
    "2 + 2 =",
]
SYSTEM = "You are a patient assistant of a library. You answer in short, plain sentences. " * 12


@pytest.fixture(scope="module")
def one() -> LoadedModel:
    return load("smollm2", threads=1, device="cpu")


def prompt(one: LoadedModel, question: str) -> list[int]:
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}]
    text = one.tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    tokens: list[int] = one.tokenizer(text, add_special_tokens=False)["input_ids"]
    return tokens


def generated(one: LoadedModel, tokens: list[int], count: int) -> list[int]:
    one.model.set_attn_implementation("sdpa")
    try:
        made: Any = one.model.generate(
            torch.tensor([tokens]),
            attention_mask=torch.ones(1, len(tokens)),
            generation_config=GenerationConfig(
                max_new_tokens=count, do_sample=False, eos_token_id=None, pad_token_id=0
            ),
        )
    finally:
        one.model.set_attn_implementation("trivet_paged")
    return list(made[0, len(tokens) :].tolist())


class Cached:
    """A pool, its memory and a runner: one prompt at a time, greedy."""

    def __init__(
        self, one: LoadedModel, blocks: int, size: int, *, determinism: Determinism = ""
    ) -> None:
        self.runner = Runner(one, blocks, size, determinism=determinism)
        self.hasher = BlockHasher(Namespace(one.facts.name), "salt", block_size=size)
        self.pool = BlockPool(blocks, size)

    def answer(self, tokens: list[int], count: int) -> tuple[list[int], int, list[torch.Tensor]]:
        """The answer, the tokens that were cached, and the logits of each step."""
        table = self.pool.admit(self.hasher.chain(tokens), "a")
        assert table is not None
        start = table.cached_tokens
        piece = Piece(tokens[start:], start, table.blocks, wants_logits=True)
        rows = [self.runner.run([piece])]
        grid = self.runner.grid
        self.pool.commit(table, len(tokens) // grid * grid)
        for at in range(len(tokens), len(tokens) + count - 1):
            token = int(rows[-1].argmax())
            assert self.pool.append(table, [token])
            rows.append(self.runner.run([Piece([token], at, table.blocks, wants_logits=True)]))
        self.pool.release(table)
        self.pool.check_integrity()
        assert self.pool.state().used == 0
        return [int(row.argmax()) for row in rows], start, rows


def test_the_package_is_loaded_with_its_facts(one: LoadedModel) -> None:
    assert (one.facts.name, one.facts.context, one.facts.vocabulary) == ("smollm2", 8192, 49152)
    assert one.tokenizer.decode(sorted(one.facts.end_tokens)) == "<|im_end|>"
    assert one.tokenizer.chat_template
    assert len(one.layers) == 30


@pytest.mark.long
def test_a_conversion_in_another_dtype_leaves_the_kept_one_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    narrow = load("smollm2", threads=1, device="cpu", dtype="bf16")
    assert narrow.dtype == torch.bfloat16
    kept = load("smollm2", threads=1, device="cpu")
    assert kept.dtype == torch.float32
    # Numbers that bf16 cannot hold.
    weights = kept.model.model.layers[0].self_attn.q_proj.weight
    assert not torch.equal(weights, weights.to(torch.bfloat16).float())


@pytest.mark.long
def test_greedy_answers_are_those_of_generate_cold_and_warm(one: LoadedModel) -> None:
    cached = Cached(one, 64, 16)
    prompts = [prompt(one, question) for question in QUESTIONS]
    expected = [generated(one, tokens, 16) for tokens in prompts]
    cold = [cached.answer(tokens, 16) for tokens in prompts]
    warm = [cached.answer(tokens, 16) for tokens in prompts]
    # generate stops at the model's end token; the driver here does not.
    for made in (cold, warm):
        assert [
            answer[: len(whole)] for (answer, _, _), whole in zip(made, expected, strict=True)
        ] == expected
    assert cold[0][1] == 0
    assert all(start >= 160 for _, start, _ in [*cold[1:], *warm])


def test_in_bitwise_mode_all_logits_of_a_warm_answer_are_those_of_a_cold_one(
    one: LoadedModel,
) -> None:
    prompts = [prompt(one, question) for question in QUESTIONS[:3]]
    warm = Cached(one, 24, 64, determinism="bitwise")
    for tokens in prompts:
        _, _, expected = Cached(one, 12, 64, determinism="bitwise").answer(tokens, 4)
        for _ in range(2):
            _, start, made = warm.answer(tokens, 4)
            assert all(torch.equal(a, b) for a, b in zip(made, expected, strict=True))
        assert start == (len(tokens) - 1) // 64 * 64 > 0


def test_evicted_blocks_come_back_from_host_and_disk_sooner_than_they_are_computed(
    one: LoadedModel, tmp_path: Path
) -> None:
    cached = Cached(one, 24, 16)
    memory = cached.runner.memory
    host = host_mover(memory, 10)
    disk = OffloadTier(64, disk_mover(memory, host, 64, tmp_path), medium="disk")
    cached.pool = BlockPool(24, 16, offload=OffloadTier(10, host, below=disk))
    first = prompt(one, QUESTIONS[0])
    began = time.perf_counter()
    answer, _, cold = cached.answer(first, 2)
    computing = time.perf_counter() - began
    cached.answer([7] * 300, 2)
    cached.answer([8] * 300, 2)
    assert cached.pool.match(cached.hasher.chain(first)).offloaded_tokens >= 160
    began = time.perf_counter()
    again, start, warm = cached.answer(first, 2)
    restoring = time.perf_counter() - began
    assert (again, start // 16) == (answer, (len(first) - 1) // 16)
    torch.testing.assert_close(warm[0], cold[0], rtol=0, atol=2e-3)
    assert restoring < computing

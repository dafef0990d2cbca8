"""Paged attention against each model's own, on small random models of every architecture."""

from __future__ import annotations

import random

import pytest
import tiny_models
import torch
from driver import prefill, scattered

from trivet.prefix.engine import attention
from trivet.prefix.engine.kv_memory import KvMemory
from trivet.prefix.engine.loaded_model import LoadedModel
from trivet.prefix.engine.runner import Piece, Runner

ARCHITECTURES = sorted(tiny_models.CONFIGS)
FP32, BF16 = torch.float32, torch.bfloat16
LENGTH = 90
"""Tokens: more than three of the models' sliding windows."""


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def tokens_of(seed: int, count: int = LENGTH) -> list[int]:
    return random.Random(seed).choices(range(tiny_models.VOCABULARY), k=count)


def assert_same(made: torch.Tensor, expected: torch.Tensor, dtype: torch.dtype) -> None:
    """Equal but for rounding, and with the same likeliest token."""
    scale = float(expected.std())
    tolerance = {FP32: 1e-4, BF16: 0.15}[dtype] * scale
    torch.testing.assert_close(made, expected, rtol=0, atol=tolerance)
    if dtype == FP32:
        assert made.argmax(-1).tolist() == expected.argmax(-1).tolist()


@pytest.fixture(params=[(name, dtype) for name in ARCHITECTURES for dtype in (FP32, BF16)],
                ids=lambda given: f"{given[0]}-{str(given[1])[6:]}")  # fmt: skip
def one(request: pytest.FixtureRequest) -> LoadedModel:
    return tiny_models.loaded(*request.param)


def test_a_prompt_in_one_piece_has_the_logits_of_the_model(one: LoadedModel) -> None:
    tokens = tokens_of(1)
    expected = tiny_models.unpaged(one, tokens)
    runner = Runner(one, 12, 8)
    made = runner.run([Piece(tokens, 0, range(12), wants_logits=True)])
    assert_same(made, expected[-1:], one.dtype)


@pytest.mark.parametrize("chunk", [1, 7, 16, 64])
def test_chunks_of_any_length_leave_the_logits_as_they_are(one: LoadedModel, chunk: int) -> None:
    tokens = tokens_of(2, 50)
    expected = tiny_models.unpaged(one, tokens)
    runner = Runner(one, 26, 4)
    table = scattered(2, 13)[1]
    assert_same(prefill(runner, tokens, table, chunk), expected[-1:], one.dtype)


def test_two_prompts_that_share_blocks_each_get_their_own_logits(one: LoadedModel) -> None:
    prefix, size = tokens_of(3, 48), 8
    runner = Runner(one, 20, size)
    shared = [9, 2, 3, 4, 17, 0]
    prefill(runner, prefix, shared, 48)
    for seed, own in ((4, [10, 6, 7]), (5, [8, 1, 12])):
        tokens = prefix + tokens_of(seed, 20)
        made = prefill(runner, tokens, shared + own, 13, start=len(prefix))
        assert_same(made, tiny_models.unpaged(one, tokens)[-1:], one.dtype)


def test_decodes_and_prompt_chunks_share_a_step(one: LoadedModel) -> None:
    lengths = [61, 3, 33, 90, 34, 18, 47]
    prompts = [tokens_of(seed, length) for seed, length in enumerate(lengths)]
    expected = torch.stack([tiny_models.unpaged(one, tokens)[-1] for tokens in prompts])
    runner = Runner(one, 7 * 12, 8)
    tables = scattered(7, 12)
    # How many tokens of each prompt are left for the common step: decodes and chunks in turn.
    left = [1, 3, 1, 40, 1, 1, 12]
    for tokens, table, rest in zip(prompts, tables, left, strict=True):
        prefill(runner, tokens[: len(tokens) - rest], table, 64)
    made = runner.run([
        Piece(tokens[len(tokens) - rest :], len(tokens) - rest, table, wants_logits=True)
        for tokens, table, rest in zip(prompts, tables, left, strict=True)
    ])  # fmt: skip
    assert_same(made, expected, one.dtype)


@pytest.mark.parametrize("architecture", ["llama", "gemma2", "mistral"])
@pytest.mark.parametrize("largest", [0, 1 << 40])
def test_masks_that_are_shared_or_repeated_give_the_same(
    architecture: str, largest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "MASK_ELEMENTS", largest)
    one = tiny_models.loaded(architecture)
    tokens = tokens_of(6)
    made = prefill(Runner(one, 12, 8), tokens, range(12), 31)
    assert_same(made, tiny_models.unpaged(one, tokens)[-1:], FP32)


@pytest.mark.parametrize("bytes_at_once", [1, 1 << 40])
def test_decodes_in_one_group_or_each_alone_give_the_same(
    bytes_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "GATHERED_BYTES", bytes_at_once)
    one = tiny_models.loaded("gemma3")
    prompts = [tokens_of(seed, 40 + seed) for seed in range(4)]
    runner = Runner(one, 4 * 6, 8)
    tables = scattered(4, 6)
    for tokens, table in zip(prompts, tables, strict=True):
        prefill(runner, tokens[:-1], table, 64)
    made = runner.run([
        Piece(tokens[-1:], len(tokens) - 1, table, wants_logits=True)
        for tokens, table in zip(prompts, tables, strict=True)
    ])  # fmt: skip
    expected = torch.stack([tiny_models.unpaged(one, tokens)[-1] for tokens in prompts])
    assert_same(made, expected, FP32)


def test_keys_and_values_of_different_widths_are_kept_each_as_wide_as_they_are() -> None:
    tiny = tiny_models.adopted("DeepseekV3Config", tiny_models.MLA)
    assert {(layer.key_dim, layer.value_dim) for layer in tiny.layers} == {(16, 12)}
    tokens = tokens_of(7)
    made = prefill(Runner(tiny, 12, 8), tokens, range(12), 31)
    assert_same(made, tiny_models.unpaged(tiny, tokens)[-1:], FP32)


def test_a_step_writes_no_slot_but_those_of_its_tokens() -> None:
    one = tiny_models.loaded("llama")
    runner = Runner(one, 6, 4)
    runner.run([Piece([1, 2, 3, 4, 5], 2, [5, 1, 0], wants_logits=False)])
    written = [
        (block, at)
        for block in range(6)
        for at in range(4)
        if bool(runner.memory.keys[0][block, at].any())
    ]
    assert written == [(1, 0), (1, 1), (1, 2), (5, 2), (5, 3)]


def test_what_lies_behind_a_sequence_or_in_other_blocks_changes_no_bit() -> None:
    one = tiny_models.loaded("llama")
    prompts = [tokens_of(8, 21), tokens_of(9, 35)]
    tables = scattered(2, 5)

    def decoded(dirt: float) -> torch.Tensor:
        runner = Runner(one, 12, 8)
        for tensor in (*runner.memory.keys, *runner.memory.values):
            tensor.fill_(dirt)
        for tokens, table in zip(prompts, tables, strict=True):
            prefill(runner, tokens[:-1], table, 64)
        return runner.run([
            Piece(tokens[-1:], len(tokens) - 1, table, wants_logits=True)
            for tokens, table in zip(prompts, tables, strict=True)
        ])  # fmt: skip

    assert torch.equal(decoded(0.0), decoded(1e4))


def test_consecutive_blocks_are_read_in_place() -> None:
    memory = KvMemory(tiny_models.loaded("llama").layers, 8, 4, dtype=FP32)
    for blocks, is_view in (([2, 3, 4], True), ([2, 4, 3], False)):
        span = attention.Span(9, 1, torch.tensor(blocks).numpy())
        group = attention.Group([span], 0, memory, copied=False)
        context = group._context(None, 1)
        seen = group._seen(memory.keys[0], context)
        shares = seen.untyped_storage().data_ptr() == memory.keys[0].untyped_storage().data_ptr()
        assert (shares, seen.shape[2]) == (is_view, 10)

from __future__ import annotations

import random
from typing import Any

import pytest
import tiny_models
import torch
from driver import greedy, prefill, scattered
from transformers import GenerationConfig

from trivet.prefix.engine.runner import Piece, Runner

ARCHITECTURES = sorted(tiny_models.CONFIGS)
GRID = 16


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def tokens_of(seed: int, count: int) -> list[int]:
    return random.Random(seed).choices(range(tiny_models.VOCABULARY), k=count)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_greedy_tokens_are_those_of_generate(architecture: str) -> None:
    one = tiny_models.loaded(architecture)
    prompts = [tokens_of(seed, 5 + 9 * seed) for seed in range(5)]
    count = 20
    one.model.set_attn_implementation("eager")
    try:
        settings = GenerationConfig(
            max_new_tokens=count, do_sample=False, eos_token_id=None, pad_token_id=0
        )
        expected = [
            one.model.generate(
                torch.tensor([prompt]),
                attention_mask=torch.ones(1, len(prompt)),
                generation_config=settings,
            )[0, len(prompt) :].tolist()
            for prompt in prompts
        ]
    finally:
        one.model.set_attn_implementation("trivet_paged")
    assert greedy(Runner(one, 5 * 8, 8), prompts, count) == expected
    assert len({tuple(answer) for answer in expected}) == 5


def test_rows_of_logits_are_in_the_order_of_the_pieces_that_want_them() -> None:
    one = tiny_models.loaded("llama")
    pieces = [
        Piece(tokens_of(1, 5), 0, [0], wants_logits=True),
        Piece(tokens_of(2, 1), 0, [1], wants_logits=True),
        Piece(tokens_of(3, 6), 0, [2], wants_logits=False),
        Piece(tokens_of(4, 2), 0, [3], wants_logits=True),
        Piece(tokens_of(5, 1), 0, [4], wants_logits=True),
    ]
    made = Runner(one, 5, 8).run(pieces)
    alone = [Runner(one, 5, 8).run([piece]) for piece in pieces if piece.wants_logits]
    assert made.dtype == torch.float32
    torch.testing.assert_close(made, torch.cat(alone), rtol=0, atol=1e-4)


def test_a_step_that_nobody_wants_logits_of_has_none() -> None:
    one = tiny_models.loaded("llama")
    runner = Runner(one, 1, 8)
    piece = Piece([1, 2], 0, [0], wants_logits=False)
    assert runner.run([piece]).shape == (0, tiny_models.VOCABULARY)
    assert runner.run([]).shape == (0, tiny_models.VOCABULARY)


@pytest.mark.parametrize(
    ("piece", "reason"),
    [
        (Piece([], 0, [0], True), "has a token"),
        (Piece([1] * 9, 0, [0], True), "blocks for all"),
        (Piece([1], 16, [0, 1], True), "blocks for all"),
        (Piece([tiny_models.VOCABULARY], 0, [0], True), "not below the vocabulary"),
        (Piece([-1], 0, [0], True), "not below the vocabulary"),
        (Piece([1, 2], 511, list(range(65)), True), "behind the model's 512"),
    ],
)
def test_a_piece_that_cannot_be_run_is_refused_before_anything_is_written(
    piece: Piece, reason: str
) -> None:
    runner = Runner(tiny_models.loaded("llama"), 2, 8)
    with pytest.raises(ValueError, match=reason):
        runner.run([Piece([1], 0, [1], True), piece])
    assert not any(bool(keys.any()) for keys in runner.memory.keys)


def test_nan_in_one_sequence_stays_in_its_row() -> None:
    one = tiny_models.loaded("llama")
    runner = Runner(one, 8, 8)
    tables = scattered(2, 4)
    for seed, table in enumerate(tables):
        prefill(runner, tokens_of(seed, 20), table, 64)
    assert runner.broken == []
    runner.memory.values[1][tables[0][1]] = float("nan")
    made = runner.run([Piece([7], 20, table, wants_logits=True) for table in tables[::-1]])
    assert made[1].isnan().all()
    assert made[0].isfinite().all()
    assert runner.broken == [1]


@pytest.mark.parametrize("determinism", ["", "bitwise"])
def test_pieces_whose_kv_is_no_number_are_told_also_without_logits(determinism: Any) -> None:
    runner = Runner(tiny_models.loaded("llama"), 8, 8, determinism=determinism)
    runner.memory.keys[0][2] = float("nan")
    pieces = [
        Piece([1, 2, 3], 0, [0], wants_logits=False),
        Piece([4], 8, [2, 3], wants_logits=False),
        Piece([1, 2, 3], 0, [1], wants_logits=True),
        Piece([4, 5] * 5, 8, [2, 4, 5], wants_logits=False),
    ]
    runner.run(pieces)
    assert runner.broken == [1, 3]
    runner.run(pieces[2:3])
    assert runner.broken == []


def test_scrubbed_blocks_can_be_used_again_after_nan() -> None:
    one = tiny_models.loaded("llama")
    runner = Runner(one, 5, 8)
    for tensor in (*runner.memory.keys, *runner.memory.values):
        tensor.fill_(float("nan"))
    prompts = [tokens_of(seed, 11) for seed in range(2)]
    tables = [[2, 0], [4, 3]]

    def decoded() -> torch.Tensor:
        for tokens, table in zip(prompts, tables, strict=True):
            prefill(runner, tokens[:-1], table, 64)
        return runner.run([
            Piece(tokens[-1:], 10, table, wants_logits=True)
            for tokens, table in zip(prompts, tables, strict=True)
        ])  # fmt: skip

    assert decoded().isnan().any()
    runner.memory.scrub([0, 2, 3, 4])
    expected = torch.stack([tiny_models.unpaged(one, tokens)[-1] for tokens in prompts])
    torch.testing.assert_close(decoded(), expected, rtol=0, atol=1e-4)
    assert runner.memory.keys[0][1].isnan().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_in_bitwise_mode_a_cached_prefix_changes_no_bit(
    architecture: str, dtype: torch.dtype
) -> None:
    one = tiny_models.loaded(architecture, dtype)
    first, tokens = tokens_of(1, 70), tokens_of(2, 90)
    tokens[:53] = first[:53]
    cold = Runner(one, 8, GRID, determinism="bitwise")
    warm = Runner(one, 16, GRID, determinism="bitwise")
    assert cold.grid == GRID
    # Another prompt has filled the cache; the whole chunks that both have in common are used.
    shared = [11, 3, 9]
    prefill(warm, first, [*shared, 1, 2], 2 * GRID)
    expected = prefill(cold, tokens, range(6), len(tokens))
    made = prefill(warm, tokens, [*shared, 12, 0, 5], GRID, start=3 * GRID)
    assert torch.equal(made, expected)
    for ours, theirs in zip(warm.memory.keys, cold.memory.keys, strict=True):
        assert torch.equal(ours[[*shared, 12, 0, 5]], theirs[:6])


def test_in_bitwise_mode_decoding_is_the_same_alone_and_in_company() -> None:
    one = tiny_models.loaded("llama")
    prompts = [tokens_of(seed, 30 + seed) for seed in range(3)]
    together = Runner(one, 9, GRID, determinism="bitwise")
    tables = scattered(3, 3)
    for tokens, table in zip(prompts, tables, strict=True):
        prefill(together, tokens, table, len(tokens))
    made = together.run([
        Piece([5], len(tokens), table, wants_logits=True)
        for tokens, table in zip(prompts, tables, strict=True)
    ])  # fmt: skip
    for at, tokens in enumerate(prompts):
        alone = Runner(one, 3, GRID, determinism="bitwise")
        prefill(alone, tokens, range(3), len(tokens))
        row = alone.run([Piece([5], len(tokens), range(3), wants_logits=True)])
        assert torch.equal(made[at], row[0])


def test_in_bitwise_mode_a_chunk_off_the_grid_is_refused() -> None:
    runner = Runner(tiny_models.loaded("llama"), 4, GRID, determinism="bitwise")
    with pytest.raises(ValueError, match="multiples of 16"):
        runner.run([Piece([1, 2], 8, range(4), wants_logits=True)])
    assert runner.run([Piece([1], 8, range(4), wants_logits=True)]).shape[0] == 1

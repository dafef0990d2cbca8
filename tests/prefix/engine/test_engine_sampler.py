from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trivet.prefix.engine import sampler
from trivet.prefix.engine.sampler import Drawn, SamplerState, draw, usable
from trivet.prefix.engine.sampling_params import SamplingParams

torch.set_num_threads(1)


def params(temperature: float = 1.0, **changed: Any) -> SamplingParams:
    return SamplingParams(10, temperature, **changed)


def rows(*values: list[float]) -> torch.Tensor:
    return torch.tensor(values)


class Only:
    """A mask that allows some tokens."""

    def __init__(self, *tokens: int) -> None:
        self.tokens = tokens

    def allowed(self, vocabulary: int) -> torch.Tensor:
        made = torch.zeros(vocabulary, dtype=torch.bool)
        made[list(self.tokens)] = True
        return made


def share(logits: torch.Tensor, given: SamplingParams, draws: int = 4000) -> list[float]:
    """How often each token is drawn."""
    state = SamplerState(given)
    counts = [0] * logits.shape[-1]
    for _ in range(draws // 100):
        for one in draw(logits.expand(100, -1), [state] * 100):
            counts[one.token] += 1
    return [count / draws for count in counts]


def test_temperature_zero_takes_the_likeliest() -> None:
    drawn = draw(rows([1, 3, 2], [5, 3, 2]), [SamplerState(params(0.0)) for _ in range(2)])
    assert [one.token for one in drawn] == [1, 0]


def test_a_temperature_too_small_to_divide_by_takes_the_likeliest() -> None:
    assert draw(rows([1, 3, 2]), [SamplerState(params(1e-30))])[0].token == 1


def test_draws_follow_the_distribution() -> None:
    logits = torch.tensor([[0.5, 0.3, 0.15, 0.05]]).log()
    assert share(logits, params(seed=1)) == pytest.approx([0.5, 0.3, 0.15, 0.05], abs=0.03)


def test_a_high_temperature_flattens() -> None:
    logits = torch.tensor([[0.7, 0.3]]).log()
    expected = 0.7**0.5 / (0.7**0.5 + 0.3**0.5)
    assert share(logits, params(2.0, seed=1))[0] == pytest.approx(expected, abs=0.03)


def test_top_k_keeps_the_k_likeliest() -> None:
    logits = torch.tensor([[0.1, 0.4, 0.3, 0.2]]).log()
    found = share(logits, params(top_k=2, seed=1))
    assert found == pytest.approx([0, 4 / 7, 3 / 7, 0], abs=0.03)


def test_top_p_keeps_the_least_that_reaches_p() -> None:
    logits = torch.tensor([[0.1, 0.4, 0.3, 0.2]]).log()
    found = share(logits, params(top_p=0.71, seed=1))
    assert found == pytest.approx([0, 4 / 9, 3 / 9, 2 / 9], abs=0.03)


def test_top_p_counts_what_top_k_left() -> None:
    logits = torch.tensor([[0.1, 0.4, 0.3, 0.2]]).log()
    # Of the two that top-k leaves the first has 4/7.
    assert share(logits, params(top_k=2, top_p=0.5, seed=1)) == [0, 1, 0, 0]


def test_top_p_zero_keeps_the_likeliest() -> None:
    assert share(rows([1.0, 2.0, 0.0]), params(top_p=0.0, seed=1), 100) == [0, 1, 0]


def test_min_p_keeps_what_has_that_share_of_the_likeliest() -> None:
    logits = torch.tensor([[0.1, 0.4, 0.3, 0.2]]).log()
    found = share(logits, params(min_p=0.6, seed=1))
    assert found == pytest.approx([0, 4 / 7, 3 / 7, 0], abs=0.03)


def test_top_p_over_more_tokens_than_are_sorted_at_first() -> None:
    flat = torch.zeros(1, 2000)
    narrow = torch.full((1, 2000), -50.0)
    narrow[0, 7] = 0.0
    both = torch.cat([flat, narrow])
    states = [SamplerState(params(top_p=0.9, seed=seed)) for seed in (1, 2)]
    tokens = {draw(both, states)[0].token for _ in range(300)}
    assert len(tokens) > 250
    assert draw(both, states)[1].token == 7


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(-(2**63), 2**63),
    top_k=st.sampled_from([0, 3, 300]),
    top_p=st.sampled_from([1.0, 0.9, 0.3]),
    min_p=st.sampled_from([0.0, 0.1]),
    others=st.lists(st.sampled_from([0, 5, 1000]), max_size=3),
)
def test_a_seed_draws_the_same_whatever_else_is_in_the_batch(
    seed: int, top_k: int, top_p: float, min_p: float, others: list[int]
) -> None:
    given_params = params(0.8, top_k=top_k, top_p=top_p, min_p=min_p, seed=seed)
    logits = torch.randn(5, 1200, generator=torch.Generator().manual_seed(seed % 1000))
    alone = SamplerState(given_params)
    expected = [draw(logits[at : at + 1], [alone])[0].token for at in range(5)]
    among = SamplerState(given_params)
    beside = [SamplerState(params(top_k=k, top_p=0.95)) for k in others]
    found = []
    for at in range(5):
        batch = torch.cat([torch.randn(len(others), 1200), logits[at : at + 1]])
        found.append(draw(batch, [*beside, among])[-1].token)
    assert found == expected


def test_a_negative_seed_is_another_one() -> None:
    assert SamplerState(params(seed=-1)).random.random() != (
        SamplerState(params(seed=1)).random.random()
    )


def test_without_a_seed_two_sequences_draw_apart() -> None:
    states = [SamplerState(params()) for _ in range(2)]
    assert states[0].random.random() != states[1].random.random()


def test_logprobs_are_of_the_models_own_distribution() -> None:
    logits = torch.tensor([[0.5, 0.3, 0.2]]).log()
    state = SamplerState(params(0.3, top_k=1, logprobs=2), Only(1, 2))
    (drawn,) = draw(logits, [state])
    assert drawn.token == 1
    assert drawn.logprob == pytest.approx(math.log(0.3))
    assert [token for token, _ in drawn.top] == [0, 1]
    assert drawn.top[0][1] == pytest.approx(math.log(0.5))


def test_logprobs_are_told_to_who_asked() -> None:
    states = [
        SamplerState(params(0.0)),
        SamplerState(params(0.0, logprobs=0)),
        SamplerState(params(0.0, logprobs=9)),
    ]
    drawn = draw(rows(*[[0.0, 1.0, -math.inf]] * 3), states)
    assert drawn[0] == Drawn(1)
    assert drawn[1].logprob == pytest.approx(-0.3133, abs=1e-4)
    assert [len(one.top) for one in drawn] == [0, 0, 3]
    assert drawn[2].top[2] == (2, -9999.0)


def test_a_mask_leaves_only_what_it_allows() -> None:
    logits = rows([9.0, 1.0, 2.0], [9.0, 1.0, 2.0])
    states = [SamplerState(params(0.0), Only(1)), SamplerState(params(0.0))]
    assert [one.token for one in draw(logits, states)] == [1, 0]
    assert logits[0, 0] == 9.0, "the model's logits are not changed"


@pytest.mark.parametrize("bad", [[math.nan, 1.0, 2.0], [-math.inf] * 3, [math.inf, 0.0, 1.0]])
def test_a_row_of_no_numbers_fails_alone(bad: list[float]) -> None:
    logits = rows([0.0, 1.0, 0.0], bad, [3.0, 1.0, 0.0])
    states = [
        SamplerState(params(0.0, logprobs=1)),
        SamplerState(params(0.7, top_p=0.5, logprobs=1)),
        SamplerState(params(0.0)),
    ]
    drawn = draw(logits, states)
    assert [one.failed for one in drawn] == [False, True, False]
    assert [drawn[0].token, drawn[2].token] == [1, 0]
    assert usable(logits) == [True, False, True]


def test_a_mask_that_allows_nothing_fails_alone() -> None:
    states = [SamplerState(params(), Only()), SamplerState(params(0.0))]
    drawn = draw(rows([1.0, 2.0], [1.0, 2.0]), states)
    assert [one.failed for one in drawn] == [True, False]


def test_no_rows_give_no_tokens() -> None:
    assert draw(torch.zeros(0, 5), []) == []


@settings(max_examples=200, deadline=None)
@given(
    weights=st.lists(st.sampled_from([0.0, 0.0, 1e-30, 0.5, 1.0]), min_size=1, max_size=9).filter(
        any
    ),
    chance=st.floats(0, 1, exclude_max=True),
)
def test_a_place_of_no_weight_is_never_drawn(weights: list[float], chance: float) -> None:
    made = torch.tensor([weights], dtype=torch.float64)
    at = int(sampler._place(made, torch.tensor([chance], dtype=torch.float64))[0])
    assert weights[at] > 0


@pytest.mark.parametrize("count", [2, 5, 32])
def test_no_bit_of_what_is_told_of_a_row_depends_on_the_others(count: int) -> None:
    torch.set_num_threads(2)
    try:
        logits = torch.randn(count, 49152, generator=torch.Generator().manual_seed(count)) * 3

        def drawn(rows: torch.Tensor) -> list[Drawn]:
            given = params(top_p=0.999, seed=1, logprobs=3)
            return draw(rows, [SamplerState(given) for _ in rows])

        assert drawn(logits) == [one for row in logits for one in drawn(row[None])]
    finally:
        torch.set_num_threads(1)

"""Whether probabilities tell more about labels than another chain's score does."""

from __future__ import annotations

import numpy as np
import pytest

from trivet.eval.logistic import gain, least_loss
from trivet.eval.sweep import Row


def rows(odds: np.ndarray, same: np.ndarray) -> list[Row]:
    """Rows whose scores are the probabilities of these log odds."""
    chances = 1 / (1 + np.exp(-odds))
    return [Row(float(chance), bool(one)) for chance, one in zip(chances, same, strict=True)]


def drawn(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Log odds, and labels drawn by them."""
    rng = np.random.default_rng(seed)
    odds = rng.normal(0, 2, size=count)
    return odds, rng.random(count) < 1 / (1 + np.exp(-odds))


def test_the_true_probabilities_tell_more_than_a_noisy_score() -> None:
    odds, same = drawn(400, 1)
    noisy = rows(odds + np.random.default_rng(2).normal(0, 4, size=400), same)
    assert gain(rows(odds, same), noisy) > 4
    assert gain(noisy, rows(odds, same)) < -4


def test_a_score_tells_no_less_however_it_is_scaled() -> None:
    odds, same = drawn(400, 3)
    scaled = [Row(0.5 + 0.5 * (row.score or 0.0), row.same) for row in rows(odds, same)]
    assert gain(rows(odds, same), scaled) < 1
    assert gain(rows(odds, same), rows(odds / 7 + 1, same)) < 1


def test_what_tells_nothing_seldom_looks_clearly_better() -> None:
    clear = 0
    for seed in range(200):
        odds, same = drawn(150, 100 + seed)
        rng = np.random.default_rng(seed)
        clear += gain(rows(odds + rng.normal(0, 0.3, size=150), same), rows(odds, same)) > 2
    assert clear <= 5


def test_pairs_without_a_score_have_a_level_of_their_own_in_the_base() -> None:
    odds, same = drawn(400, 4)
    vetoed = [
        Row(None if at % 3 == 0 else row.score, row.same) for at, row in enumerate(rows(odds, same))
    ]
    assert gain(rows(odds, same), vetoed) > 2
    told = [Row(None, row.same) if at % 3 else row for at, row in enumerate(rows(odds, same))]
    assert np.isfinite(gain(told, vetoed))


@pytest.mark.parametrize("same", [True, False])
def test_labels_of_one_kind_say_nothing(same: bool) -> None:
    odds, _ = drawn(50, 5)
    ones = rows(odds, np.full(50, same))
    assert gain(ones, ones) == 0.0
    assert gain([], []) == 0.0


def test_the_weights_have_no_slope() -> None:
    odds, same = drawn(300, 6)
    design = np.column_stack([np.ones(300), odds])
    penalty, prior = np.array([1e-3, 2.0]), np.array([0.0, 0.5])
    found = least_loss(design, same, penalty, prior)
    chance = 1 / (1 + np.exp(-(design @ found)))
    slope = design.T @ (chance - same) + penalty * (found - prior)
    assert slope == pytest.approx([0.0, 0.0], abs=1e-3)

"""The layer that is fitted to labelled pairs, and the promise about what is certified with it."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from trivet.eval import fit as fit_module
from trivet.eval.fit import Examples, Fit, Missing, fit, fit_layer
from trivet.eval.parts import Parts, Promise
from trivet.eval.pick import pick
from trivet.eval.sweep import Row
from trivet.policies.fitted import FeatureSet
from trivet.semantic.fitted import Evidence, fitted_odds, standardised
from trivet.semantic.verify import squash

TRUE = np.array([-1.0, 0.8, 1.5, 0.0, -0.7])
"""What the numbers weigh in the drawn pairs, beside half of the odds."""


def seen(numbers: Any, odds: Any, contradicted: Any = None) -> Evidence:
    """Evidence in which nothing is vetoed, nor a number contradicted unless it is said."""
    never = np.zeros(len(odds), dtype=bool)
    told = never if contradicted is None else contradicted
    return Evidence(numbers, odds, (None,) * len(odds), told)


def drawn(count: int, seed: int, each: int = 2) -> Examples:
    """Pairs whose labels depend on the odds and the numbers; `each` pairs a group."""
    rng = np.random.default_rng(seed)
    numbers = rng.normal(size=(count, len(TRUE)))
    odds = rng.normal(0.3, 2.0, size=count)
    chance = 1 / (1 + np.exp(-(0.5 * odds + numbers @ TRUE)))
    same = rng.random(count) < chance
    groups = [f"g{at // each}" for at in range(count)]
    return Examples(seen(numbers, odds), same, groups)


def at(examples: Examples, which: list[int]) -> Examples:
    groups = [examples.groups[one] for one in which]
    return Examples(examples.evidence.some(which), examples.same[which], groups)


def fitted(examples: Examples) -> Fit:
    found = fit(examples)
    assert isinstance(found, Fit)
    return found


@given(st.integers(0, 5), st.randoms(use_true_random=False))
@settings(max_examples=12, deadline=None)
def test_the_order_of_the_pairs_changes_nothing(seed: int, random: Random) -> None:
    some = drawn(140, seed)
    order = list(range(140))
    random.shuffle(order)
    one, other = fitted(some), fitted(at(some, order))
    assert one.weights == other.weights
    assert np.array_equal(one.unseen[order], other.unseen)


@pytest.mark.parametrize("features", ["few", "all"])
def test_a_strong_penalty_leaves_the_cosine_as_it_is(features: FeatureSet) -> None:
    some = drawn(200, 1)
    layer = fit_layer(some, features, 1e12)
    others = [weight for at, weight in enumerate(layer.weights) if at != 1]
    assert [layer.trust, *others] == pytest.approx([0.0] * (1 + len(others)), abs=1e-5)
    found = fitted_odds(some.evidence, layer)
    assert np.array_equal(np.argsort(found), np.argsort(some.evidence.numbers[:, 1]))


def test_no_other_weights_have_less_penalised_loss() -> None:
    some = drawn(300, 2)
    layer = fit_layer(some, "all", 3.0)
    z = standardised(some.evidence.numbers, layer)
    rows = np.column_stack([np.ones(300), some.evidence.odds, np.zeros(300), z])

    def cost(weights: np.ndarray) -> float:
        odds = rows @ weights
        pulled = weights + 12 * np.eye(len(weights))[2]
        penalty = np.array([1e-3, 3.0, 0.05, 3.0, 1e-3, *[3.0] * (len(weights) - 5)])
        data = np.logaddexp(0, np.where(some.same, -odds, odds)).sum()
        return float(data + (penalty * pulled**2).sum() / 2)

    least = np.array([layer.intercept, layer.trust, layer.contradicted, *layer.weights])
    rng = np.random.default_rng(3)
    for size in (1e-3, 1e-2, 0.3):
        for _ in range(30):
            assert cost(least + size * rng.normal(size=len(least))) > cost(least)


def test_what_the_numbers_say_is_learned() -> None:
    layer = fitted(drawn(3000, 4)).weights
    assert layer.features == "all"
    assert layer.trust == pytest.approx(0.5, abs=0.1)
    assert np.array(layer.weights) == pytest.approx(TRUE, abs=0.25)
    assert layer.pairs == 3000


def test_numbers_that_say_nothing_are_left_to_the_verifier() -> None:
    rng = np.random.default_rng(5)
    odds = rng.normal(0, 2, size=150)
    same = rng.random(150) < 1 / (1 + np.exp(-odds))
    evidence = seen(rng.normal(size=(150, 40)), odds)
    layer = fitted(Examples(evidence, same, [str(n) for n in range(150)])).weights
    assert max(map(abs, layer.weights)) < 0.3
    assert layer.trust == pytest.approx(1.0, abs=0.4)


def test_a_contradicted_number_is_as_good_as_vetoed_until_pairs_say_otherwise() -> None:
    some = drawn(300, 11)
    conflict = np.arange(300) % 15 == 0
    labels = {"nothing seen": some.same, "all differ": some.same & ~conflict}
    labels["half the same"] = np.where(conflict, np.arange(300) % 2 == 0, some.same)
    weighed = {}
    for name, same in labels.items():
        told = conflict & (name != "nothing seen")
        evidence = seen(some.evidence.numbers, some.evidence.odds, told)
        weighed[name] = fit_layer(Examples(evidence, same, some.groups), "all", 3.0).contradicted
    assert weighed["nothing seen"] == pytest.approx(-12.0)
    assert weighed["all differ"] < -12.0
    assert -3.0 < weighed["half the same"] < 3.0


def test_a_pair_s_own_fold_has_no_part_in_what_is_said_of_it_unseen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fit_module, "_STRENGTHS", (3.0,))
    monkeypatch.setattr(fit_module, "_SETS", ("all",))
    some = drawn(200, 6, each=8)
    before = fitted(some).unseen
    turned = some.same.copy()
    turned[:8] = ~turned[:8]  # The whole of group g0.
    after = fitted(Examples(some.evidence, turned, some.groups)).unseen
    assert np.array_equal(before[:8], after[:8])
    assert not np.array_equal(before, after)


def test_too_few_pairs_are_told_by_how_many_more_it_takes() -> None:
    some = drawn(90, 7)
    few_same = np.zeros(90, dtype=bool)
    few_same[:5] = True
    assert fit(Examples(some.evidence, few_same, some.groups)) == Missing(10, 15, 0)


def test_pairs_that_all_hang_together_cannot_be_fitted() -> None:
    some = drawn(200, 8)
    assert fit(Examples(some.evidence, some.same, ["one"] * 200)) == Missing(0, 0, 0)


def test_a_number_that_never_varies_weighs_nothing() -> None:
    some = drawn(300, 9)
    some.evidence.numbers[:, 3] = 7.0
    layer = fit_layer(some, "all", 1.0)
    assert layer.weights[3] == 0.0
    assert layer.means[3] == 7.0


def test_labels_that_the_odds_part_perfectly_give_finite_weights() -> None:
    odds = np.linspace(-30, 30, 200)
    evidence = seen(np.zeros((200, 3)), odds)
    layer = fitted(Examples(evidence, odds > 0, [str(n) for n in range(200)])).weights
    assert np.isfinite([layer.intercept, layer.trust, *layer.weights]).all()
    assert layer.trust > 0


def test_what_is_certified_with_a_fitted_layer_holds_as_often_as_was_promised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fit_module, "_STRENGTHS", (100.0, 10.0, 1.0))
    promise = Promise(0.1, 0.8)
    fresh = drawn(20_000, 10)
    certified = violated = 0
    for seed in range(120):
        some = drawn(700, 1000 + seed, each=1)
        choosing = tuple(range(140))
        found = fitted(at(some, list(choosing)))
        odds = fitted_odds(some.evidence, found.weights)
        odds[:140] = found.unseen
        rows = [
            Row(squash(one), bool(same)) for one, same in zip(odds.tolist(), some.same, strict=True)
        ]
        parts = Parts(choosing, tuple(range(140, 700)), (), learned=seed % 2 == 0)
        picked = pick({"fitted": rows}, parts, promise).certified
        if picked is None:
            continue
        certified += 1
        scores = 1 / (1 + np.exp(-fitted_odds(fresh.evidence, found.weights)))
        served = scores >= picked.threshold
        violated += (~fresh.same[served]).mean() > promise.target
    assert certified > 60
    assert violated <= binom.ppf(0.999, 120, 1 - promise.confidence)

"""Fits the chain `fitted` to labelled pairs: a logistic layer over what the verifier sees.

The log odds are `intercept + trust * odds + weights . z`, where `odds` are the shipped verifier's
and `z` its numbers about the pair, standardised. An L2 penalty pulls the weights to 0 and the trust
to 1, so that few pairs leave the verifier as it is. How strong it is, and whether all numbers take
part or two of them, is decided by cross-validation (log loss); questions and groups that belong
together lie in one fold, so that no question is on both sides.

The same pairs give the same weights, in whatever order they come.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trivet.policies.fitted import FeatureSet, Fitted
from trivet.semantic.fitted import Evidence, first_numbers, fitted_odds, standardised

Numbers = NDArray[np.float64]

FEWEST = 100
"""Pairs."""
FEWEST_OF_EACH = 20
"""Same pairs, and different ones."""
_FOLDS = 5
_STRENGTHS = (1000.0, 300.0, 100.0, 30.0, 10.0, 3.0, 1.0)
_SETS: tuple[FeatureSet, ...] = ("few", "all")
"""Of equals, the first: what is nearest to the verifier as it is."""
_LEAST_SCALE = 0.05
"""A number that hardly varies among the pairs is not blown up."""
_OF_INTERCEPT = 1e-3
"""Strength of its penalty: enough for a solution where all pairs are alike."""
_ROUNDS = 50
_DIGITS = 8
"""Of a weight, significant: sums in another order differ in the sixteenth."""


@dataclass(frozen=True, slots=True)
class Fit:
    """The layer, and what it says of each pair where it was fitted without that pair's fold."""

    weights: Fitted
    unseen: Numbers
    """Log odds, one for each pair, in the order given."""


class Missing(NamedTuple):
    """Why nothing can be fitted: how many more pairs it takes, and of each kind. All 0: the pairs
    hang together in too few groups."""

    pairs: int
    same: int
    different: int


@dataclass(frozen=True, slots=True)
class Examples:
    """Pairs to fit to, and the names of the parts that stay together."""

    evidence: Evidence
    same: NDArray[np.bool_]
    groups: Sequence[str]


def fit(examples: Examples) -> Fit | Missing:
    """Fit to the pairs, or say what is missing."""
    short = _missing(examples)
    if short is not None:
        return short
    order = _canonical(examples)
    ordered = _some(examples, order)
    folds = _folds(ordered.groups)
    tried = [
        _Tried(features, strength, _unseen(ordered, folds, features, strength))
        for features in _SETS
        for strength in _STRENGTHS
    ]
    best = min(tried, key=lambda one: round(_loss(one.unseen, ordered.same), 9))
    unseen = np.empty(len(order))
    unseen[order] = best.unseen
    return Fit(fit_layer(ordered, best.features, best.strength), unseen)


class _Tried(NamedTuple):
    features: FeatureSet
    strength: float
    unseen: Numbers


def fit_layer(examples: Examples, features: FeatureSet, strength: float) -> Fitted:
    """The layer at one strength of the penalty."""
    numbers = first_numbers(examples.evidence.numbers, features)
    odds, same = examples.evidence.odds, examples.same
    means = _rounded(numbers.mean(axis=0))
    scales = _rounded(np.maximum(numbers.std(axis=0), _LEAST_SCALE))
    start = Fitted(
        features=features,
        pairs=len(same),
        intercept=0.0,
        trust=1.0,
        weights=(0.0,) * numbers.shape[1],
        means=tuple(means.tolist()),
        scales=tuple(scales.tolist()),
    )
    rows = np.column_stack([np.ones(len(same)), odds, standardised(numbers, start)])
    found = _rounded(_newton(rows, same, strength))
    return start.model_copy(
        update={
            "intercept": float(found[0]),
            "trust": float(found[1]),
            "weights": tuple(found[2:].tolist()),
        }
    )


def _newton(rows: Numbers, same: NDArray[np.bool_], strength: float) -> Numbers:
    """The weights of least penalised log loss: intercept, trust, and the others."""
    prior = np.zeros(rows.shape[1])
    prior[1] = 1.0
    penalty = np.full(rows.shape[1], strength)
    penalty[0] = _OF_INTERCEPT
    labels = same.astype(np.float64)

    def cost(weights: Numbers) -> float:
        odds = rows @ weights
        data = np.logaddexp(0, odds) - labels * odds
        return float(data.sum() + 0.5 * (penalty * (weights - prior) ** 2).sum())

    weights, now = prior, cost(prior)
    for _ in range(_ROUNDS):
        chance = 1 / (1 + np.exp(-np.clip(rows @ weights, -60, 60)))
        slope = rows.T @ (chance - labels) + penalty * (weights - prior)
        bend = (rows * (chance * (1 - chance))[:, None]).T @ rows + np.diag(penalty)
        step = np.linalg.solve(bend, slope)
        length = 1.0
        while length > 1e-6 and cost(weights - length * step) > now:
            length /= 2
        weights = weights - length * step
        before, now = now, cost(weights)
        if before - now < 1e-10 * max(1.0, now):
            break
    return weights


def _unseen(
    examples: Examples, folds: NDArray[np.intp], features: FeatureSet, strength: float
) -> Numbers:
    """Log odds of each pair by the layer of the other folds."""
    found = np.zeros(len(folds))
    for fold in range(_FOLDS):
        inside = folds == fold
        layer = fit_layer(_some(examples, np.flatnonzero(~inside)), features, strength)
        found[inside] = fitted_odds(examples.evidence.some(np.flatnonzero(inside)), layer)
    return found


def _some(examples: Examples, which: NDArray[np.intp]) -> Examples:
    groups = [examples.groups[at] for at in which.tolist()]
    return Examples(examples.evidence.some(which), examples.same[which], groups)


def _loss(odds: Numbers, same: NDArray[np.bool_]) -> float:
    return float(np.logaddexp(0, np.where(same, -odds, odds)).mean())


def _folds(groups: Sequence[str]) -> NDArray[np.intp]:
    """A fold for each pair: groups, largest first, go where the fewest pairs are."""
    sizes = Counter(groups)
    filled = [0] * _FOLDS
    place: dict[str, int] = {}
    for name in sorted(sizes, key=lambda one: (-sizes[one], one)):
        fold = filled.index(min(filled))
        place[name] = fold
        filled[fold] += sizes[name]
    return np.array([place[name] for name in groups], dtype=np.intp)


def _canonical(examples: Examples) -> NDArray[np.intp]:
    """An order of the pairs that only their contents decide: sums are then the same."""
    seen = examples.evidence
    keys = (examples.same, seen.odds, *seen.numbers.T)
    return np.lexsort(keys)


def _rounded(values: Numbers) -> Numbers:
    return np.array([float(f"{value:.{_DIGITS}g}") for value in values])


def _missing(examples: Examples) -> Missing | None:
    count, same = len(examples.same), int(examples.same.sum())
    short = [FEWEST - count, FEWEST_OF_EACH - same, FEWEST_OF_EACH - (count - same)]
    if max(short) > 0:
        return Missing(*(max(0, one) for one in short))
    folds = _folds(examples.groups)
    for fold in range(_FOLDS):
        rest = examples.same[folds != fold]
        if rest.all() or not rest.any() or not (folds == fold).any():
            return Missing(0, 0, 0)
    return None

"""Fits the chain `fitted` to labelled pairs: a logistic layer over what the verifier sees.

The log odds are `intercept + trust * odds + weights . z`, where `odds` are the shipped verifier's
and `z` its numbers about the pair, standardised, the cosine among them. An L2 penalty pulls the
trust and the weights to 0, but for that of the cosine, which is free: the stronger the penalty, the
nearer the order of the scores is to the cosine's. How strong it is, and whether all numbers take
part or two of them, is decided by cross-validation (log loss); questions and groups that belong
together lie in one fold, so that no question is on both sides.

Where numbers contradict each other, `contradicted` is added, which starts out as good as a veto:
only pairs that ask the same in spite of it raise it (a normal prior: `_BEFORE`,
`_OF_CONTRADICTED`).

The same pairs give the same weights, in whatever order they come.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trivet.eval.logistic import Numbers, least_loss
from trivet.policies.fitted import FeatureSet, Fitted
from trivet.semantic.fitted import Evidence, first_numbers, fitted_odds, standardised

FEWEST = 100
"""Pairs."""
FEWEST_OF_EACH = 20
"""Same pairs, and different ones."""
_FOLDS = 5
_STRENGTHS = (1000.0, 300.0, 100.0, 30.0, 10.0, 3.0, 1.0)
_SETS: tuple[FeatureSet, ...] = ("few", "all")
"""Of equals, the first: what is nearest to the cosine as it is."""
_LEAST_SCALE = 0.05
"""A number that hardly varies among the pairs is not blown up."""
_OF_FREE = 1e-3
"""Strength of the penalty of the intercept and of the cosine: enough for a solution where all pairs
are alike, or the cosine parts them perfectly."""
_BEFORE = -12.0
"""Log odds for numbers that contradict each other, before a pair with such numbers was seen."""
_OF_CONTRADICTED = 0.05
"""Strength of the pull to it: a few pairs that ask the same outweigh it."""
_CONTRADICTED, _FIRST, _COSINE = 2, 3, 1
"""Columns of `_newton`: `contradicted`, the first of the numbers; from there, the cosine."""
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
    """The layer at one strength of the penalty. The second of the numbers is the cosine."""
    numbers = first_numbers(examples.evidence.numbers, features)
    odds, same = examples.evidence.odds, examples.same
    means = _rounded(numbers.mean(axis=0))
    scales = _rounded(np.maximum(numbers.std(axis=0), _LEAST_SCALE))
    start = Fitted(
        features=features,
        pairs=len(same),
        intercept=0.0,
        trust=0.0,
        contradicted=_BEFORE,
        weights=(0.0,) * numbers.shape[1],
        means=tuple(means.tolist()),
        scales=tuple(scales.tolist()),
    )
    rows = np.column_stack(
        [np.ones(len(same)), odds, examples.evidence.contradicted, standardised(numbers, start)]
    )
    found = _rounded(_newton(rows, same, strength))
    return start.model_copy(
        update={
            "intercept": float(found[0]),
            "trust": float(found[1]),
            "contradicted": float(found[2]),
            "weights": tuple(found[_FIRST:].tolist()),
        }
    )


def _newton(rows: Numbers, same: NDArray[np.bool_], strength: float) -> Numbers:
    """The weights of least penalised log loss: intercept, trust, contradicted, and the others."""
    prior = np.zeros(rows.shape[1])
    prior[_CONTRADICTED] = _BEFORE
    penalty = np.full(rows.shape[1], strength)
    penalty[[0, _FIRST + _COSINE]] = _OF_FREE
    penalty[_CONTRADICTED] = _OF_CONTRADICTED
    return least_loss(rows, same, penalty, prior)


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

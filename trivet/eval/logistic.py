"""Logistic regression with a penalty, and whether probabilities tell more than a score does."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from trivet.eval.sweep import Row

Numbers = NDArray[np.float64]

_ROUNDS = 50
_LEAST = 1e-9
"""Scores are held so far from 0 and 1 before their log odds are taken."""
_WEAK = 1e-3
"""Penalty: enough for a solution where a score parts the labels perfectly."""


def least_loss(rows: Numbers, same: NDArray[np.bool_], penalty: Numbers, prior: Numbers) -> Numbers:
    """The weights w of least log loss and penalty, sum of penalty * (w - prior)^2 / 2 (Newton's
    method). `rows` has shape (n, weights)."""
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


def gain(told: Sequence[Row], base: Sequence[Row]) -> float:
    """By how many standard errors the probabilities of `told` lose less than the scores of `base`.

    Both are about the same pairs; those to which `told` gives no score are left out. `told` is
    taken at its word, so what was fitted has to be cross-validated; `base` gets the logistic curve
    that suits these very pairs best, with a level of its own for pairs without a score, so that
    what is said for `told` errs on the low side. 0 where nothing can be compared.
    """
    both = [(one, other) for one, other in zip(told, base, strict=True) if one.score is not None]
    same = np.array([one.same for one, _ in both], dtype=bool)
    if len(both) < 2 or same.all() or not same.any():
        return 0.0
    ours = _losses(_log_odds([one.score for one, _ in both]), same)
    saved = _best_losses([other.score for _, other in both], same) - ours
    deviation = float(saved.std(ddof=1))
    return float(saved.mean()) / (deviation / math.sqrt(len(both))) if deviation else 0.0


def _best_losses(scores: Sequence[float | None], same: NDArray[np.bool_]) -> Numbers:
    """By a curve over the scores, or over their log odds: a cosine is no probability."""
    missing = np.array([score is None for score in scores], dtype=np.float64)
    found = []
    for values in (np.array([score or 0.0 for score in scores]), _log_odds(scores)):
        rows = np.column_stack([np.ones(len(same)), np.where(missing, 0.0, values), missing])
        weights = least_loss(rows, same, np.full(3, _WEAK), np.zeros(3))
        found.append(_losses(rows @ weights, same))
    return min(found, key=lambda losses: float(losses.sum()))


def _log_odds(scores: Sequence[float | None]) -> Numbers:
    held = np.clip([score or 0.0 for score in scores], _LEAST, 1 - _LEAST)
    return np.asarray(np.log(held / (1 - held)))


def _losses(odds: Numbers, same: NDArray[np.bool_]) -> Numbers:
    return np.asarray(np.logaddexp(0, np.where(same, -odds, odds)))

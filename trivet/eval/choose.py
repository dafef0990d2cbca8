"""Picks a threshold so that the promise about it still holds after it was picked.

The promise: with probability `confidence` over the certifying pairs, at most `target` of what the
threshold serves is false, in traffic like those pairs. Each threshold is a hypothesis ("more than
`target` of what it serves is false") with an exact p-value: of n hits with k false ones,
P(Bin(n, target) <= k). It is at most 1 - confidence just where the one-sided bound of Clopper and
Pearson (Biometrika 26, 1934) is at most the target. The hypotheses are tested in an order that the
certifying labels had no part in, each at the full level, until the first that stands: fixed-
sequence testing, which keeps the probability of any false rejection at the level, so that any of
the rejected ones may be picked; the last one is (Angelopoulos,
Bates, Candes, Jordan and Lei, Learn then Test, 2021, arXiv:2110.01052, section 3 and, for an order
that other data chose, "split fixed sequence testing"; Bates et al., Distribution-free,
risk-controlling prediction sets, J. ACM 68, 2021).

Two orders, both from strict to loose:

- `rank_path`: spares no pairs. It starts at the score that the first n certifying pairs reach,
  where n is the fewest hits that can certify anything, and goes on by ranks that only n, target
  and confidence determine. Scores say where these ranks lie, labels do not. Valid where lower
  scores are not likelier to be right: then the first threshold that misses the target is one fixed
  score, whatever was drawn, and the hits above it are false independently with probability
  `target` (docs/calibration.md has the argument, and tests draw from it).
- `learned_path`: from pairs that were set aside. They say where to start (where the certifying
  pairs are most likely to reject) and which thresholds follow. Nothing is assumed but that pairs
  are drawn independently and alike. It takes some forty times the fewest hits to be the better
  order; it is, where some of the highest scores are false.

Several chains: one is chosen on pairs set aside, by `promising`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from trivet.eval.bounds import hits_needed, upper_bound
from trivet.eval.sweep import Row

NOISE = 1e-6
"""Scores of one pair differ by less, however texts are batched. Nearer scores count as equal."""
_STEPS = 40
"""Thresholds of a learned path after its first."""
_REACHED = 2.0
"""A rate times the number of pairs: without a false hit, a quarter of them come down to it."""


class Certified(NamedTuple):
    """A threshold that keeps the target, and its counts on the certifying pairs."""

    threshold: float
    hits: int
    """Pairs served, false ones included."""
    false_hits: int
    upper_bound: float


class Shortfall(NamedTuple):
    """What is missing to certify the threshold that comes nearest to it."""

    hits: int
    """More hits, none of them false."""
    pairs: int
    """More pairs, at the share of pairs that this threshold serves."""
    served: int
    """What it serves of the pairs there are."""
    false_hits: int


def p_value(false_hits: int, hits: int, target: float) -> float:
    """P(Bin(hits, target) <= false_hits): the p-value of "more than `target` is false"."""
    from scipy.special import bdtr

    return float(bdtr(false_hits, hits, target)) if hits else 1.0


def certify(
    rows: Sequence[Row], path: Sequence[float], target: float, confidence: float
) -> Certified | None:
    """The last threshold of the path before the first whose hypothesis stands; None: the first."""
    found = rejected(rows, path, target, confidence)
    return found[-1] if found else None


def rejected(
    rows: Sequence[Row], path: Sequence[float], target: float, confidence: float
) -> list[Certified]:
    """The thresholds of the path before the first whose hypothesis stands: all keep the target."""
    ranked = _ranked(rows)
    found: list[Certified] = []
    for threshold in path:
        hits, false_hits = _served(ranked, threshold)
        bound = upper_bound(false_hits, hits, confidence)
        if bound > target:
            break
        found.append(Certified(threshold, hits, false_hits, bound))
    return found


def rank_path(
    rows: Sequence[Row], target: float, confidence: float, deepest: int | None = None
) -> list[float]:
    """Thresholds at fixed ranks of the rows' scores, to the rank `deepest`. No label is read."""
    scores = [score for score, _ in _ranked(rows)]
    last = len(scores) if deepest is None else min(deepest, len(scores))
    path: list[float] = []
    for rank in _ranks(last, target, confidence):
        end = _end_of_ties(scores, rank)
        threshold = just_below(scores[end - 1])
        if not path or threshold < path[-1]:
            path.append(threshold)
    return path


def learned_path(chosen_on: Sequence[Row], scale: float, target: float) -> list[float]:
    """Thresholds from the most promising one on, by the pairs set aside.

    `scale`: how many certifying pairs there are for each of them.
    """
    start = _start(chosen_on, scale, target)
    if start is None:
        return []
    scores = [score for score, _ in _ranked(chosen_on)]
    step = max(1, (len(scores) - start.rank) // _STEPS)
    path = [start.threshold]
    for rank in range(start.rank + step, len(scores) + 1, step):
        threshold = just_below(scores[_end_of_ties(scores, rank) - 1])
        if threshold < path[-1]:
            path.append(threshold)
    return path


def promising(rows: Sequence[Row], target: float) -> float:
    """How many same pairs a chain serves near the target: the mean at 1, 2 and 4 times of it.

    One target says little of few pairs, since one false hit decides where it lies. A rate counts
    half a false hit more than was seen; targets that so few pairs cannot reach are raised to what
    a quarter of them could.
    """
    reachable = max(target, _REACHED / max(1, len(rows)))
    cuts = list(_cuts(_ranked(rows)))
    best = [
        max(
            (hits - false for hits, false, _ in cuts if _rate(hits, false) <= reachable * times),
            default=0,
        )
        for times in (1, 2, 4)
    ]
    return sum(best) / len(best)


def shortfall(rows: Sequence[Row], target: float, confidence: float) -> Shortfall | None:
    """What it would take, at the threshold for which it takes the fewest pairs. None: no score."""
    best: Shortfall | None = None
    needed: dict[int, int] = {}
    for hits, false_hits, _ in _cuts(_ranked(rows)):
        if false_hits not in needed:
            needed[false_hits] = hits_needed(target, confidence, false_hits)
        more = max(1, needed[false_hits] - hits)
        found = Shortfall(more, math.ceil(more * len(rows) / hits), hits, false_hits)
        if best is None or found.pairs < best.pairs:
            best = found
    return best


def past_help(missing: Shortfall, target: float, confidence: float) -> bool:
    """Whether the nearest threshold serves more false hits than chance makes of the target: then
    more pairs like these will hardly help. P(Bin(served, target) >= false_hits) is too small."""
    if not missing.false_hits:
        return False
    return 1 - p_value(missing.false_hits - 1, missing.served, target) < 1 - confidence


def just_below(score: float) -> float:
    """A threshold of six decimals that serves this score, however it is rounded, and none that is
    three millionths below it."""
    return math.ceil((score - 2 * NOISE) * 1e6) / 1e6


def _ranks(count: int, target: float, confidence: float) -> Iterator[int]:
    """From where one more false hit is allowed, a third of the way to the next such rank.

    The rest of the way has the least chance to pass, and what fails there ends the path.
    """
    false_hits, rank = 0, hits_needed(target, confidence)
    while rank <= count:
        false_hits += 1
        following = hits_needed(target, confidence, false_hits)
        third = rank + (following - rank) // 3
        yield from range(rank, min(third, count) + 1, max(1, (third - rank) // 8))
        rank = following


def _ranked(rows: Sequence[Row]) -> list[tuple[float, bool]]:
    """Scores, highest first, and whether a hit there is false."""
    return sorted(
        ((row.score, not row.same) for row in rows if row.score is not None), reverse=True
    )


def _served(ranked: Sequence[tuple[float, bool]], threshold: float) -> tuple[int, int]:
    served = [false for score, false in ranked if score >= threshold]
    return len(served), sum(served)


def _end_of_ties(scores: Sequence[float], rank: int) -> int:
    """The first rank from `rank` on whose successor is lower by more than noise."""
    while rank < len(scores) and scores[rank - 1] - scores[rank] <= 4 * NOISE:
        rank += 1
    return rank


def _cuts(ranked: Sequence[tuple[float, bool]]) -> Iterator[tuple[int, int, float]]:
    """Hits, false hits and score wherever a threshold can part the rows."""
    false_hits = 0
    for at, (score, false) in enumerate(ranked, 1):
        false_hits += false
        if at == len(ranked) or score - ranked[at][0] > 4 * NOISE:
            yield at, false_hits, score


def _rate(hits: int, false_hits: int) -> float:
    """Half a false hit more than was seen: none among a few is no proof of none among many."""
    return (false_hits + 0.5) / (hits + 1)


class _Start(NamedTuple):
    p_value: float
    """Expected of the certifying pairs."""
    loose: int
    rank: int
    threshold: float


def _start(rows: Sequence[Row], scale: float, target: float) -> _Start | None:
    """Where the certifying pairs are likeliest to reject; of equals, the loosest."""
    found: list[_Start] = []
    for hits, false_hits, score in _cuts(_ranked(rows)):
        expected = round(hits * scale)
        p = p_value(round(_rate(hits, false_hits) * expected), expected, target)
        found.append(_Start(p, -hits, hits, just_below(score)))
    return min(found, default=None)

"""What every threshold would serve, and how much of it wrongly: pure functions over scored rows."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from trivet.eval.bounds import upper_bound

READABLE = 20
"""Thresholds that a table has where none are given."""


class Row(NamedTuple):
    """One pair as the sweep sees it. No score: never served."""

    score: float | None
    same: bool
    slice: str = ""


class SweepPoint(NamedTuple):
    """One threshold. A pair is served from a score of `threshold` on. Rates are fractions."""

    threshold: float
    hits: int
    """Pairs served that want the same answer, of `same`."""
    same: int
    false_hits: int
    """Pairs served that do not, of `different`."""
    different: int
    precision: float
    """hits / (hits + false_hits); 1 where nothing is served."""
    false_hit_rate: float
    """Among what is served: 1 - precision."""
    upper_bound: float
    """On the false-hit rate, one-sided and exact; 1 where nothing is served."""
    false_over_all: float
    """False hits over all pairs, served or not."""

    @property
    def coverage(self) -> float:
        """Share of the same pairs that is served; 0 where there are none."""
        return self.hits / self.same if self.same else 0.0


def sweep(
    rows: Sequence[Row], thresholds: Sequence[float], confidence: float = 0.95
) -> list[SweepPoint]:
    """One point for each threshold, in the order given."""
    same = sorted(row.score for row in rows if row.same and row.score is not None)
    different = sorted(row.score for row in rows if not row.same and row.score is not None)
    totals = sum(row.same for row in rows), sum(not row.same for row in rows)
    points = []
    for threshold in thresholds:
        hits = len(same) - bisect_left(same, threshold)
        false_hits = len(different) - bisect_left(different, threshold)
        points.append(_point(threshold, (hits, false_hits), totals, confidence))
    return points


def _point(
    threshold: float, served: tuple[int, int], totals: tuple[int, int], confidence: float
) -> SweepPoint:
    hits, false_hits = served
    all_hits = hits + false_hits
    return SweepPoint(
        threshold=threshold,
        hits=hits,
        same=totals[0],
        false_hits=false_hits,
        different=totals[1],
        precision=hits / all_hits if all_hits else 1.0,
        false_hit_rate=false_hits / all_hits if all_hits else 0.0,
        upper_bound=upper_bound(false_hits, all_hits, confidence),
        false_over_all=false_hits / sum(totals) if sum(totals) else 0.0,
    )


def by_slice(
    rows: Sequence[Row], thresholds: Sequence[float], confidence: float = 0.95
) -> dict[str, list[SweepPoint]]:
    """The sweep of each slice that has a name, in the order in which they appear."""
    names = dict.fromkeys(row.slice for row in rows if row.slice)
    return {
        name: sweep([row for row in rows if row.slice == name], thresholds, confidence)
        for name in names
    }


def distinct_thresholds(rows: Iterable[Row], at_most: int = READABLE) -> list[float]:
    """Scores of the rows as thresholds, ascending: thinned evenly by rank to `at_most`.

    They are rounded down to four decimals, so that what a table shows can be typed again. The
    lowest serves every pair that has a score.
    """
    scores = sorted({math.floor(row.score * 1e4) / 1e4 for row in rows if row.score is not None})
    if len(scores) <= at_most:
        return scores
    step = (len(scores) - 1) / (at_most - 1)
    return [scores[round(at * step)] for at in range(at_most)]


def ceiling(rows: Sequence[Row], target: float, confidence: float = 0.95) -> SweepPoint | None:
    """The threshold with the most hits among those whose false-hit rate is at most `target`.

    It was picked on the rows that measure it: no promise about others. None where none fits.
    """
    ranked = sorted((-row.score, not row.same) for row in rows if row.score is not None)
    best: float | None = None
    hits = false_hits = most = 0
    for at, (negated, wrong) in enumerate(ranked):
        hits, false_hits = hits + (not wrong), false_hits + wrong
        whole = at + 1 == len(ranked) or ranked[at + 1][0] != negated
        if whole and hits > most and false_hits <= target * (hits + false_hits):
            best, most = -negated, hits
    return None if best is None else sweep(rows, [best], confidence)[0]


def curve_thresholds(rows: Sequence[Row], at_most: int = 60) -> list[float]:
    """Thresholds for a picture: `distinct_thresholds` where the choice is made.

    That is from the threshold on that still serves 95 % of the same pairs; below it, more
    thresholds say the same.
    """
    same = sorted(row.score for row in rows if row.same and row.score is not None)
    low = same[len(same) // 20] if same else -math.inf
    return distinct_thresholds(
        [row for row in rows if row.score is not None and row.score >= low], at_most
    )


class RocPoint(NamedTuple):
    """One operating point: shares of the different and of the same pairs that are served."""

    false_positive_rate: float
    recall: float
    precision: float


def operating_points(rows: Sequence[Row]) -> list[RocPoint]:
    """Every operating point that a threshold can reach, from serving nothing to serving all.

    Pairs without a score come last, together: no threshold reaches the point that serves them,
    but rankings are measured over all pairs.
    """
    totals = sum(row.same for row in rows), sum(not row.same for row in rows)
    counts: dict[float, list[int]] = {}
    for row in rows:
        served = counts.setdefault(-math.inf if row.score is None else row.score, [0, 0])
        served[0 if row.same else 1] += 1
    hits = false_hits = 0
    points = [RocPoint(0.0, 0.0, 1.0)]
    for score in sorted(counts, reverse=True):
        hits += counts[score][0]
        false_hits += counts[score][1]
        points.append(
            RocPoint(
                false_hits / totals[1] if totals[1] else 0.0,
                hits / totals[0] if totals[0] else 0.0,
                hits / (hits + false_hits),
            )
        )
    return points


def roc_auc(rows: Sequence[Row]) -> float | None:
    """Probability that a same pair outscores a different one, ties counted half.

    The area under the ROC curve (Hanley and McNeil, Radiology 143, 1982). None where one of the
    two kinds is missing.
    """
    if len({row.same for row in rows}) < 2:
        return None
    points = operating_points(rows)
    return math.fsum(
        (right.false_positive_rate - left.false_positive_rate) * (right.recall + left.recall) / 2
        for left, right in pairwise(points)
    )


def average_precision(rows: Sequence[Row]) -> float | None:
    """Precision averaged over recall in steps, without interpolation. None without same pairs."""
    if not any(row.same for row in rows):
        return None
    points = operating_points(rows)
    return math.fsum(
        (right.recall - left.recall) * right.precision for left, right in pairwise(points)
    )

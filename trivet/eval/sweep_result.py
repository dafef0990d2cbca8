"""A finished sweep: what the table, the JSON, the plot and the report show of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from trivet.eval.dropped import Dropped
from trivet.eval.scoring import ScoredPair
from trivet.eval.sweep import (
    Row,
    SweepPoint,
    average_precision,
    by_slice,
    ceiling,
    curve_thresholds,
    distinct_thresholds,
    roc_auc,
    sweep,
)

NEAREST = 4
"""Nearest different-intent pairs that are told by name where no other number is asked for."""
TARGETS = (0.01, 0.02, 0.05)
"""False-hit rates whose ceiling of coverage is told."""
_LISTED = 20
"""Nearest pairs that are kept for the report."""


class Near(NamedTuple):
    """A pair that wants different answers, and how alike the chain finds it."""

    score: float
    a: str
    b: str
    slice: str
    id: str


@dataclass(frozen=True, slots=True)
class Subject:
    """What was swept, in words."""

    file: str
    dataset: str
    """Digest of the pairs, in hex."""
    embedder: str
    chain: str
    gate: tuple[str, ...] | None = None
    """Intents that were let through; None without the gate."""
    notes: tuple[str, ...] = ()
    dropped: Dropped | None = None
    """What the gate drops; None without it."""


@dataclass(frozen=True, slots=True)
class SweepResult:
    """The whole of a sweep."""

    subject: Subject
    rows: tuple[Row, ...]
    confidence: float
    points: tuple[SweepPoint, ...]
    curve: tuple[SweepPoint, ...]
    """Finer than `points`, for pictures."""
    slices: dict[str, tuple[SweepPoint, ...]]
    auc: float | None
    average_precision: float | None
    ceilings: dict[float, SweepPoint | None]
    """For each of `TARGETS`, the best threshold in hindsight (`sweep.ceiling`)."""
    nearest: tuple[Near, ...]
    """Highest score first; text and JSON show `named` of them."""
    named: int
    unscored: dict[str, int]
    """Pairs that no threshold serves, by reason, most frequent first."""


def summarise(
    subject: Subject,
    scored: Sequence[ScoredPair],
    thresholds: Sequence[float] = (),
    confidence: float = 0.95,
    nearest: int = NEAREST,
) -> SweepResult:
    """Sweep the scored pairs at the thresholds; without any, at a readable number of scores."""
    rows = tuple(Row(one.score, one.pair.same, one.pair.slice) for one in scored)
    chosen = list(thresholds) or distinct_thresholds(rows)
    return SweepResult(
        subject=subject,
        rows=rows,
        confidence=confidence,
        points=tuple(sweep(rows, chosen, confidence)),
        curve=tuple(sweep(rows, curve_thresholds(rows), confidence)),
        slices={k: tuple(v) for k, v in by_slice(rows, chosen, confidence).items()},
        auc=roc_auc(rows),
        average_precision=average_precision(rows),
        ceilings={target: ceiling(rows, target, confidence) for target in TARGETS},
        nearest=tuple(nearest_different(scored, max(nearest, _LISTED))),
        named=nearest,
        unscored=dict(Counter(one.reason for one in scored if one.score is None).most_common()),
    )


def nearest_different(scored: Sequence[ScoredPair], count: int = NEAREST) -> list[Near]:
    """The different pairs with the highest scores, highest first; ties from z to a."""
    near = [
        Near(one.score, one.pair.a, one.pair.b, one.pair.slice, one.pair.id)
        for one in scored
        if one.score is not None and not one.pair.same
    ]
    return sorted(near, reverse=True)[:count]


def threshold_labels(points: Sequence[SweepPoint]) -> list[str]:
    """The thresholds as text, all with two decimals where that is exact, else with four."""
    digits = 2 if all(point.threshold == round(point.threshold, 2) for point in points) else 4
    return [f"{point.threshold:.{digits}f}" for point in points]


def as_json(result: SweepResult) -> dict[str, Any]:
    """For scripts. Rates are fractions; what is not defined is null."""
    subject = result.subject
    return {
        "file": subject.file,
        "dataset": subject.dataset,
        "embedder": subject.embedder,
        "chain": subject.chain,
        "gate": None if subject.gate is None else list(subject.gate),
        "gate_drops": None if subject.dropped is None else subject.dropped.data,
        "pairs": len(result.rows),
        "confidence": result.confidence,
        "rows": [point._asdict() for point in result.points],
        "slices": {
            name: [point._asdict() for point in points] for name, points in result.slices.items()
        },
        "auc": result.auc,
        "average_precision": result.average_precision,
        "nearest": [near._asdict() for near in result.nearest[: result.named]],
        "ceilings": {
            str(target): None if point is None else point._asdict()
            for target, point in result.ceilings.items()
        },
        "unscored": result.unscored,
        "notes": list(subject.notes),
    }

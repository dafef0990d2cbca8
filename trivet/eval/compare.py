"""What a changed model changes: two calibrations beside each other, and pairs that change sides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trivet.eval.score import JudgedPair, Totals, totals
from trivet.policies.calibration import Calibration


@dataclass(frozen=True, slots=True)
class Changed:
    """A pair that only one of the two serves."""

    a: str
    b: str
    same: bool
    served: bool
    """By the new one."""
    reason: str
    """Why the one that does not serve it does not."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """An old and a new calibration; what both do with the same pairs, where they were given."""

    old: Calibration
    new: Calibration
    worse: tuple[str, ...]
    """In what the new one is worse; empty where it is not."""
    served: tuple[Totals | None, Totals] | None = None
    """Old and new; no old where its chain is there no more."""
    changed: tuple[Changed, ...] = ()
    carried: Totals | None = None
    """What the old threshold would do to the new chain's scores: it is not made for them."""

    @property
    def same_chain(self) -> bool:
        """Whether both are about one chain, so that their scores mean the same."""
        return self.old.fingerprint == self.new.fingerprint


def compare(
    old: Calibration,
    new: Calibration,
    judged: tuple[Sequence[JudgedPair] | None, Sequence[JudgedPair]] | None = None,
    carried: Sequence[JudgedPair] | None = None,
) -> Comparison:
    """`judged`: what the old and the new one do with the same pairs, in the same order; no old
    where its chain is there no more. `carried`: what the new chain would do at the old threshold.
    """
    if judged is None:
        return Comparison(old, new, tuple(_worse(old, new)))
    before, after = judged
    now = totals(after, new.confidence)
    was = None if before is None else totals(before, new.confidence)
    return Comparison(
        old,
        new,
        (*_worse(old, new), *([] if was is None else _served_worse(was, now))),
        (was, now),
        () if before is None else tuple(_changed(before, after)),
        None if carried is None else totals(carried, new.confidence),
    )


def coverage(calibration: Calibration) -> float | None:
    """Share of the certifying same pairs that it serves; None where there are none."""
    measured = calibration.measured
    hits = measured.hits - measured.false_hits
    return hits / measured.same if measured.same else None


def _worse(old: Calibration, new: Calibration) -> list[str]:
    found: list[str] = []
    if new.target > old.target:
        found.append(f"the target is looser: {new.target:.2%}, it was {old.target:.2%}")
    if new.confidence < old.confidence:
        found.append(f"the confidence is lower: {new.confidence:.0%}, it was {old.confidence:.0%}")
    if old.threshold is None:
        return found
    if new.threshold is None:
        found.append("nothing is certified any more")
        return found
    was, now = coverage(old), coverage(new)
    if old.dataset == new.dataset and was is not None and now is not None and now < was:
        found.append(f"it serves {now:.1%} of the same pairs, it was {was:.1%}")
    return found


def _served_worse(before: Totals, after: Totals) -> list[str]:
    found: list[str] = []
    if after.served_same < before.served_same:
        found.append(
            f"of the pairs given, it serves {after.served_same} same ones, "
            f"it was {before.served_same}"
        )
    if after.false_hits > before.false_hits:
        found.append(
            f"of the pairs given, it serves {after.false_hits} wrongly, it was {before.false_hits}"
        )
    return found


def _changed(before: Sequence[JudgedPair], after: Sequence[JudgedPair]) -> list[Changed]:
    """False hits that are new come first."""
    found = [
        Changed(now.pair.a, now.pair.b, now.pair.same, now.served, was.reason or now.reason)
        for was, now in zip(before, after, strict=True)
        if was.served != now.served
    ]
    return sorted(found, key=lambda one: (one.served == one.same, not one.served))


def as_json(comparison: Comparison) -> dict[str, Any]:
    """For scripts."""
    served = comparison.served
    carried = comparison.carried
    return {
        "old": _side(comparison.old),
        "new": _side(comparison.new),
        "same_chain": comparison.same_chain,
        "thresholds_carry_over": comparison.same_chain,
        "worse": list(comparison.worse),
        "served": None
        if served is None
        else {"old": served[0] and served[0]._asdict(), "new": served[1]._asdict()},
        "changed": [
            {"a": one.a, "b": one.b, "same": one.same, "served": one.served, "reason": one.reason}
            for one in comparison.changed
        ],
        "old_threshold_on_new_scores": None if carried is None else carried._asdict(),
    }


def _side(calibration: Calibration) -> dict[str, Any]:
    return {
        **calibration.model_dump(
            mode="json",
            include={
                "made",
                "embedder",
                "fingerprint",
                "dataset",
                "target",
                "confidence",
                "threshold",
                "needed",
                "measured",
            },
        ),
        "coverage": coverage(calibration),
    }

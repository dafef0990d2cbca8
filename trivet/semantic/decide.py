"""Whether a stored answer may be given to a similar question: one pure function.

Eval runs it on labelled pairs and production on requests.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trivet.policies.calibration import Calibration, Fingerprint
from trivet.policies.semantic_model import SemanticPolicy
from trivet.semantic.types import Intention, Neighbour, Verdict

Kind = Literal["hit", "assist", "shadow", "miss"]


@dataclass(frozen=True, slots=True)
class Standing:
    """What is known about the chain that runs and the tenant's calibration."""

    fingerprint: Fingerprint
    calibration: Calibration | None
    closed: str = ""
    """Why the running measurement closed the tier (`bound`, `economics`, `reports`), or that it
    does not know yet (`starting`); empty while open."""
    unseen: str = ""
    """Why the calibration says nothing about one of the two texts: see `unseen.unseen`."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What is done with a neighbour, why, and by which numbers."""

    kind: Kind
    reason: str
    neighbour: Neighbour | None = None
    score: float | None = None
    threshold: float | None = None

    @property
    def would_serve(self) -> bool:
        """Whether the chain takes the two texts for the same: what a shadow counts."""
        return (
            self.score is not None and self.threshold is not None and self.score >= self.threshold
        )


def decide(
    intention: Intention,
    found: tuple[Neighbour, Verdict] | None,
    standing: Standing,
    policy: SemanticPolicy,
    now: float,
) -> Decision:
    """Decide about the nearest live neighbour. `now` is in Unix seconds.

    The reasons of a miss: the intention's own, `intent-NAME`, those of `Standing.unseen`,
    `no-neighbour`, `expired`, `veto-NAME`, `below-threshold`, `quarantine`. Of a shadow: `mode`,
    `uncalibrated`, `other-chain`, `not-certified`, and those of `Standing.closed`.
    """
    refused = _refused(intention, policy) or standing.unseen
    if refused:
        return Decision("miss", refused)
    if found is None:
        return Decision("miss", "no-neighbour")
    neighbour, verdict = found
    record = neighbour.record
    if record.expires <= now:
        return Decision("miss", "expired", neighbour)
    if record.intent not in policy.intents:
        return Decision("miss", f"intent-{record.intent}", neighbour)
    if verdict.veto is not None:
        return Decision("miss", f"veto-{verdict.veto}", neighbour, verdict.score)
    reason, threshold = _threshold(intention, standing)
    if threshold is None:
        return Decision("shadow", reason, neighbour, verdict.score)
    if not verdict.score >= threshold:  # NaN compares false, and is served nothing.
        return Decision("miss", "below-threshold", neighbour, verdict.score, threshold)
    if not record.confirmed:
        return Decision("miss", "quarantine", neighbour, verdict.score, threshold)
    kind, reason = _mode(standing, policy)
    return Decision(kind, reason, neighbour, verdict.score, threshold)


def unfit(policy: SemanticPolicy, running: Fingerprint) -> str:
    """Why the policy's calibration lets nothing be served by the chain that runs: `uncalibrated`,
    `other-chain`, `not-certified`; empty where it does."""
    measured = policy.measured
    if measured is None:
        return "uncalibrated"
    if measured.fingerprint != running:
        return "other-chain"
    return "not-certified" if measured.threshold is None else ""


def _refused(intention: Intention, policy: SemanticPolicy) -> str:
    if not intention.admitted:
        return intention.reason or f"intent-{intention.intent}"
    return "" if intention.intent in policy.intents else f"intent-{intention.intent}"


def _threshold(intention: Intention, standing: Standing) -> tuple[str, float | None]:
    calibration = standing.calibration
    if calibration is None:
        return "uncalibrated", None
    if calibration.fingerprint != standing.fingerprint:
        return "other-chain", None
    return "not-certified", calibration.threshold_for(intention.intent)


def _mode(standing: Standing, policy: SemanticPolicy) -> tuple[Kind, str]:
    if policy.mode not in ("assist", "replace"):
        return "shadow", "mode"
    if standing.closed:
        return "shadow", standing.closed
    return ("hit", "") if policy.mode == "replace" else ("assist", "")

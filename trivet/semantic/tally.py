"""What was counted while the tier ran, and what follows from it: pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from trivet.canonical import sha256
from trivet.policies.calibration import Calibration
from trivet.policies.economics import worth_it
from trivet.policies.semantic_model import SemanticPolicy
from trivet.semantic.confidence import audits_to_open, lower, upper

Reason = Literal["", "bound", "economics", "reports"]
_MOST_DIGESTS = 4096


class Cell(NamedTuple):
    """What is counted together: one tenant under one calibration, one model family, one intent."""

    tenant: str
    calibration: str
    """What `digest_of` says of it: another calibration starts all counts anew."""
    family: str
    """`API:MODEL`; empty where it is not known."""
    intent: str


class Counts(NamedTuple):
    """Totals of one cell."""

    audits: int = 0
    """Hits that were drawn at random and judged."""
    false_hits: int = 0
    """Those among them that were wrong."""
    lookups: int = 0
    hits: int = 0
    reported: int = 0
    """Hits that a caller called wrong: no random sample, so never among the audits."""

    def plus(self, other: Counts) -> Counts:
        """The sum, field by field."""
        return Counts(
            self.audits + other.audits,
            self.false_hits + other.false_hits,
            self.lookups + other.lookups,
            self.hits + other.hits,
            self.reported + other.reported,
        )


NOTHING = Counts()


@dataclass(frozen=True, slots=True)
class Rules:
    """How much evidence it takes. Each bound fails with probability `alpha` at most, for ever."""

    alpha: float = 0.05
    patience: int = 1
    """The upper bound counts from this many times the audits that a clean run needs."""
    lookups: int = 100
    hits: int = 20
    """Hits before reports count."""


def digest_of(calibration: Calibration | None) -> str:
    """32 hex digits that two equal calibrations share; empty for none."""
    if calibration is None:
        return ""
    return sha256(calibration.model_dump_json().encode())[:16].hex()


class Digests:
    """Digests of policies' calibrations, each made once."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[Calibration, str]] = {}

    def of(self, policy: SemanticPolicy) -> str:
        """What `digest_of` says of the policy's calibration."""
        measured = policy.measured
        if measured is None:
            return ""
        found = self._made.get(id(measured))
        if found is None or found[0] is not measured:
            # The calibration is kept with its digest, so that its id stays its own.
            if len(self._made) >= _MOST_DIGESTS:
                self._made.clear()
            found = self._made[id(measured)] = measured, digest_of(measured)
        return found[1]


def contradicted(counts: Counts, target: float, rules: Rules) -> bool:
    """Whether the audits of one cell speak against the target.

    The lower bound is above it; or the upper bound still is, after as many audits as could have
    brought it down.
    """
    n, k = counts.audits, counts.false_hits
    if lower(n, k, rules.alpha) > target:
        return True
    return _settled(n, target, rules) and upper(n, k, rules.alpha) > target


def closing(counts: Counts, policy: SemanticPolicy, rules: Rules) -> Reason:
    """What the counts of a tenant's intent, over all its families, say against serving it."""
    target = policy.target_false_hits
    if lower(counts.audits, counts.false_hits, rules.alpha) > target:
        return "bound"
    if _too_many_reports(counts, target, rules):
        return "reports"
    return "economics" if _does_not_pay(counts, policy, rules) else ""


def _too_many_reports(counts: Counts, target: float, rules: Rules) -> bool:
    if counts.hits < rules.hits:
        return False
    return lower(counts.hits, min(counts.reported, counts.hits), rules.alpha) > target


def _does_not_pay(counts: Counts, policy: SemanticPolicy, rules: Rules) -> bool:
    """Whether h*c > l + h*f*w fails for every hit rate that the lookups leave possible.

    h is the upper bound on it: a cache that is still empty is no evidence that it will not pay.
    """
    if policy.economics is None or counts.lookups < rules.lookups:
        return False
    false_rate = _false_rate(counts, policy, rules)
    hit_rate = upper(counts.lookups, min(counts.hits, counts.lookups), rules.alpha)
    return false_rate is not None and not worth_it(hit_rate, false_rate, policy.economics)


def _false_rate(counts: Counts, policy: SemanticPolicy, rules: Rules) -> float | None:
    if _settled(counts.audits, policy.target_false_hits, rules):
        return upper(counts.audits, counts.false_hits, rules.alpha)
    return None if policy.measured is None else policy.measured.measured.upper_bound


def _settled(audits: int, target: float, rules: Rules) -> bool:
    return audits >= rules.patience * audits_to_open(target, rules.alpha)

"""What a calibration serves of other labelled pairs: each goes through the tier's own `decide`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from trivet.eval.bounds import upper_bound
from trivet.eval.pairs import LabelledPair
from trivet.eval.scoring import ScoredPair, refusal, score_pairs
from trivet.policies.calibration import Calibration
from trivet.policies.intents import Intent
from trivet.policies.semantic_model import SemanticPolicy
from trivet.semantic.chain import Chain
from trivet.semantic.decide import Decision, Standing, decide
from trivet.semantic.types import Intention, Neighbour, Partition, Record, Verdict
from trivet.semantic.unseen import unseen

_OPEN = Intention(Intent.INFORMATIONAL, admitted=True)
"""Of every text where the gate filters nothing."""
_NOW = 0.0


@dataclass(frozen=True, slots=True)
class JudgedPair:
    """One pair and what the tier would do with it."""

    pair: LabelledPair
    score: float | None
    """None where the two texts were not compared."""
    served: bool
    reason: str
    """Why not; empty where it is served."""

    @property
    def false_hit(self) -> bool:
        """Served, and the wrong answer."""
        return self.served and not self.pair.same


class Totals(NamedTuple):
    """Counts over some pairs. Rates are fractions."""

    pairs: int
    same: int
    hits: int
    """Pairs served, false ones included."""
    served_same: int
    false_hits: int
    coverage: float | None
    """Served same pairs of all same pairs; None where there are none."""
    false_hit_rate: float | None
    """Among hits; None where nothing is served."""
    upper_bound: float
    """On that rate, one-sided and exact, at the calibration's confidence."""
    false_over_all: float
    """False hits over all pairs."""


def judge_pairs(
    calibration: Calibration,
    chain: Chain,
    pairs: Sequence[LabelledPair],
    admit: Sequence[Intent] | None,
) -> list[JudgedPair]:
    """Decide about every pair, in order, as `replace` would. `admit`: intents that pass the gate;
    None: all texts do.

    Nothing is served where the chain is not the calibration's. Raises `EmbedderError`.
    """
    policy = SemanticPolicy(
        mode="replace", intents=(_OPEN.intent,) if admit is None else tuple(admit)
    )
    return [
        _judged(
            one, Standing(chain.fingerprint, calibration, unseen=_unseen(one, calibration)), policy
        )
        for one in score_pairs(chain, pairs, admit)
    ]


def other_parts(calibration: Calibration, chain: Chain) -> list[str]:
    """The parts of the chain whose fingerprints are not those that were calibrated."""
    was, runs = calibration.fingerprint.model_dump(), chain.fingerprint.model_dump()
    return [name for name in was if was[name] != runs[name]]


def totals(judged: Sequence[JudgedPair], confidence: float) -> Totals:
    """Count. `confidence` is that of the bound."""
    same = sum(one.pair.same for one in judged)
    hits = sum(one.served for one in judged)
    false_hits = sum(one.false_hit for one in judged)
    return Totals(
        pairs=len(judged),
        same=same,
        hits=hits,
        served_same=hits - false_hits,
        false_hits=false_hits,
        coverage=(hits - false_hits) / same if same else None,
        false_hit_rate=false_hits / hits if hits else None,
        upper_bound=upper_bound(false_hits, hits, confidence),
        false_over_all=false_hits / len(judged) if judged else 0.0,
    )


def by_slice(judged: Sequence[JudgedPair], confidence: float) -> dict[str, Totals]:
    """Totals of each slice that has a name, sorted by it."""
    names = sorted({one.pair.slice for one in judged if one.pair.slice})
    return {
        name: totals([one for one in judged if one.pair.slice == name], confidence)
        for name in names
    }


def as_json(calibration: Calibration, judged: Sequence[JudgedPair]) -> dict[str, Any]:
    """For scripts: `rows` has one object for each pair, in order."""
    return {
        "rows": [
            {
                "id": one.pair.id,
                "a": one.pair.a,
                "b": one.pair.b,
                "same": one.pair.same,
                "slice": one.pair.slice,
                "score": one.score,
                "served": one.served,
                "reason": one.reason,
            }
            for one in judged
        ],
        "threshold": calibration.threshold,
        "target": calibration.target,
        "confidence": calibration.confidence,
        "chain": calibration.fingerprint.chain,
        "totals": totals(judged, calibration.confidence)._asdict(),
        "slices": {
            name: found._asdict()
            for name, found in by_slice(judged, calibration.confidence).items()
        },
    }


def _judged(one: ScoredPair, standing: Standing, policy: SemanticPolicy) -> JudgedPair:
    found = _neighbour(one, policy)
    decision = decide(one.asked or _OPEN, found, standing, policy, _NOW)
    served = decision.kind == "hit"
    return JudgedPair(one.pair, decision.score, served, _reason(one, decision, policy))


def _unseen(one: ScoredPair, calibration: Calibration) -> str:
    return unseen(one.pair.b, calibration) or unseen(one.pair.a, calibration)


def _neighbour(one: ScoredPair, policy: SemanticPolicy) -> tuple[Neighbour, Verdict] | None:
    """None where the stored text is in another partition, or would not have been stored."""
    stored = one.stored or _OPEN
    if one.verdict is None or not stored.admitted or stored.intent not in policy.intents:
        return None
    record = Record(
        id="",
        tenant="",
        partition=Partition(b""),
        key=b"",
        text=one.pair.a,
        vector=b"",
        intent=stored.intent,
        created=_NOW,
        expires=_NOW + 1,
    )
    return Neighbour(record, one.cosine), one.verdict


def _reason(one: ScoredPair, decision: Decision, policy: SemanticPolicy) -> str:
    """The decision's; where there was no neighbour, why there was none."""
    if decision.reason != "no-neighbour":
        return decision.reason
    return "context" if one.verdict is None else refusal(one, policy.intents)

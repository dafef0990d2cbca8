"""How much of the labelled pairs the gate leaves: it decides how useful the tier can be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from trivet.eval.counted import counted
from trivet.eval.scoring import ScoredPair, refusal
from trivet.policies.intents import Intent


@dataclass(frozen=True, slots=True)
class Dropped:
    """What the gate makes of all pairs of a file. A pair goes where one of its texts does."""

    pairs: int
    dropped: int
    texts: int
    """Distinct ones."""
    passed: int
    """Texts that are let through."""
    reasons: dict[str, int]
    """Dropped pairs by what the gate said: an intent, `unsure`, a rule; most frequent first."""

    @property
    def data(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "pairs": self.pairs,
            "dropped": self.dropped,
            "texts": self.texts,
            "texts_passed": self.passed,
            "reasons": self.reasons,
        }

    @property
    def text(self) -> str:
        """One line."""
        by = [f"{reason} {count}" for reason, count in self.reasons.items()]
        told = "; ".join(filter(None, (f"{self.dropped / self.pairs:.0%}", ", ".join(by))))
        return (
            f"the gate drops {self.dropped} of {counted(self.pairs, 'pair')} ({told}), and lets "
            f"{self.passed} of {counted(self.texts, 'text')} through"
        )


def dropped(scored: Sequence[ScoredPair], admit: Collection[Intent]) -> Dropped:
    """Count the pairs that a gate which lets `admit` through drops. There has to be a pair."""
    reasons = Counter(filter(None, (refusal(one, admit) for one in scored)))
    said = {one.pair.a: one.stored for one in scored} | {one.pair.b: one.asked for one in scored}
    return Dropped(
        pairs=len(scored),
        dropped=reasons.total(),
        texts=len(said),
        passed=sum(
            one is not None and one.admitted and one.intent in admit for one in said.values()
        ),
        reasons={reason.removeprefix("intent-"): count for reason, count in reasons.most_common()},
    )

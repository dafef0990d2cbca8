"""What scores a pair of texts: the embedder, what looks at both texts, and the gate before them.

Eval measures this very chain, and production serves by it; its fingerprint ties the two together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trivet.policies.calibration import Chain as ChainName
from trivet.policies.calibration import Fingerprint
from trivet.policies.intents import Intent
from trivet.semantic.types import (
    Embedder,
    IntentClassifier,
    Intention,
    TextPair,
    Verdict,
    Verifier,
)

if TYPE_CHECKING:
    from trivet.semantic.types import Vectors


@dataclass(frozen=True, slots=True)
class Chain:
    """One way to score. `verifier` is None for `cosine`, and only for it."""

    name: ChainName
    embedder: Embedder
    verifier: Verifier | None = None
    gate: IntentClassifier | None = None

    @property
    def fingerprint(self) -> Fingerprint:
        """What a calibration has to name to be about this chain."""
        return Fingerprint(
            chain=self.name,
            embedder=self.embedder.fingerprint,
            verifier=None if self.verifier is None else self.verifier.fingerprint,
            gate=None if self.gate is None else self.gate.fingerprint,
        )

    def classify(self, texts: Sequence[str], vectors: Vectors) -> list[Intention]:
        """What the gate makes of the texts; `vectors` are the embedder's, one row a text.

        Without a gate nothing is admitted.
        """
        if self.gate is None:
            return [Intention(Intent.INFORMATIONAL, False, "no-gate")] * len(texts)
        own = self.gate.reads == self.embedder.fingerprint
        return self.gate.classify(texts, vectors if own else None)

    def verify(self, pairs: Sequence[TextPair]) -> list[Verdict]:
        """A verdict for each pair. The score of `cosine` and `rules` is the cosine."""
        if self.verifier is None:
            return [Verdict(pair.cosine) for pair in pairs]
        found = self.verifier.verify(pairs)
        if self.name != "rules":
            return found
        return [
            Verdict(pair.cosine, verdict.veto) for pair, verdict in zip(pairs, found, strict=True)
        ]

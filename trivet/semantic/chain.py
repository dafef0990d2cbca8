"""What scores a pair of texts: the embedder, what looks at both texts, and the gate before them.

Eval measures this very chain, and production serves by it; its fingerprint ties the two together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trivet.policies.calibration import Chain as ChainName
from trivet.policies.calibration import Fingerprint
from trivet.semantic.types import Embedder, IntentClassifier, TextPair, Verdict, Verifier


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

"""Verifiers of text pairs: rules that object, and the trained trees over all features."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from trivet.semantic.features import Pair, analyse, features
from trivet.semantic.trees import Trees
from trivet.semantic.types import TextPair, Verdict
from trivet.semantic.verify_rules import objections

HERE = Path(__file__).parent
WEIGHTS = HERE / "weights" / "verifier.npz"
COSINE_WEIGHT = 8.0
"""Log odds for each 1.0 of cosine, beside what the trees make of it, where no rule sees a
contradiction: trees do not extrapolate, and texts unlike the training data are ranked too."""
COSINE_CENTRE = 0.75
LOWEST_MARGIN = -2.0
"""Below it the trees count for little: how unlike two texts are is the cosine's to say."""
SHORT = 40
"""Words of two texts together, up to which a number on either side is what is asked about."""
BAND = 0.5
"""Width in log odds of the steps that scores come in. A threshold chosen on few pairs lies just
above a pair that is different; with steps, it lies above all that score about as high."""
_LOW_SLOPE = 0.3
_RULE_FILES = (
    "english.py", "features.py", "trees.py", "verify.py", "verify_align.py", "verify_lexicon.py",
    "verify_numbers.py", "verify_rules.py", "verify_text.py", "weights/lexicon.npz",
)  # fmt: skip
_SURE = frozenset({"number", "act", "length"})
"""Objections that hold whatever the trained score."""


def fingerprint(*files: str) -> str:
    """Hex SHA-256 of the contents of files of this package."""
    digest = hashlib.sha256()
    for name in files:
        digest.update(hashlib.sha256((HERE / name).read_bytes()).digest())
    return digest.hexdigest()


class RuleVerifier:
    """Objects by rule; the score is the cosine."""

    name = "rules"

    def __init__(self) -> None:
        self.fingerprint = fingerprint(*_RULE_FILES)

    def verify(self, pairs: Sequence[TextPair]) -> list[Verdict]:
        """The cosine of each pair, and the first objection to it."""
        return [Verdict(pair.cosine, first(objections_to(analyse(pair)))) for pair in pairs]


class TrainedVerifier:
    """Boosted trees over `features`; the score is the probability of the same answer."""

    name = "verifier"

    def __init__(self, path: Path = WEIGHTS) -> None:
        with np.load(path) as arrays:
            self._trees = Trees.from_arrays(arrays)
            self._slope, self._offset = (float(x) for x in arrays["scaling"])
        own = hashlib.sha256(path.read_bytes()).hexdigest()
        self.fingerprint = hashlib.sha256((fingerprint(*_RULE_FILES) + own).encode()).hexdigest()

    def verify(self, pairs: Sequence[TextPair]) -> list[Verdict]:
        """A probability for each pair; a veto where a rule is sure."""
        if not pairs:
            return []
        analysed = [analyse(pair) for pair in pairs]
        margins = self._trees.margin(np.stack([features(pair) for pair in analysed]))
        return [self._verdict(pair, margin) for pair, margin in zip(analysed, margins, strict=True)]

    def _verdict(self, pair: Pair, margin: float) -> Verdict:
        odds = self._slope * blend(pair, margin) + self._offset
        score = squash(BAND * math.floor(odds / BAND))
        sure = _SURE if len(pair.a.words) + len(pair.b.words) <= SHORT else _SURE - {"number"}
        return Verdict(score, first(name for name in objections_to(pair) if name in sure))


def blend(pair: Pair, margin: float) -> float:
    """The margin of the trees and the cosine; the cosine has no say in a contradiction."""
    if pair.differences.inverted:
        return margin
    raised = max(margin, LOWEST_MARGIN + _LOW_SLOPE * (margin - LOWEST_MARGIN))
    nearness = COSINE_WEIGHT * (pair.cosine - COSINE_CENTRE)
    return raised + (min(nearness, 0.0) if pair.differences.exchanged else nearness)


def squash(margin: float) -> float:
    """The logistic function, without overflow."""
    return 1 / (1 + math.exp(-min(max(margin, -60.0), 60.0)))


def objections_to(pair: Pair) -> tuple[str, ...]:
    """What rules object to; `length` for texts that are cut and not equal."""
    if (pair.a.cut or pair.b.cut) and pair.a.whole != pair.b.whole:
        return ("length",)
    return objections(pair.a, pair.b, pair.alignment, pair.differences)


def first(names: Iterable[str]) -> str | None:
    """The first name, or None."""
    return next(iter(names), None)

"""A small chain that does as it is told, and pairs for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from trivet.eval.pairs import LabelledPair
from trivet.policies.intents import Intent
from trivet.semantic.types import Intention, TextPair, Verdict


class Angles:
    """`N:word` is embedded at N degrees from `0:word`: the cosine of a pair is that of N."""

    name = "angles"
    dimension = 2

    def __init__(self, fingerprint: str = "e1") -> None:
        self.fingerprint = fingerprint
        self.asked: list[str] = []

    def embed(self, texts: Sequence[str]) -> Any:
        self.asked += texts
        angles = np.radians([float(text.split(":")[0]) for text in texts])
        return np.column_stack([np.cos(angles), np.sin(angles)]).astype(np.float32)


class Telling:
    """Texts that say `trap` get half of the cosine; it objects to those that say `never`."""

    name = "telling"
    fingerprint = "v1"

    def verify(self, pairs: Sequence[TextPair]) -> list[Verdict]:
        return [
            Verdict(
                pair.cosine / 2 if "trap" in pair.asked else pair.cosine,
                "never" if "never" in pair.asked else None,
            )
            for pair in pairs
        ]


class WordGate:
    """`do` is an action, `when` is of time, all else informational."""

    fingerprint = "g1"
    reads = "e1"

    def classify(self, texts: Sequence[str], vectors: Any) -> list[Intention]:
        return [self._one(text) for text in texts]

    def _one(self, text: str) -> Intention:
        if "do" in text:
            return Intention(Intent.ACTION, True)
        return Intention(Intent.TIME if "when" in text else Intent.INFORMATIONAL, True)


def pairs(count: int, same: bool, word: str = "q", spread: float = 40.0) -> list[LabelledPair]:
    """So many pairs whose angles are spread evenly from 0, each with questions of its own."""
    return [
        LabelledPair(f"0:{word} a{at}", f"{spread * at / count:.3f}:{word} b{at}", same, word)
        for at in range(count)
    ]

"""Builders for the semantic tier's tests."""

from __future__ import annotations

from datetime import date
from typing import Any

import numpy as np

from trivet.policies.calibration import Calibration, Fingerprint, Measured
from trivet.policies.intents import Intent
from trivet.policies.semantic_model import SemanticPolicy
from trivet.semantic.decide import Standing
from trivet.semantic.types import Intention, Neighbour, Partition, Record

FINGERPRINT = Fingerprint(chain="verifier", embedder="e1", verifier="v1", gate="g1")
NOW = 1_000_000.0


def record(text: str = "how do I reset it", **given: Any) -> Record:
    values: dict[str, Any] = {
        "id": "ab" * 16,
        "tenant": "t1",
        "partition": Partition(b"p" * 32),
        "key": b"k" * 32,
        "text": text,
        "vector": np.array([1, 0, 0], "<f4").tobytes(),
        "intent": Intent.INFORMATIONAL,
        "created": NOW - 10,
        "expires": NOW + 100,
    }
    return Record(**{**values, **given})


def neighbour(cosine: float = 0.9, **given: Any) -> Neighbour:
    return Neighbour(record(**given), cosine)


def intention(intent: Intent = Intent.INFORMATIONAL, **given: Any) -> Intention:
    return Intention(intent, **{"admitted": True, **given})


def calibration(threshold: float | None = 0.8, **given: Any) -> Calibration:
    values: dict[str, Any] = {
        "made": date(2026, 11, 30),
        "fingerprint": FINGERPRINT,
        "dataset": "0" * 64,
        "target": 0.02,
        "confidence": 0.95,
        "threshold": threshold,
        "measured": Measured(pairs=400, same=200, hits=150, false_hits=0, upper_bound=0.0198),
    }
    return Calibration(**{**values, **given})


def standing(measured: Calibration | None = None, *, closed: str = "") -> Standing:
    return Standing(FINGERPRINT, calibration() if measured is None else measured, closed)


def policy(**given: Any) -> SemanticPolicy:
    return SemanticPolicy(**{"mode": "replace", **given})

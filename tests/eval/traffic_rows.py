"""Builders of recorded traffic, and a chain that does as it is told."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from trivet.messages import Api
from trivet.policies.calibration import Calibration, Measured
from trivet.policies.intents import Intent
from trivet.policies.semantic_model import SemanticPolicy
from trivet.policies.traffic import (
    RecordedAnswer,
    RecordedExact,
    RecordedUsage,
    Traffic,
    write_line,
)
from trivet.semantic.chain import Chain
from trivet.semantic.types import Intention, TextPair, Verdict


def digest_of(*parts: str) -> str:
    return hashlib.sha256("/".join(parts).encode()).hexdigest()


def answer(text: str | None = "yes", **given: Any) -> RecordedAnswer:
    values: dict[str, Any] = {
        "tier": "model",
        "plain": True,
        "text": text,
        "usage": RecordedUsage(input=100, output=10),
        "price": 0.5,
        "upstream_s": 2.0,
    }
    return RecordedAnswer(**{**values, **given})


def row(at: float, text: str | None, tenant: str = "t1", **given: Any) -> Traffic:
    """A request for `text`; None is a redacted one. `rest` names the partition."""
    rest = given.pop("rest", "r")
    named = given.pop("named", text or "?")
    exact = {"store": True, "ttl": 3600.0, **given.pop("exact", {})}
    values: dict[str, Any] = {
        "at": at,
        "tenant": tenant,
        "api": Api.CHAT,
        "model": "m",
        "key": digest_of(tenant, rest, named),
        "exact": RecordedExact(**exact),
        "rest": digest_of(tenant, rest),
        "text": text,
        "text_digest": digest_of(tenant, named),
        "answer": answer(None if text is None else "yes"),
    }
    return Traffic(**{**values, **given})


def write(path: Path, rows: Iterable[Traffic]) -> Path:
    path.write_bytes(b"".join(map(write_line, rows)))
    return path


class Letters:
    """Embeds a text as the counts of its letters a to d."""

    name = "letters"
    fingerprint = "00"
    dimension = 4

    def __init__(self) -> None:
        self.asked: list[str] = []

    def embed(self, texts: Sequence[str]) -> Any:
        self.asked += texts
        counts = np.array([[text.count(one) for one in "abcd"] for text in texts], np.float32)
        return counts / np.linalg.norm(counts, axis=1, keepdims=True)


class Gate:
    """`d...` is an action, all else informational."""

    fingerprint = "02"
    reads = "00"

    def __init__(self) -> None:
        self.asked: list[str] = []

    def classify(self, texts: Sequence[str], vectors: Any) -> list[Intention]:
        self.asked += texts
        return [
            Intention(Intent.ACTION if text.startswith("d") else Intent.INFORMATIONAL, True)
            for text in texts
        ]


class Objecting:
    """Objects where one text has an exclamation mark and the other has none."""

    name = "objecting"
    fingerprint = "01"

    def __init__(self) -> None:
        self.asked: list[TextPair] = []

    def verify(self, pairs: Sequence[TextPair]) -> list[Verdict]:
        self.asked += pairs
        return [
            Verdict(pair.cosine, "mark" if ("!" in pair.stored) != ("!" in pair.asked) else None)
            for pair in pairs
        ]


def chain() -> Chain:
    return Chain("verifier", Letters(), Objecting(), Gate())


def calibration(of: Chain, threshold: float | None = 0.95, **given: Any) -> Calibration:
    values: dict[str, Any] = {
        "made": date(2026, 11, 30),
        "fingerprint": of.fingerprint,
        "dataset": "0" * 64,
        "target": 0.02,
        "confidence": 0.95,
        "threshold": threshold,
        "measured": Measured(pairs=400, same=200, hits=150, false_hits=0, upper_bound=0.02),
    }
    return Calibration(**{**values, **given})


def policy(of: Chain, threshold: float | None = 0.95, **given: Any) -> SemanticPolicy:
    made = SemanticPolicy(mode="replace", **given)
    made.attach(calibration(of, threshold))
    return made

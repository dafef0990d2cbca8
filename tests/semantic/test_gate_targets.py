"""The gate against rows whose intents it never saw, and the design's stress pairs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from training.gate_split import is_held, shared_rows
from trivet.policies.intents import Intent
from trivet.semantic.embedders import open_embedder
from trivet.semantic.gate import load_gate

SHARED = Path(__file__).parents[3] / "shared"
pytestmark = pytest.mark.skipif(
    not (SHARED / "data" / "intents").is_dir(), reason="the shared data are not here"
)


def passes(texts: list[str]) -> list[bool]:
    embedder, gate = open_embedder("default"), load_gate()
    found = []
    for start in range(0, len(texts), 64):
        batch = texts[start : start + 64]
        found += gate.classify(batch, embedder.embed(batch))
    return [one.admitted and one.intent is Intent.INFORMATIONAL for one in found]


@pytest.fixture(scope="module")
def shares() -> dict[str, float]:
    """Label -> share of its held-out rows that pass."""
    rows = [row for row in shared_rows(SHARED) if is_held(row)]
    passed = passes([row["text"] for row in rows])
    by_label: dict[str, list[bool]] = {}
    for row, one in zip(rows, passed, strict=True):
        by_label.setdefault(row["label"], []).append(one)
    return {label: sum(found) / len(found) for label, found in by_label.items()}


@pytest.mark.parametrize(("label", "most"), [("action", 0.01), ("account", 0.01), ("time", 0.03)])
def test_held_out_requests_that_must_not_be_shared_are_refused(
    shares: dict[str, float], label: str, most: float
) -> None:
    assert shares[label] <= most


def test_half_of_the_held_out_informational_texts_pass(shares: dict[str, float]) -> None:
    assert shares["info"] >= 0.5


def stress_pairs() -> list[dict[str, Any]]:
    lines = (SHARED / "data" / "seed24.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line) for line in lines]


def test_nine_of_the_twelve_stress_paraphrases_pass() -> None:
    pairs = [pair for pair in stress_pairs() if pair["same"]]
    first, second = passes([p["a"] for p in pairs]), passes([p["b"] for p in pairs])
    assert sum(a and b for a, b in zip(first, second, strict=True)) >= 9


@pytest.mark.parametrize(
    ("pair", "side"), [(12, "a"), (15, "a"), (16, "a"), (16, "b"), (17, "a"), (18, "a")]
)
def test_commands_and_records_of_the_stress_pairs_do_not_pass(pair: int, side: str) -> None:
    (row,) = [row for row in stress_pairs() if row["id"] == pair]
    assert passes([row[side]]) == [False]

"""Which rows of the shared intents teach, which measure, and which sentences nobody may learn."""

from __future__ import annotations

import argparse
import hashlib
import json
from pathlib import Path
from typing import Any

from trivet.semantic.gate_features import normalised

SALT = "trivet-1"
HELD = 0.3
BY_TEXT = ("situatedqa", "freshqa")
TEACHING = ("clinc150", "hwu64")
OWN = Path(__file__).parent / "data"


def shared_rows(shared: Path) -> list[dict[str, Any]]:
    """Rows of gating.jsonl: text, label (info, action, account, time), source, intent."""
    file = shared / "data" / "intents" / "gating.jsonl"
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()]


def is_held(row: dict[str, Any]) -> bool:
    """Whether a row only measures: 30 % of the intents, or of the texts where none are named."""
    return _unit(SALT, row["text"] if row["source"] in BY_TEXT else row["intent"]) < HELD


def fold(group: str, folds: int) -> int:
    """The fold of cross-validation that a group is in, from 0."""
    return int(_unit("fold", group) * folds)


def sentences(shared: Path) -> set[str]:
    """Normalised words, joined, of every text that may not teach, held-out and our own ones too."""
    texts = [
        row["text"] for row in shared_rows(shared) if row["source"] not in TEACHING or is_held(row)
    ]
    files = sorted((shared / "data" / "pairs").glob("*.jsonl"))
    for file in [*files, shared / "data" / "seed24.jsonl"]:
        for line in file.read_text("utf-8").splitlines():
            row = json.loads(line)
            texts += [row[side] for side in "ab" if isinstance(row[side], str)]
    return {" ".join(normalised(text)) for text in [*texts, *(row["text"] for row in own_rows())]}


def own_rows(number: int | None = None) -> list[dict[str, Any]]:
    """Rows of the lists that we wrote to measure, or of one: text, label (an intent), domain."""
    files = sorted(OWN.glob(f"gate_faq_{number or '*'}.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text("utf-8").splitlines()]


def _unit(salt: str, text: str) -> float:
    return int.from_bytes(hashlib.sha256((salt + text).encode()).digest()[:8], "big") / 2**64


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Print the rows that only measure, as JSON lines.")
    parser.add_argument("--shared", type=Path, default=Path("../shared"))
    for found in shared_rows(parser.parse_args().shared):
        if is_held(found):
            print(json.dumps(found))

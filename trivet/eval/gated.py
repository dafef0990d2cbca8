"""Runs the gate over a file of texts, and counts what it lets through for each label."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trivet.errors import ConfigError, Problem
from trivet.eval.counted import counted
from trivet.eval.findings import refusal_of
from trivet.eval.side_by_side import one_line
from trivet.policies.intents import Intent
from trivet.progress import busy, watched
from trivet.semantic.types import Intention

_BATCH = 64


@dataclass(frozen=True, slots=True)
class Text:
    """One row: a text, and its label where it carries one."""

    text: str
    label: str | None = None


@dataclass(frozen=True, slots=True)
class Judged:
    """A row, what the gate made of it, and whether a policy that opens the intents lets it pass."""

    row: Text
    intention: Intention
    admitted: bool

    @property
    def data(self) -> dict[str, Any]:
        """For JSON: text, intent, admitted, reason, score, and the label where there is one."""
        told: dict[str, Any] = {
            "text": self.row.text,
            "intent": self.intention.intent.value,
            "admitted": self.admitted,
            "reason": self.intention.reason,
            "score": round(self.intention.score, 6),
        }
        return told if self.row.label is None else {**told, "label": self.row.label}


def read_texts(path: Path) -> list[Text]:
    """Read JSON lines of `text` and maybe `label`. Raises `ConfigError`."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except OSError as error:
        told = f"cannot be read: {error.strerror}"
        raise ConfigError(Problem(str(path), 0, 0, "", told)) from None
    except UnicodeDecodeError as error:
        told = f"is not UTF-8 at byte {error.start}"
        raise ConfigError(Problem(str(path), 0, 0, "", told)) from None
    rows: list[Text] = []
    problems: list[Problem] = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            row = _row(line)
            if isinstance(row, Text):
                rows.append(row)
            else:
                problems.append(Problem(str(path), number, 1, *row))
    if len(problems) > 1 and not rows and all(one.field == "text" for one in problems):
        raise ConfigError(Problem(str(path), 0, 0, "", "no row has a `text` that is a string"))
    if problems:
        raise refusal_of(str(path), problems)
    return rows


def _row(line: str) -> Text | tuple[str, str]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return "", "is not JSON"
    if not isinstance(row, dict):
        return "", "is not a JSON object"
    text, label = row.get("text"), row.get("label")
    if not isinstance(text, str):
        return "text", "has to be a string"
    if label is not None and not isinstance(label, str):
        return "label", "has to be a string"
    return Text(text, label)


def gate_rows(
    rows: Sequence[Text], opened: Collection[Intent], *, use_vectors: bool = True
) -> list[Judged]:
    """Judge every row with the gate that ships, by the default embedder or by words alone.

    Raises `ConfigError` for weights, `EmbedderError` for the embedder.
    """
    from trivet.semantic.gate import load_gate

    embedder = None
    if use_vectors and rows:
        from trivet.semantic.embedders import open_embedder

        with busy("loading the models"):
            embedder = open_embedder("default")
    judged: list[Judged] = []
    starts = range(0, len(rows), _BATCH)
    for start in watched(starts, len(starts), "judging"):
        batch = rows[start : start + _BATCH]
        texts = [_whole(row.text) for row in batch]
        vectors = None if embedder is None else embedder.embed(texts)
        found = load_gate().classify(texts, vectors)
        judged += [
            Judged(row, one, one.admitted and one.intent in opened)
            for row, one in zip(batch, found, strict=True)
        ]
    return judged


def _whole(text: str) -> str:
    """JSON can write half of a surrogate pair, which no embedder takes."""
    return text.encode("utf-8", "replace").decode("utf-8")


def as_table(judged: Sequence[Judged]) -> str:
    """For people: each text with its verdict, the counts, and the labels against the verdicts."""
    lines = [
        f"{'pass' if one.admitted else 'stop'}  {one.intention.intent:<13}  "
        f"{one.intention.score:5.3f}  {one.intention.reason or '-':<24}  "
        f"{one_line(one.row.text)[:80]}"
        for one in judged
    ]
    passed = sum(one.admitted for one in judged)
    lines += [
        "",
        f"{passed} of {counted(len(judged), 'text')} {'pass' if len(judged) != 1 else 'passes'}.",
    ]
    if any(one.row.label is not None for one in judged):
        lines += ["", *_confusion(judged)]
    return "\n".join(lines)


def _confusion(judged: Sequence[Judged]) -> list[str]:
    counts = Counter((_label(one), one.intention.intent) for one in judged)
    passes = Counter(_label(one) for one in judged if one.admitted)
    labels = sorted({_label(one) for one in judged})
    width = max(map(len, [*labels, "label"]))
    names = [intent.value for intent in Intent]
    lines = ["  ".join([f"{'label':<{width}}", *(f"{n:>{len(n)}}" for n in names), "pass     %"])]
    for label in labels:
        row = [counts[label, intent] for intent in Intent]
        cells = [f"{value:>{len(name)}}" for value, name in zip(row, names, strict=True)]
        share = f"{passes[label]:>4} {100 * passes[label] / sum(row):5.1f}"
        lines.append("  ".join([f"{label:<{width}}", *cells, share]))
    return lines


def _label(one: Judged) -> str:
    return one_line(one.row.label or "-")

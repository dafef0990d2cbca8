"""Rows with their targets and verdicts, as a table and as JSON."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True, slots=True)
class Row:
    """One figure. Without a `bound` it is there to be read only."""

    section: str
    name: str
    value: float
    unit: str
    sense: Literal["<=", ">=", "=="] = "<="
    bound: float | None = None
    detail: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None if there is none."""
        if self.bound is None:
            return None
        if self.sense == "==":
            return self.value == self.bound
        return self.value <= self.bound if self.sense == "<=" else self.value >= self.bound

    @property
    def verdict(self) -> str:
        """`met`, `MISSED`, or nothing."""
        return {True: "met", False: "MISSED", None: ""}[self.met]


def number(value: float) -> str:
    """Three digits that matter."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def line(row: Row) -> str:
    """One line of the table."""
    target = "" if row.bound is None else f"{row.sense} {number(row.bound)}"
    return (
        f"  {row.name:<52.52} {number(row.value):>7} {row.unit:<4} {target:<9} "
        f"{row.verdict:<7} {row.detail}"
    ).rstrip()


def summary(rows: Sequence[Row]) -> str:
    """What was met and what was not."""
    judged = [row for row in rows if row.met is not None]
    missed = [row for row in judged if not row.met]
    text = f"{len(judged) - len(missed)} of {len(judged)} targets met"
    if missed:
        text += "; missed: " + ", ".join(f"{row.section} / {row.name}" for row in missed)
    return text


def write(rows: Sequence[Row], file: Path, *, quick: bool) -> None:
    """Keep the figures for later comparison."""
    found = {
        "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": platform.processor() or platform.machine(),
        "python": platform.python_version(),
        "quick": quick,
        "rows": [
            {
                "section": row.section,
                "name": row.name,
                "value": row.value,
                "unit": row.unit,
                "target": None if row.bound is None else f"{row.sense} {row.bound:g}",
                "met": row.met,
                "detail": row.detail,
            }
            for row in rows
        ],
    }
    file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")

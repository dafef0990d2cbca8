"""What the doctor found: a sentence and a remedy each, and how all of them are told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from textwrap import fill
from typing import Any, Literal

Level = Literal["ok", "warning", "fault"]
_CODES: dict[Level, int] = {"ok": 0, "warning": 1, "fault": 2}
_WIDTH = 79


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    check: str
    """What it is about, in a word or two: `store`, `upstream openai`, ..."""
    level: Level
    """`fault`: requests fail, caching does not work, or something is open that must not be."""
    told: str
    remedy: str = ""
    """What to do; empty where all is well."""


def ok(check: str, told: str) -> Finding:
    """All is well."""
    return Finding(check, "ok", told)


def warning(check: str, told: str, remedy: str) -> Finding:
    """It works, and may not be what is wanted."""
    return Finding(check, "warning", told, remedy)


def fault(check: str, told: str, remedy: str) -> Finding:
    """It has to be mended."""
    return Finding(check, "fault", told, remedy)


def exit_code(found: Sequence[Finding]) -> int:
    """0: all is well; 1: the worst is a warning; 2: there is a fault."""
    return max((_CODES[one.level] for one in found), default=0)


def as_data(found: Sequence[Finding]) -> dict[str, Any]:
    """For scripts."""
    counts = Counter(one.level for one in found)
    return {
        "exit_code": exit_code(found),
        "counts": {level: counts[level] for level in _CODES},
        "findings": [asdict(one) for one in found],
    }


def as_text(found: Sequence[Finding]) -> str:
    """For people, in 79 columns."""
    lines = []
    for one in found:
        head = f"{one.level:<8}{one.check}: "
        lines.append(fill(head + one.told, _WIDTH, subsequent_indent=" " * 8))
        if one.remedy:
            lines.append(fill(f"-> {one.remedy}", _WIDTH, initial_indent=" " * 8,
                              subsequent_indent=" " * 11))  # fmt: skip
    counts = Counter(one.level for one in found)
    told = [_counted(counts[level], level) for level in ("fault", "warning") if counts[level]]
    return "\n".join([*lines, "", ", ".join(told) + "." if told else "All is well."])


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"

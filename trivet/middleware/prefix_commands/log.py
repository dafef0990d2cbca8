"""Recorded traffic as the prefix commands read it: the calls that went to a model, by time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from trivet.errors import ConfigError, Problem
from trivet.policies.traffic import Traffic, read_line

_SHOWN: Final = 10


class ReadLog(NamedTuple):
    """What log files hold."""

    calls: list[Traffic]
    """Those whose prompt was recorded, by arrival."""
    hits: int
    """Requests that a cache of Trivet's answered."""
    shapeless: int
    """Calls of a model without their prompt's shape: of an older version."""
    notes: tuple[str, ...]


def read_log(paths: Sequence[Path]) -> ReadLog:
    """Read log files. Raises `ConfigError` with what is wrong, by file, line and field.

    A last line without its line feed is being written, or was cut off: it is left out.
    """
    calls: list[Traffic] = []
    hits = shapeless = 0
    notes: list[str] = []
    for path in paths:
        for row in _rows(path, notes):
            if row.answer.tier != "model":
                hits += 1
            elif row.prompt is None:
                shapeless += 1
            else:
                calls.append(row)
    calls.sort(key=lambda row: row.at)
    return ReadLog(calls, hits, shapeless, tuple(notes))


def _rows(path: Path, notes: list[str]) -> Iterator[Traffic]:
    problems: list[Problem] = []
    try:
        with path.open("rb") as file:
            for line, raw in enumerate(file, 1):
                if not raw.endswith(b"\n"):
                    notes.append(f"{path}: the last line was cut off, and left out.")
                    break
                if not raw.strip():
                    continue
                try:
                    yield read_line(raw, str(path), line)
                except ConfigError as error:
                    problems.extend(error.problems)
                    if len(problems) >= _SHOWN:
                        break
    except OSError as error:
        problems.append(Problem(str(path), 0, 0, "", f"cannot be read: {error.strerror}"))
    if problems:
        raise ConfigError(*problems)

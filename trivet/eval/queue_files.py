"""The proxy's label queue read back: pairs with both answers, each once, in the order of time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from trivet.errors import ConfigError, Problem
from trivet.eval.candidates import Candidate
from trivet.eval.findings import refusal_of
from trivet.policies.queued_pair import QueuedPair, is_queued, read_queued


class Waiting(NamedTuple):
    """A hit that was drawn and waits for a person."""

    tenant: str
    draw: str
    """Names it for `POST /trivet/verdicts`."""
    pair: str
    """Id of the pair whose label is its verdict. A pair may have been drawn several times."""


@dataclass(frozen=True, slots=True)
class Queue:
    """The pairs of one or several files, and what their reader should be told."""

    pairs: tuple[Candidate, ...]
    threshold: float | None
    """From which the newest pair with one was served."""
    notes: tuple[str, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    """In the order of time."""


def queues_of(paths: Sequence[Path]) -> tuple[Path, ...]:
    """Those of the files whose first line is a queued pair. Raises `ConfigError`."""
    found = []
    for path in paths:
        try:
            with path.open("rb") as file:
                first = next((line for line in file if line.strip()), b"")
        except OSError as error:
            raise _unreadable(path, error) from None
        if is_queued(first):
            found.append(path)
    return tuple(found)


def read_queues(paths: Sequence[Path]) -> Queue:
    """Read the files. A last line without its line feed is being written, and left out.

    Raises `ConfigError` with what is wrong, by file, line and field.
    """
    rows: list[tuple[str, QueuedPair]] = []
    problems: list[Problem] = []
    notes: list[str] = []
    for path in paths:
        try:
            raw = path.read_bytes()
        except OSError as error:
            raise _unreadable(path, error) from None
        *lines, last = raw.split(b"\n")
        if last.strip():
            notes.append(f"{path}: the last line was cut off, and left out.")
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                rows.append((path.stem, read_queued(line, str(path), number)))
            except ConfigError as error:
                problems.extend(error.problems)
    if problems:
        raise refusal_of(problems[-1].file, problems)
    rows.sort(key=lambda one: one[1].at)
    thresholds = [row.threshold for _, row in rows if row.threshold is not None]
    pairs = tuple(_candidates(rows))
    return Queue(
        tuple({one.id: one for one in pairs}.values()),
        thresholds[-1] if thresholds else None,
        tuple(notes),
        tuple(
            Waiting(pair.tenant, row.draw, pair.id)
            for pair, (_, row) in zip(pairs, rows, strict=True)
            if row.draw
        ),
    )


def _candidates(rows: Sequence[tuple[str, QueuedPair]]) -> Iterator[Candidate]:
    for stem, row in rows:
        yield Candidate(
            row.tenant or stem,
            row.a,
            row.b,
            row.context,
            row.score,
            row.cosine or 0.0,
            (row.answer_a, row.answer_b),
        )


def _unreadable(path: Path, error: OSError) -> ConfigError:
    return ConfigError(Problem(str(path), 0, 0, "", f"cannot be read: {error.strerror}"))

"""Recorded traffic read back, in the order in which the requests arrived.

Lines are written when a request ends, by several processes and to several files: in the files they
are out of order. One pass checks every line and notes its time and place; the rows themselves are
read when they are played, so that a log need not fit into memory.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from trivet.errors import ConfigError, Problem
from trivet.eval.findings import SHOWN, refusal_of
from trivet.policies.traffic import Traffic, read_line


@dataclass(frozen=True, slots=True)
class TrafficFiles:
    """One or several log files, as they were when they were checked."""

    paths: tuple[Path, ...]
    _identities: tuple[tuple[int, int], ...]
    """Device and inode of each file."""
    _files: array[int]
    _places: array[int]
    """Byte offsets of the lines, in the order of time."""
    texts: int
    """Lines whose compared text was recorded."""
    notes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[Traffic]:
        """The rows by arrival; of one instant, in the order of the files and lines.

        Raises `ConfigError` where a file was set aside or changed meanwhile.
        """
        with ExitStack() as stack:
            files: list[BinaryIO] = []
            for path, identity in zip(self.paths, self._identities, strict=True):
                files.append(stack.enter_context(path.open("rb")))
                if _identity(files[-1]) != identity:
                    message = "was set aside by the proxy meanwhile: run this again"
                    raise ConfigError(Problem(str(path), 0, 0, "", message))
            for number, place in zip(self._files, self._places, strict=True):
                files[number].seek(place)
                yield read_line(files[number].readline(), str(self.paths[number]), 0)


def open_traffic(paths: Sequence[Path]) -> TrafficFiles:
    """Check the files' lines. Raises `ConfigError` with what is wrong, by file, line and field.

    A last line without its line feed is being written, or was cut off: it is left out, and a note
    says so. A file without lines is fine.
    """
    times, files, places = array("d"), array("q"), array("q")
    problems: list[Problem] = []
    notes: list[str] = []
    texts = 0
    identities: list[tuple[int, int]] = []
    for number, path in enumerate(paths):
        sound, told = len(times), len(problems)
        try:
            with path.open("rb") as file:
                identities.append(_identity(file))
                for place, row in _checked(path, file, problems, notes):
                    times.append(row.at)
                    texts += row.text is not None
                    files.append(number)
                    places.append(place)
        except OSError as error:
            problems.append(Problem(str(path), 0, 0, "", f"cannot be read: {error.strerror}"))
        if len(times) == sound:
            problems[told:] = _of_another_kind(path, problems[told:])
        if len(problems) > SHOWN:
            break
    if problems:
        raise refusal_of(problems[-1].file, problems, all_read=False)
    order = sorted(range(len(times)), key=times.__getitem__)
    return TrafficFiles(
        tuple(paths),
        tuple(identities),
        array("q", (files[at] for at in order)),
        array("q", (places[at] for at in order)),
        texts,
        tuple(notes),
    )


def _of_another_kind(path: Path, found: list[Problem]) -> list[Problem]:
    """The findings of a file without a sound line: one, where they say that it is none at all."""
    if len(found) > 1 and all(one.field in ("", "format") for one in found):
        told = "is no recorded traffic: no line of it is a JSON object with `format: 1`"
        return [Problem(str(path), 0, 0, "", told)]
    return found


def _identity(file: BinaryIO) -> tuple[int, int]:
    found = os.fstat(file.fileno())
    return found.st_dev, found.st_ino


def _checked(
    path: Path, file: BinaryIO, problems: list[Problem], notes: list[str]
) -> Iterator[tuple[int, Traffic]]:
    """Byte offset and row of each line that is sound."""
    place = 0
    end = os.fstat(file.fileno()).st_size
    for line, raw in enumerate(file, 1):
        start, place = place, place + len(raw)
        if not raw.endswith(b"\n") or place > end:
            if place <= end:
                notes.append(f"{path}: the last line was cut off, and left out.")
            return
        if not raw.strip():
            continue
        try:
            yield start, read_line(raw, str(path), line)
        except ConfigError as error:
            problems.extend(error.problems)
            if len(problems) > SHOWN:
                return

"""The file of labels: appended to one answer at a time, read by every `trivet eval` command."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from trivet.errors import ConfigError, Problem
from trivet.eval.candidates import Candidate, pair_id, stratum_name, stratum_of

Answer = Literal["same", "different", "unsure"]
By = Literal["person", "judge"]


@dataclass(frozen=True, slots=True)
class Label:
    """A row of the file."""

    id: str
    a: str
    b: str
    same: bool
    unsure: bool
    by: By


class LabelFile:
    """Labels in `path` (JSONL, one pair a line). For one process at a time.

    An unsure answer is a row marked `ambiguous`, which every reader takes as different.
    """

    def __init__(self, path: Path) -> None:
        """Read what is there. Raises `ConfigError` with the line of what is no label."""
        self._path = path
        self._end: list[int] = []
        self.labels: dict[str, Label] = {}
        """By id; of two rows of one pair by a person and a judge, the person's."""
        try:
            self._read(path.read_bytes())
        except FileNotFoundError:
            pass
        except OSError as error:
            raise self._refused(0, "", f"cannot be read: {error.strerror}") from None

    def add(self, pair: Candidate, answer: Answer, by: By, near: float) -> None:
        """Append an answer; it is on the disk when this returns. Raises `ConfigError`."""
        row = {
            "id": pair.id,
            "a": pair.a,
            "b": pair.b,
            "same": answer == "same",
            "context": pair.context,
            "tenant": pair.tenant,
            "score": pair.score,
            "stratum": stratum_name(stratum_of(pair.score, near)),
            "labelled_by": by,
        }
        if answer == "unsure":
            row["ambiguous"] = True
        self._end.append(self._append(json.dumps(row, ensure_ascii=False).encode() + b"\n"))
        self._keep(_label(row))

    def take_back(self, pair: Candidate) -> None:
        """Take out the last answer that this object appended, which was about `pair`."""
        place = self._end.pop()
        try:
            os.truncate(self._path, place)
        except OSError as error:
            raise self._refused(0, "", f"cannot be written: {error.strerror}") from None
        self.labels.pop(pair.id, None)

    def _append(self, line: bytes) -> int:
        """Append one line. Returns where it begins."""
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        try:
            fd = os.open(self._path, flags, 0o600)
            try:
                place = os.fstat(fd).st_size
                if place and os.pread(fd, 1, place - 1) != b"\n":
                    line = b"\n" + line
                if os.write(fd, line) < len(line):
                    os.ftruncate(fd, place)
                    raise OSError(0, "the disk is full")
                os.fsync(fd)
            finally:
                os.close(fd)
        except OSError as error:
            raise self._refused(0, "", f"cannot be written: {error.strerror}") from None
        return place

    def _read(self, raw: bytes) -> None:
        for number, line in enumerate(raw.split(b"\n"), 1):
            if not line.strip():
                continue
            try:
                row: Any = json.loads(line)
            except (ValueError, RecursionError):
                raise self._refused(number, "", "is not JSON") from None
            if type(row) is not dict:
                raise self._refused(number, "", "each line has to be one JSON object")
            for name, kind in (("a", str), ("b", str), ("same", bool)):
                if type(row.get(name)) is not kind:
                    told = "a text" if kind is str else "true or false"
                    raise self._refused(number, name, f"has to be {told}")
            self._keep(_label(row))

    def _keep(self, label: Label) -> None:
        before = self.labels.get(label.id)
        if before is None or before.by == "judge":
            self.labels[label.id] = label

    def _refused(self, line: int, field: str, message: str) -> ConfigError:
        return ConfigError(Problem(str(self._path), line, 1 if line else 0, field, message))


def _label(row: dict[str, Any]) -> Label:
    context = row.get("context")
    return Label(
        id=pair_id(context if isinstance(context, str) else "", row["a"], row["b"]),
        a=row["a"],
        b=row["b"],
        same=row["same"],
        unsure=bool(row.get("ambiguous")),
        by="judge" if row.get("labelled_by") == "judge" else "person",
    )

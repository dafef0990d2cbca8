"""Reads labelled pairs from JSONL and CSV. Every finding names the file, the line and the field.

Columns: `a`, `b` and `same`; `slice`, `group`, `id`, `context` and `ambiguous` may be absent;
others are ignored. `a` and `b` are texts or, in JSONL, message lists. `context` is shared by both
sides, `context_a` and `context_b` are of one.
"""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trivet import canonical
from trivet.errors import ConfigError, Problem
from trivet.eval.counted import counted
from trivet.eval.findings import refusal_of
from trivet.eval.pairs import Contexts, LabelledPair, digest
from trivet.messages import Api
from trivet.semantic.asked import read_asked

_NEEDED = ("a", "b", "same")
_NAMED = 8
"""Columns of a file with others that are told."""
_LONGEST = 40
_YES = frozenset({"true", "1", "yes"})
_NO = frozenset({"false", "0", "no"})
_UNREAD = {
    "multi-part": "the last message has to be one text, without images or files",
    "empty": "the last message is empty",
    "too-long": "the last message is longer than what is ever compared",
    "unreadable": "the messages cannot be read",
}


@dataclass(frozen=True, slots=True)
class PairFile:
    """The pairs of one file, and what its reader should be told about them."""

    pairs: tuple[LabelledPair, ...]
    notes: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """Names the set, whatever the order of its rows (`pairs.digest`)."""
        return digest(self.pairs)


@dataclass(slots=True)
class _Reading:
    """What is known half-way through a file."""

    file: str
    pairs: list[LabelledPair] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    ambiguous: int = 0
    rows: int = 0
    lacking: Counter[str] = field(default_factory=Counter)
    """Rows without a value, by needed column."""
    there: dict[str, None] = field(default_factory=dict)
    """Columns of the rows."""

    def note(self, row: Mapping[str, Any]) -> None:
        self.rows += 1
        self.lacking.update(name for name in _NEEDED if row.get(name) is None)
        if len(self.there) <= _NAMED:
            self.there.update(dict.fromkeys(row))

    def problem(self, line: int, name: str, message: str) -> None:
        self.problems.append(Problem(self.file, line, 1 if line else 0, name, message))


def load_pairs(path: Path) -> PairFile:
    """Read a file: CSV where its name ends in `.csv`, else JSONL (one object a line), UTF-8.

    Rows marked `ambiguous` count as different, which a note says. Raises `ConfigError`.
    """
    reading = _Reading(str(path))
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise ConfigError(
            Problem(str(path), 0, 0, "", f"cannot be read: {error.strerror}")
        ) from None
    except UnicodeDecodeError as error:
        raise ConfigError(
            Problem(str(path), 0, 0, "", f"is not UTF-8 at byte {error.start}")
        ) from None
    rows = _csv_rows if path.suffix.lower() == ".csv" else _json_rows
    for line, row in rows(text, reading):
        reading.note(row)
        pair = _pair(row, line, reading)
        if pair is not None:
            reading.pairs.append(pair)
    return _finished(reading)


def _finished(reading: _Reading) -> PairFile:
    if not reading.pairs and not reading.problems:
        reading.problem(0, "", "has no pairs in it")
    missing = [name for name in _NEEDED if reading.lacking[name] == reading.rows > 1]
    if missing:
        raise ConfigError(Problem(reading.file, 0, 0, "", _no_pairs(missing, reading.there)))
    if reading.problems:
        raise refusal_of(reading.file, reading.problems)
    notes: list[str] = []
    if reading.ambiguous:
        notes.append(f"{counted(reading.ambiguous, 'row')} marked ambiguous: taken as different.")
    again = len(reading.pairs) - len(
        {(pair.a, pair.b, pair.same, pair.context) for pair in reading.pairs}
    )
    if again:
        rows = "1 row repeats" if again == 1 else f"{again} rows repeat"
        notes.append(f"{rows} an earlier one: bounds take every row for a question of its own.")
    return PairFile(tuple(reading.pairs), tuple(notes))


def _no_pairs(missing: Sequence[str], there: Collection[str]) -> str:
    """What is said of a file in which no row has the needed columns."""
    if missing == ["same"] and "same" in there:
        return "no pair in it is labelled: `same` is empty in every row (see trivet eval label)"
    named = [repr(name[:_LONGEST]) for name in list(there)[:_NAMED]]
    named += ["..."] if len(there) > _NAMED else []
    told = f"; there are {', '.join(named)}" if named else ""
    return f"no row has the {_listed(missing)}{told}"


def _listed(names: Sequence[str]) -> str:
    *most, last = names
    return f"columns {', '.join(most)} and {last}" if most else f"column {last}"


def _json_rows(text: str, reading: _Reading) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for line, one in enumerate(text.split("\n"), 1):
        if not one.strip():
            continue
        try:
            row = json.loads(one)
        except (ValueError, RecursionError) as error:
            reading.problem(line, "", f"is not JSON: {_why(error)}")
            continue
        if type(row) is not dict:
            reading.problem(line, "", "each line has to be one JSON object")
            continue
        yield line, row


def _why(error: ValueError | RecursionError) -> str:
    if isinstance(error, json.JSONDecodeError):
        return error.msg
    # Python reads no whole number of more than a few thousand digits (sys.int_info).
    return "a number is too long" if isinstance(error, ValueError) else "nested too deeply"


def _csv_rows(text: str, reading: _Reading) -> Iterator[tuple[int, Mapping[str, Any]]]:
    rows = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        names = rows.fieldnames or []
        missing = [name for name in _NEEDED if name not in names]
        if missing:
            has = (
                f", but {', '.join(repr(name[:_LONGEST]) for name in names[:_NAMED])}"
                if names
                else ""
            )
            reading.problem(1, "", f"the header does not have the {_listed(missing)}{has}")
            return
        for row in rows:
            if None in row:
                reading.problem(rows.line_num, "", "has more cells than the header")
                continue
            yield rows.line_num, {key: value for key, value in row.items() if value is not None}
    except csv.Error as error:
        reading.problem(rows.line_num, "", f"is not CSV: {error}")


def _pair(row: Mapping[str, Any], line: int, reading: _Reading) -> LabelledPair | None:
    before = len(reading.problems)
    a, context_a = _side(row, "a", line, reading)
    b, context_b = _side(row, "b", line, reading)
    same = _same(row, line, reading)
    names = {name: _name(row, name, line, reading) for name in ("slice", "group", "id")}
    if len(reading.problems) > before:
        return None
    if _flag(row.get("ambiguous")):
        reading.ambiguous += 1
        same = False
    return LabelledPair(a, b, same, context=Contexts(context_a, context_b), **names)


def _side(row: Mapping[str, Any], side: str, line: int, reading: _Reading) -> tuple[str, str]:
    text, history = _text(row, side, line, reading)
    given = row.get(f"context_{side}", row.get("context"))
    if given in (None, ""):
        return text, history
    told = given if isinstance(given, str) else canonical.dump(given).decode()
    return text, f"{told}\n{history}" if history else told


def _text(row: Mapping[str, Any], side: str, line: int, reading: _Reading) -> tuple[str, str]:
    value = row.get(side)
    if isinstance(value, str):
        if not value.strip():
            reading.problem(line, side, "is empty")
        elif not _is_text(value):
            reading.problem(line, side, "has half of a surrogate pair in it")
        return value, ""
    if isinstance(value, list):
        return _conversation(value, side, line, reading)
    told = "is missing" if value is None else "has to be a text or a list of messages"
    reading.problem(line, side, told)
    return "", ""


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _conversation(messages: list[Any], side: str, line: int, reading: _Reading) -> tuple[str, str]:
    """The last user message, and the hash of the rest: empty where there is no rest."""
    asked = read_asked(Api.CHAT, canonical.dump({"messages": messages}))
    if isinstance(asked, str):
        reading.problem(
            line, side, _UNREAD.get(asked, "the last message has to be the user's, as a text")
        )
        return "", ""
    if messages == [{"role": "user", "content": asked.text}]:
        return asked.text, ""
    return asked.text, canonical.sha256(asked.rest).hex()


def _same(row: Mapping[str, Any], line: int, reading: _Reading) -> bool:
    value = row.get("same")
    if value is None:
        reading.problem(line, "same", "is missing")
        return False
    word = str(value).strip().casefold() if isinstance(value, (str, bool, int)) else ""
    if word not in _YES | _NO:
        reading.problem(line, "same", "has to be true or false, 1 or 0, yes or no")
    return word in _YES


def _name(row: Mapping[str, Any], name: str, line: int, reading: _Reading) -> str:
    value = row.get(name)
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        reading.problem(line, name, "has to be a text or a whole number")
        return ""
    return str(value)


def _flag(value: Any) -> bool:
    """Anything but a no: data sets write the reason in this place."""
    return bool(value) and str(value).strip().casefold() not in _NO | {""}

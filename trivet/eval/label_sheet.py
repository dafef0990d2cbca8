"""Pairs in a file for a person to fill in, and the answers read back: CSV, or JSONL."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from trivet.errors import ConfigError, Problem
from trivet.eval.candidates import Candidate
from trivet.eval.findings import refusal_of
from trivet.eval.labels import Answer

_COLUMNS = ("id", "same", "a", "b", "score", "cosine", "tenant", "context")
_ANSWERED = ("answer_a", "answer_b")
"""Columns of a sheet whose pairs come with their answers. They are there to be read."""
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "'")
"""A spreadsheet takes a cell that begins so for a formula: a quote before it makes it a text."""
_ANSWERS: dict[str, Answer] = {
    **dict.fromkeys(("s", "same", "true", "yes", "y", "1"), "same"),
    **dict.fromkeys(("d", "different", "false", "no", "n", "0"), "different"),
    **dict.fromkeys(("?", "unsure"), "unsure"),
}


class Filled(NamedTuple):
    """A row that has an answer."""

    pair: Candidate
    answer: Answer


def write_sheet(path: Path, pairs: Sequence[Candidate]) -> None:
    """Write the pairs with an empty `same`. Raises `ConfigError`, also where the file is there."""
    answered = any(pair.answers for pair in pairs)
    columns = (*_COLUMNS[:4], *_ANSWERED, *_COLUMNS[4:]) if answered else _COLUMNS
    rows = [{name: row[name] for name in columns} for row in map(_row, pairs)]
    if path.suffix.lower() == ".csv":
        out = io.StringIO(newline="")
        writer = csv.DictWriter(out, columns)
        writer.writeheader()
        writer.writerows({name: _cell(value) for name, value in row.items()} for row in rows)
        text = out.getvalue()
    else:
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(text.encode())
    except OSError as error:
        raise _problem(path, 0, "", f"cannot be written: {error.strerror}") from None


def read_sheet(path: Path) -> list[Filled]:
    """The rows that were filled in: s, d, ? or same, different, unsure, true, false, yes, no.

    Raises `ConfigError` with the rows whose answer is none of these, or whose texts were changed.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise _problem(path, 0, "", f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise _problem(path, 0, "", f"is not UTF-8 at byte {error.start}") from None
    rows = _csv_rows if path.suffix.lower() == ".csv" else _json_rows
    filled: list[Filled] = []
    problems: list[Problem] = []
    for line, row in rows(path, text):
        try:
            found = _filled(path, line, row)
        except ConfigError as error:
            problems.extend(error.problems)
            continue
        if found is not None:
            filled.append(found)
    if problems:
        raise refusal_of(str(path), problems)
    return filled


def _row(pair: Candidate) -> dict[str, Any]:
    values = (pair.id, "", pair.a, pair.b, pair.score, pair.cosine, pair.tenant, pair.context)
    answers = dict(zip(_ANSWERED, pair.answers or ("", ""), strict=True))
    return dict(zip(_COLUMNS, values, strict=True)) | answers


def _cell(value: Any) -> Any:
    if isinstance(value, float):
        return f"{value:.6f}"
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def _csv_rows(path: Path, text: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    # A spreadsheet may have saved it with semicolons.
    head = text.split("\n", 1)[0]
    delimiter = ";" if head.count(";") > head.count(",") else ","
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        for row in reader:
            plain = {
                name: value[1:] if value.startswith("'") else value
                for name, value in row.items()
                if isinstance(name, str) and isinstance(value, str)
            }
            yield reader.line_num, plain
    except csv.Error as error:
        raise _problem(path, reader.line_num, "", f"is not CSV: {error}") from None


def _json_rows(path: Path, text: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for line, one in enumerate(text.split("\n"), 1):
        if not one.strip():
            continue
        try:
            row = json.loads(one)
        except (ValueError, RecursionError):
            raise _problem(path, line, "", "is not JSON") from None
        if type(row) is not dict:
            raise _problem(path, line, "", "each line has to be one JSON object")
        yield line, row


def _filled(path: Path, line: int, row: Mapping[str, Any]) -> Filled | None:
    given = row.get("same")
    if given is None or not str(given).strip():
        return None
    answer = _ANSWERS.get(str(given).strip().casefold())
    if answer is None:
        raise _problem(path, line, "same", "has to be s, d or ?, or empty")
    tenant, a, b, context = (str(row.get(name) or "") for name in ("tenant", "a", "b", "context"))
    cosine = _number(row.get("cosine")) or 0.0
    pair = Candidate(tenant, a, b, context, _number(row.get("score")), cosine)
    if pair.id != row.get("id"):
        raise _problem(path, line, "id", "the row's texts are not those that were written")
    return Filled(pair, answer)


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def _problem(path: Path, line: int, field: str, message: str) -> ConfigError:
    return ConfigError(Problem(str(path), line, 1 if line else 0, field, message))

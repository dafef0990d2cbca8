"""Recorded traffic as the prefix commands read it: the calls that went to a model, by time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from trivet import canonical
from trivet.errors import ConfigError, Problem, RequestError
from trivet.policies.traffic import Traffic, read_line

_SHOWN: Final = 10
_REQUEST: Final = "this is no traffic log, but one request: `trivet prefix lint` reads those"
_LARGEST: Final = 64 << 20
_OF_REQUESTS: Final = frozenset({"messages", "input", "contents", "body"})

InputPrice = Callable[[str, str, int], float | None]
"""US dollars for one uncached input token, by model, upstream and the tokens of the whole prompt;
None where that is not known."""


class ReadLog(NamedTuple):
    """What log files hold."""

    calls: list[Traffic]
    """Those whose prompt was recorded, by arrival."""
    hits: int
    """Requests that a cache of Trivet's answered."""
    shapeless: int
    """Calls of a model without their prompt's shape: of an older version."""
    notes: tuple[str, ...]

    def of(
        self, tenants: Collection[str], routes: Collection[str], models: Collection[str]
    ) -> ReadLog:
        """The calls of these alone; of all where none is named."""
        calls = [
            row
            for row in self.calls
            if (not tenants or row.tenant in tenants)
            and (not routes or (row.prompt is not None and row.prompt.route in routes))
            and (not models or row.model in models)
        ]
        return self._replace(calls=calls)


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
                if line == 1 and _is_request(path):
                    problems.append(Problem(str(path), 0, 0, "", _REQUEST))
                    break
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


def _is_request(path: Path) -> bool:
    """Whether the file is one JSON object, as `trivet prefix lint` takes it."""
    if path.stat().st_size > _LARGEST:
        return False
    try:
        value = canonical.parse(path.read_bytes())
    except RequestError:
        return False
    return isinstance(value, dict) and "answer" not in value and bool(value.keys() & _OF_REQUESTS)

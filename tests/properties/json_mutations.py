"""Every small change of a JSON value, one at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Path = tuple[str | int, ...]


def mutants(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """The value with one change each, and the place that changed.

    Leaves change their value and their kind; objects lose, gain and re-order members; arrays lose,
    gain and re-order items.
    """
    if isinstance(value, dict):
        yield from _objects(value, path)
    elif isinstance(value, list):
        yield from _arrays(value, path)
    else:
        yield from ((path, other) for other in _leaves(value))


def _objects(value: dict[str, Any], path: Path) -> Iterator[tuple[Path, Any]]:
    yield (*path, "x_new"), {**value, "x_new": 1}
    if len(value) > 1:
        yield (*path, "<order>"), dict(reversed(value.items()))
    for key, item in value.items():
        yield (*path, key), {k: v for k, v in value.items() if k != key}
        for place, changed in mutants(item, (*path, key)):
            yield place, {**value, key: changed}


def _arrays(value: list[Any], path: Path) -> Iterator[tuple[Path, Any]]:
    yield path, [*value, "x_new"]
    if value != value[::-1]:
        yield path, value[::-1]
    for index, item in enumerate(value):
        yield (*path, index), value[:index] + value[index + 1 :]
        for place, changed in mutants(item, (*path, index)):
            yield place, [*value[:index], changed, *value[index + 1 :]]


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, str):
        yield from (f"{value}x", f" {value}", f"{value}\u0301", [value])
    elif isinstance(value, bool):
        yield from (not value, int(value), None)
    elif isinstance(value, int | float):
        yield from (value + 1, str(value), -value - 1)
    else:
        yield from (0, False, "")

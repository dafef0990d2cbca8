"""Merges streamed deltas into the message they amount to.

The rules are those of the official SDK's accumulator (openai-python, lib/streaming/_deltas.py):
strings concatenate, numbers add, lists with an integer `index` merge by it, other lists grow, and
null never replaces a value. Two differences, both towards the answer the API gives when it does
not stream: `id`, `role` and `format` are set (a provider may repeat them in every delta), and a
function name that is sent whole again is not doubled.
"""

from __future__ import annotations

from typing import Any

_ASSIGNED = frozenset(("index", "type"))
_IDENTITY = frozenset(("id", "role", "format"))
_MAX_DEPTH = 12
"""Levels that are merged; OpenAI's own deltas use four."""


class DeltaError(ValueError):
    """The deltas contradict each other: no message can be made of them."""


class _Text(list[str]):
    """A string that is still growing, as its pieces."""


class _Indexed(dict[int, dict[str, Any]]):
    """A list whose entries name their place."""


def merge(held: dict[str, Any], delta: dict[str, Any], depth: int = 0) -> None:
    """Merge `delta` into `held` in place. `held` is to be read through `settle` only.

    Raises `DeltaError` for deltas that contradict what is held.
    """
    if depth > _MAX_DEPTH:
        raise DeltaError("nested too deep")
    for key, value in delta.items():
        if value is None:
            held.setdefault(key, None)
        elif key in _ASSIGNED:
            held[key] = value
        else:
            held[key] = _merged(key, held.get(key), value, depth)


def _merged(key: str, held: Any, value: Any, depth: int) -> Any:
    if type(value) is str:
        return _grown(key, held, value)
    if type(value) is list:
        return _listed(held, value, depth)
    if held is None:
        return value
    if type(value) is dict:
        if type(held) is not dict:
            raise DeltaError(f"{key} became an object")
        merge(held, value, depth + 1)
        return held
    if type(value) is bool or type(held) is bool:
        return value
    if isinstance(held, int | float):
        return held + value
    raise DeltaError(f"{key} became a number")


def _grown(key: str, held: Any, value: str) -> Any:
    if held is None:
        return value if key in _IDENTITY else _Text((value,))
    if key in _IDENTITY:
        return _same(key, held, value)
    if type(held) is str:
        held = _Text((held,))
    if type(held) is not _Text:
        raise DeltaError(f"{key} became a string")
    if key != "name" or value != "".join(held):
        held.append(value)
    return held


def _same(key: str, held: Any, value: str) -> Any:
    if held and value and held != value:
        raise DeltaError(f"{key} changed")
    return held or value


def _listed(held: Any, value: list[Any], depth: int) -> Any:
    indexed = any(type(entry) is dict and "index" in entry for entry in value)
    if held is None or held == []:
        held = _Indexed() if indexed else []
    if type(held) is _Indexed:
        for entry in value:
            _place(held, entry, depth)
        return held
    if type(held) is not list or indexed:
        raise DeltaError("a list changed its kind")
    held.extend(value)
    return held


def _place(held: _Indexed, entry: Any, depth: int) -> None:
    index = entry.get("index") if type(entry) is dict else None
    if type(index) is not int or index < 0:
        raise DeltaError("a list entry has no index")
    merge(held.setdefault(index, {}), entry, depth + 1)


def settle(held: Any, depth: int = 0) -> Any:
    """What was merged, as plain JSON values; indexed entries in order, their `index` kept."""
    if type(held) is _Text:
        return "".join(held)
    if type(held) is _Indexed:
        return [settle(held[index], depth + 1) for index in sorted(held)]
    if type(held) is dict and depth <= 2 * _MAX_DEPTH:
        return {key: settle(value, depth + 1) for key, value in held.items()}
    return held

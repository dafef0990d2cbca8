"""Reading the fields of a request body: each has its type and range, or is refused by name."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from trivet.errors import RequestError

Body = Mapping[str, Any]

MOST_CHOICES = 128
_MOST_STOPS = 16
_MOST_TOKENS = 1 << 30


def number(body: Body, name: str, default: float, low: float, high: float) -> float:
    """A number from `low` to `high`; `default` where it is absent or null."""
    value = body.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise refused(name, f"is a number from {low:g} to {high:g}")
    return float(value)


def integer(body: Body, name: str, low: int, high: int) -> int | None:
    """A whole number from `low` to `high`; None where it is absent or null."""
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise refused(name, f"is a whole number from {low} to {high}")
    if not math.isfinite(value) or value != int(value):
        raise refused(name, f"is a whole number from {low} to {high}")
    return int(value)


def flag(body: Body, name: str, default: bool = False) -> bool:
    """True or false."""
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise refused(name, "is true or false")
    return value


def section(body: Body, name: str) -> Body:
    """An object; an empty one where it is absent or null."""
    value = body.get(name)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise refused(name, "is an object")
    return value


def limit(body: Body, *names: str) -> int | None:
    """The most tokens that the answer may have: the first of `names` that is given."""
    given = [value for name in names if (value := integer(body, name, 1, _MOST_TOKENS)) is not None]
    return given[0] if given else None


def stops(body: Body, name: str) -> tuple[str, ...]:
    """A text or a list of texts that end the answer."""
    value = body.get(name)
    if value is None:
        return ()
    found = [value] if isinstance(value, str) else value
    if (
        not isinstance(found, list)
        or len(found) > _MOST_STOPS
        or not all(isinstance(one, str) and one for one in found)
    ):
        raise refused(name, f"is a text or a list of up to {_MOST_STOPS} texts, none empty")
    return tuple(found)


def refuse_others(body: Body, neutral: Mapping[str, tuple[Any, ...]]) -> None:
    """Raise for a field of `neutral` with a value that would change the answer.

    Null and the values listed there are what the engine does anyway.
    """
    for name, values in neutral.items():
        value = body.get(name)
        if value is not None and value not in values:
            raise refused(name, "is not supported by this engine; leave it out")


def refused(name: str, sentence: str, code: str | None = None) -> RequestError:
    """A 400 about the field `name`."""
    return RequestError(400, f"'{name}' {sentence}.", field=name, code=code)

"""How large a JSON Schema may be, so that to compile it holds nobody up.

The compiler works under Python's interpreter lock: while it does, no answer goes on. What it takes
grows faster than the schema, with what is counted here. No bound looks at where a key stands: a
property that is named `pattern` counts as one, and nothing hides in what only looks like data.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from math import lcm, prod
from typing import Any

MOST_CHARACTERS = 64 * 1024
_MOST_VALUES = 2000
"""Objects, arrays and plain values together, in all of the schema."""
_MOST_DEPTH = 40
_MOST_ENTRIES = 1000
"""Of one object or array, such as an `enum`."""
_MOST_PROPERTIES = 400
"""Names in all `properties` together; the time grows with their square."""
_MOST_TEXT = 2000
"""Characters of one string."""
_MOST_PATTERN = 300
"""Characters of one pattern."""
_MOST_REPEATS = 10_000
"""A pattern's counts in braces, multiplied, as those of groups within groups are."""
_MOST_COSTLY = 100
"""Bounds of numbers and lengths, and twice the patterns and formats: an automaton each."""
_MOST_LENGTH = 10_000
_MOST_DIGITS = 18
"""Of a number."""
_MOST_STATES = 1000
"""The least common multiple of all `multipleOf`: states of the automaton that divides by them."""
_MOST_MERGED = 50_000
"""Values of a schema, times the combinations in which its parts may have to be merged."""

_LENGTHS = ("minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties")
_LIMITS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_PARTS = (
    "$ref", "$dynamicRef", "additionalProperties", "items", "not", "patternProperties",
    "prefixItems", "properties",
)  # fmt: skip
_COUNTED = re.compile(r"\{(\d*)(?:,(\d*))?\}")


@dataclass(slots=True)
class _Counts:
    """Of one schema, as far as it was walked."""

    values: int = 0
    properties: int = 0
    costly: int = 0
    merges: bool = False
    """Whether parts of an object of it have to hold together."""
    choices: int = 1
    """Entries of all `anyOf` and the like, multiplied."""
    steps: list[Decimal] = field(default_factory=list)
    """All `multipleOf`."""


def excess(schema: Any) -> str:
    """Which bound this parsed JSON Schema exceeds, as the end of a sentence; empty if none."""
    counts = _Counts()
    for value, depth in _walk(schema):
        counts.values += 1
        if counts.values > _MOST_VALUES:
            return f"it has more than {_MOST_VALUES} values"
        if depth > _MOST_DEPTH:
            return f"it is more than {_MOST_DEPTH} levels deep"
        reason = _plain(value)
        if isinstance(value, dict):
            reason = reason or _length(value) or _patterns(value)
            _count(value, counts)
        if reason:
            return reason
    return _in_all(counts)


def _walk(schema: Any) -> Iterator[tuple[Any, int]]:
    """Each value and how deep it is, without recursion."""
    waiting = [(schema, 0)]
    while waiting:
        value, depth = waiting.pop()
        yield value, depth
        inside = value.values() if isinstance(value, dict) else value
        if isinstance(value, dict | list):
            waiting.extend((each, depth + 1) for each in inside)


def _plain(value: Any) -> str:
    texts = [value] if isinstance(value, str) else value if isinstance(value, dict) else ()
    if any(len(text) > _MOST_TEXT for text in texts):
        return f"a text in it has more than {_MOST_TEXT} characters"
    if isinstance(value, dict | list) and len(value) > _MOST_ENTRIES:
        return f"a list or object in it has more than {_MOST_ENTRIES} entries"
    if _is_number(value):
        number = Decimal(str(value))
        digits, exponent = number.as_tuple().digits, number.as_tuple().exponent
        if not isinstance(exponent, int) or len(digits) + abs(exponent) > 2 * _MOST_DIGITS:
            return f"a number in it has more than {2 * _MOST_DIGITS} digits, written out"
        if len(digits) > _MOST_DIGITS:
            return f"a number in it has more than {_MOST_DIGITS} digits"
    return ""


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _length(value: dict[str, Any]) -> str:
    for name in _LENGTHS:
        if _is_number(value.get(name)) and value[name] > _MOST_LENGTH:
            return f"a '{name}' in it is more than {_MOST_LENGTH}"
    return "it has 'x-guidance', which is not JSON Schema" if "x-guidance" in value else ""


def _texts(value: dict[str, Any]) -> list[str]:
    """The patterns of one object."""
    found = value.get("patternProperties")
    named = [*found] if isinstance(found, dict) else []
    own = value.get("pattern")
    return [*named, own] if isinstance(own, str) else named


def _patterns(value: dict[str, Any]) -> str:
    for pattern in _texts(value):
        if len(pattern) > _MOST_PATTERN:
            return f"a pattern in it has more than {_MOST_PATTERN} characters"
        # Digits bound the conversion of the count, whose text is bounded by the pattern's.
        counts = (max(int(low or 0), int(high or 0)) for low, high in _COUNTED.findall(pattern))
        if prod(max(1, count) for count in counts) > _MOST_REPEATS:
            return f"the counts of a pattern in it multiply to more than {_MOST_REPEATS}"
    return ""


def _count(value: dict[str, Any], counts: _Counts) -> None:
    names = value.get("properties")
    counts.properties += len(names) if isinstance(names, dict) else 0
    counts.costly += 2 * len(_texts(value)) + 2 * ("format" in value)
    counts.costly += sum(_is_number(value.get(name)) for name in (*_LENGTHS, *_LIMITS))
    step = value.get("multipleOf")
    if _is_number(step):
        counts.steps.append(Decimal(str(step)))
    parts = sum(name in value for name in _PARTS)
    every, *some = (_entries(value, name) for name in ("allOf", "anyOf", "oneOf"))
    for several in some:
        counts.choices *= max(1, several)
        parts += bool(several)
    if every + parts > 1 and (every or any(some) or "$ref" in value):
        counts.merges = True
        counts.choices *= every + parts
    # Far beyond the bound nothing is gained by longer numbers.
    counts.choices = min(counts.choices, _MOST_MERGED + 1)


def _entries(value: dict[str, Any], name: str) -> int:
    found = value.get(name)
    return len(found) if isinstance(found, list) else 0


def _in_all(counts: _Counts) -> str:
    if counts.properties > _MOST_PROPERTIES:
        return f"it has more than {_MOST_PROPERTIES} properties"
    if counts.costly > _MOST_COSTLY:
        return (
            f"its bounds of numbers and lengths and twice its patterns and formats are more"
            f" than {_MOST_COSTLY}"
        )
    if counts.merges and counts.choices * counts.values > _MOST_MERGED:
        return (
            f"its 'allOf', 'anyOf', 'oneOf' and '$ref' that hold together combine to more than"
            f" {_MOST_MERGED} values"
        )
    return _multiple(counts.steps)


def _multiple(steps: list[Decimal]) -> str:
    """Steps of 0.01 and 0.5 are 1 and 50 of the finest decimal place."""
    places = max((-int(step.as_tuple().exponent) for step in steps), default=0)
    whole = 1
    for step in steps:
        whole = lcm(whole, max(1, abs(int(step.scaleb(max(0, places))))))
        if whole > _MOST_STATES:
            return f"the least common multiple of its 'multipleOf' is more than {_MOST_STATES}"
    return ""

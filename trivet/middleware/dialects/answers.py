"""Does a JSON answer hold what the request asked for?

Schemas come from callers, so that compiling and validating are bounded: nothing is fetched,
patterns are weighed (see `patterns`) and run in linear time, and a schema whose references multiply
beyond a budget is not used at all.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

import orjson

from trivet.middleware.dialects.patterns import Budget

_MAX_SCHEMA: Final = 256 << 10
"""Bytes. A larger schema is not compiled on the event loop; its answers are not stored."""
_MAX_NODES: Final = 7_000
"""Objects and arrays of a schema; about 7 us each to weigh and to compile."""
_MAX_CHECKS: Final = 4_000_000
"""Subschemas tried on values; about 30 ns each, on the event loop."""
_MAX_STEPS: Final = 8_000_000
"""States tried on characters by patterns; about 8 ns each, on the event loop."""
_REGEX_SIZE: Final = 256 << 10
"""Bytes of one compiled pattern, and of the states that it makes lazily."""
_CACHE_SIZE: Final = 32 << 20
"""Estimated bytes of the compiled schemas that are kept."""
_REFUSED_KEYWORDS: Final = frozenset(
    ("$dynamicRef", "$recursiveRef", "unevaluatedItems", "unevaluatedProperties")
)
"""What compiles to a multiple of the schema, and no structured-output API takes."""


class _Validator(Protocol):
    def is_valid(self, instance: Any) -> bool: ...


class _Compiled(NamedTuple):
    validator: _Validator
    checks: int
    """Subschemas that one value may be tried on."""
    states: int
    """Weight of the patterns that one character may be tried on."""
    size: int
    """Estimated bytes in memory."""


def json_fault(text: str, schema: bytes | None) -> str | None:
    """Why `text` is not the JSON that was asked for; None if it is.

    Reasons: `invalid-json` (RFC 8259), `schema-mismatch`, `schema-unusable` (the schema does not
    compile, is too large or too costly, or names a document outside itself).
    """
    try:
        value = orjson.loads(text)
    except (orjson.JSONDecodeError, UnicodeEncodeError):
        return "invalid-json"
    if schema is None:
        return None
    found = _CACHE.get(schema) if len(schema) <= _MAX_SCHEMA else None
    if found is None:
        return "schema-unusable"
    values = 1 + text.count(",") + text.count("[") + text.count("{")
    if found.checks * values > _MAX_CHECKS or found.states * len(text) > _MAX_STEPS:
        return "schema-unusable"
    return None if found.validator.is_valid(value) else "schema-mismatch"


def _compile(schema: bytes) -> _Compiled | None:
    import jsonschema_rs

    patterns = Budget()
    try:
        parsed = orjson.loads(schema)
        nodes = _Weight(parsed, lambda _: 1)
        checks = nodes.of(parsed)
        if nodes.seen > _MAX_NODES:
            return None
        states = _Weight(parsed, patterns.take).of(parsed)
        validator = jsonschema_rs.validator_for(
            parsed,
            validate_formats=False,
            offline=True,
            pattern_options=jsonschema_rs.RegexOptions(
                size_limit=_REGEX_SIZE, dfa_size_limit=_REGEX_SIZE
            ),
        )
    except (ValueError, RecursionError, jsonschema_rs.ReferencingError):
        return None
    size = 16 * len(schema) + 512 * nodes.seen + 1024 * patterns.weight
    return _Compiled(validator, checks, states, size)


class _Cache:
    """Compiled schemas, least recently used out first, bounded by what they weigh together."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._size = 0
        self._held: OrderedDict[bytes, _Compiled | None] = OrderedDict()

    def get(self, schema: bytes) -> _Compiled | None:
        """The schema compiled; None if it cannot be used."""
        if schema in self._held:
            self._held.move_to_end(schema)
            return self._held[schema]
        made = self._held[schema] = _compile(schema)
        self._size += _size(schema, made)
        while self._size > self._limit:
            self._size -= _size(*self._held.popitem(last=False))
        return made


def _size(schema: bytes, compiled: _Compiled | None) -> int:
    return 1024 + len(schema) + (compiled.size if compiled else 0)


_CACHE: Final = _Cache(_CACHE_SIZE)


class _Weight:
    """Sums `own` over all that a value may be tried on: references count as what they name.

    A reference back to a schema that it is part of counts once, because the validator remembers
    its verdicts inside recursive schemas.
    """

    def __init__(self, root: Any, own: Callable[[Any], int]) -> None:
        self._root = root
        self._own = own
        self._known: dict[int, int] = {}

    @property
    def seen(self) -> int:
        """How many objects and arrays the schema has, as far as it was weighed."""
        return len(self._known)

    def of(self, schema: Any) -> int:
        """Raises `ValueError` for what cannot be weighed; calls `own` once a part."""
        if type(schema) not in (dict, list):
            return 0
        known = self._known.get(id(schema))
        if known is not None:
            return known
        self._known[id(schema)] = 1
        inner = schema if type(schema) is list else schema.values()
        weight = self._own(schema) + sum(self.of(item) for item in inner)
        if type(schema) is dict:
            weight += self._referred(schema)
        self._known[id(schema)] = min(weight, _MAX_STEPS + 1)
        return self._known[id(schema)]

    def _referred(self, schema: dict[str, Any]) -> int:
        if not _REFUSED_KEYWORDS.isdisjoint(schema):
            raise ValueError("a keyword whose cost is not bounded")
        if schema is not self._root and type(schema.get("$id")) is str:
            raise ValueError("a schema inside the schema has a base of its own")
        pointer = schema.get("$ref")
        return self.of(self._named(pointer)) if type(pointer) is str else 0

    def _named(self, pointer: str) -> Any:
        """The schema at a JSON Pointer (RFC 6901) in a fragment."""
        start, *steps = pointer.split("/")
        if start != "#" or "%" in pointer:
            raise ValueError(f"{pointer!r} is not a pointer into the schema")
        found = self._root
        for step in steps:
            if type(found) is list:
                found = found[int(step)] if step.isdecimal() and int(step) < len(found) else None
            else:
                name = step.replace("~1", "/").replace("~0", "~")
                found = found.get(name) if type(found) is dict else None
        return found

"""Does a JSON answer hold what the request asked for?

Schemas come from callers, so that validating is bounded: nothing is fetched, patterns run in
linear time, and a schema whose references multiply beyond a budget is not used at all.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Protocol

import orjson

_MAX_SCHEMA = 256 << 10
"""Bytes. A larger schema is not compiled on the event loop; its answers are not stored."""
_MAX_CHECKS = 4_000_000
"""Subschemas tried on values; about 30 ns each, on the event loop."""


class _Validator(Protocol):
    def is_valid(self, instance: Any) -> bool: ...


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
    found = _compiled(schema) if len(schema) <= _MAX_SCHEMA else None
    if found is None:
        return "schema-unusable"
    validator, weight = found
    values = 1 + text.count(",") + text.count("[") + text.count("{")
    if weight * values > _MAX_CHECKS:
        return "schema-unusable"
    return None if validator.is_valid(value) else "schema-mismatch"


@lru_cache(maxsize=64)
def _compiled(schema: bytes) -> tuple[_Validator, int] | None:
    import jsonschema_rs

    try:
        parsed = orjson.loads(schema)
        weight = _Weight(parsed).of(parsed)
        validator = jsonschema_rs.validator_for(
            parsed,
            validate_formats=False,
            offline=True,
            pattern_options=jsonschema_rs.RegexOptions(),
        )
    except (ValueError, RecursionError, jsonschema_rs.ReferencingError):
        return None
    return validator, weight


class _Weight:
    """How many subschemas a value may be tried on: references count as what they name.

    A reference back to a schema that it is part of counts once, because the validator remembers
    its verdicts inside recursive schemas.
    """

    def __init__(self, root: Any) -> None:
        self._root = root
        self._known: dict[int, int] = {}

    def of(self, schema: Any) -> int:
        """Raises `ValueError` for a reference that is not a pointer into this schema."""
        if type(schema) not in (dict, list):
            return 0
        known = self._known.get(id(schema))
        if known is not None:
            return known
        self._known[id(schema)] = 1
        inner = schema if type(schema) is list else schema.values()
        weight = 1 + sum(self.of(item) for item in inner)
        if type(schema) is dict:
            weight += self._referred(schema)
        self._known[id(schema)] = min(weight, _MAX_CHECKS + 1)
        return self._known[id(schema)]

    def _referred(self, schema: dict[str, Any]) -> int:
        if "$dynamicRef" in schema or "$recursiveRef" in schema:
            raise ValueError("a dynamic reference")
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

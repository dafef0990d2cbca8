"""Does a JSON answer hold what the request asked for?"""

from __future__ import annotations

from functools import lru_cache
from typing import Protocol

import orjson

_MAX_SCHEMA = 256 << 10
"""Bytes. A larger schema is not compiled on the event loop; its answers are not stored."""


class _Validator(Protocol):
    def is_valid(self, instance: object) -> bool: ...


def json_fault(text: str, schema: bytes | None) -> str | None:
    """Why `text` is not the JSON that was asked for; None if it is.

    Reasons: `invalid-json` (RFC 8259), `schema-mismatch`, `schema-unusable` (the schema does not
    compile, is larger than 256 KiB, or names a document outside itself: nothing is fetched).
    """
    try:
        value = orjson.loads(text)
    except (orjson.JSONDecodeError, UnicodeEncodeError):
        return "invalid-json"
    if schema is None:
        return None
    validator = _compiled(schema) if len(schema) <= _MAX_SCHEMA else None
    if validator is None:
        return "schema-unusable"
    return None if _accepts(validator, value) else "schema-mismatch"


@lru_cache(maxsize=64)
def _compiled(schema: bytes) -> _Validator | None:
    import jsonschema_rs

    try:
        made: _Validator = jsonschema_rs.validator_for(
            orjson.loads(schema), validate_formats=False, offline=True
        )
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError):
        return None
    return made


def _accepts(validator: _Validator, value: object) -> bool:
    try:
        return validator.is_valid(value)
    except ValueError:
        # A pattern that exceeds its backtracking limit answers neither yes nor no.
        return False

"""A value that satisfies a simple JSON Schema, always the same one for one schema and one text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_FORMATS = {
    "date": "2026-01-02",
    "date-time": "2026-01-02T03:04:05Z",
    "time": "03:04:05Z",
    "email": "mock@example.com",
    "uri": "https://example.com/mock",
    "uuid": "00000000-0000-4000-8000-000000000000",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "hostname": "example.com",
    "duration": "P1D",
}
_DEEP = 6
"""Below this depth only what a recursive schema requires is made."""


def example(schema: Any, text: str) -> Any:
    """A value for `schema`; its free strings say `text`.

    Understood: type, properties, required, items, enum, const, default, $ref into the document,
    anyOf, oneOf, allOf, formats, and bounds of numbers, strings and arrays. Not: pattern, not, if.
    """
    return _make(schema, _Context(schema, text), 0)


class _Context:
    def __init__(self, root: Any, text: str) -> None:
        self.root = root
        self.text = text

    def resolve(self, ref: str) -> Any:
        value = self.root
        for part in ref.removeprefix("#").strip("/").split("/"):
            name = part.replace("~1", "/").replace("~0", "~")
            if part and isinstance(value, Mapping):
                value = value.get(name)
        return value


def _make(schema: Any, context: _Context, depth: int) -> Any:
    if not isinstance(schema, Mapping) or depth > 4 * _DEEP:
        return None if depth > 4 * _DEEP else context.text
    if "$ref" in schema:
        return _make(context.resolve(str(schema["$ref"])), context, depth + 1)
    for fixed in ("const", "default"):
        if fixed in schema:
            return schema[fixed]
    if schema.get("enum"):
        return schema["enum"][0]
    for choice in ("anyOf", "oneOf"):
        if schema.get(choice):
            return _make(_pick(schema[choice], depth), context, depth + 1)
    if schema.get("allOf"):
        return _make(_merged(schema, context), context, depth + 1)
    return _typed(schema, context, depth)


def _pick(options: Any, depth: int) -> Any:
    if depth > _DEEP:
        for option in options:
            if isinstance(option, Mapping) and option.get("type") in ("null", "string", "integer"):
                return option
    return options[0]


def _merged(schema: Mapping[str, Any], context: _Context) -> dict[str, Any]:
    merged = {key: value for key, value in schema.items() if key != "allOf"}
    for part in schema["allOf"]:
        found = context.resolve(part["$ref"]) if "$ref" in part else part
        for key, value in found.items():
            if key == "properties":
                merged[key] = {**merged.get(key, {}), **value}
            elif key == "required":
                merged[key] = [*merged.get(key, ()), *value]
            else:
                merged[key] = value
    return merged


def _typed(schema: Mapping[str, Any], context: _Context, depth: int) -> Any:
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = kind[0] if kind else None
    if kind == "object" or (kind is None and "properties" in schema):
        return _object(schema, context, depth)
    if kind == "array" or (kind is None and "items" in schema):
        count = int(schema.get("minItems", 0 if depth > _DEEP else 1))
        count = min(count, int(schema.get("maxItems", count)))
        return [_make(schema.get("items", {}), context, depth + 1) for _ in range(count)]
    if kind in ("integer", "number"):
        return _number(schema, kind == "integer")
    if kind == "boolean":
        return True
    if kind == "null":
        return None
    return _string(schema, context.text)


def _object(schema: Mapping[str, Any], context: _Context, depth: int) -> dict[str, Any]:
    required = set(schema.get("required", ()))
    return {
        name: _make(inner, context, depth + 1)
        for name, inner in schema.get("properties", {}).items()
        if depth <= _DEEP or name in required
    }


def _number(schema: Mapping[str, Any], whole: bool) -> int | float:
    low = schema.get("minimum", schema.get("exclusiveMinimum"))
    high = schema.get("maximum", schema.get("exclusiveMaximum"))
    step = schema.get("multipleOf")
    if low is not None:
        value = low + (1 if whole else 0.5) if "exclusiveMinimum" in schema else low
    elif high is not None:
        value = high - (1 if whole else 0.5) if "exclusiveMaximum" in schema else high
    else:
        value = 1
    if step:
        value = -(-value // step) * step
    return int(value) if whole else value


def _string(schema: Mapping[str, Any], text: str) -> str:
    made = _FORMATS.get(str(schema.get("format", "")), text)
    made = made.ljust(int(schema.get("minLength", 0)), ".")
    return made[: int(schema.get("maxLength", len(made)))]

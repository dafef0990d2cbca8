from __future__ import annotations

from functools import reduce
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trivet.prefix.engine.schema_bounds import excess


def nested(depth: int) -> dict[str, Any]:
    made: dict[str, Any] = {"type": "string"}
    return reduce(lambda inner, _: {"items": inner}, range(depth), made)


def properties(count: int) -> dict[str, Any]:
    return {"properties": {f"p{at}": {"type": "integer"} for at in range(count)}}


def merged(parts: int, choices: int) -> dict[str, Any]:
    alternatives = [
        {"anyOf": [properties(1) for _ in range(choices)], "title": f"{at}"} for at in range(parts)
    ]
    return {"allOf": alternatives}


def doubled(levels: int) -> dict[str, Any]:
    """2 ** levels times the last definition, in few characters."""
    links = {
        f"d{at}": {"allOf": [{"$ref": f"#/$defs/d{at + 1}"}, {"$ref": f"#/$defs/d{at + 1}"}]}
        for at in range(levels)
    }
    return {"$ref": "#/$defs/d0", "$defs": {**links, f"d{levels}": {"pattern": "^a+b"}}}


@pytest.mark.parametrize(
    ("schema", "named"),
    [
        ({"enum": [[0] * 900 for _ in range(5)]}, "values"),
        (nested(41), "levels"),
        ({"enum": ["x"] * 1001}, "entries"),
        (properties(401), "properties"),
        ({"const": "x" * 2001}, "text"),
        ({"x" * 2001: 1}, "text"),
        ({"pattern": "x" * 301}, "pattern"),
        ({"patternProperties": {"x" * 301: {}}}, "pattern"),
        ({"pattern": "((a{1,100}){,100}b){2}"}, "pattern"),
        ({"pattern": "a{99999999999}"}, "pattern"),
        ({"anyOf": [{"pattern": "a"}] * 51}, "patterns"),
        ({"anyOf": [{"minimum": 1, "maxLength": 3}] * 51}, "bounds"),
        ({"anyOf": [{"format": "uri"}] * 51}, "formats"),
        ({"minItems": 10_001}, "minItems"),
        ({"maxLength": 1e9}, "maxLength"),
        ({"multipleOf": 99991}, "multipleOf"),
        ({"anyOf": [{"multipleOf": 97}, {"multipleOf": -89}]}, "multipleOf"),
        ({"multipleOf": 0.99991}, "multipleOf"),
        ({"minimum": 1e300}, "digits"),
        ({"minimum": 0.1234567890123456789e-3, "maximum": 10**19 + 1}, "digits"),
        (merged(5, 5), "allOf"),
        (doubled(18), "allOf"),
        ({"x-guidance": {"lenient": True}}, "x-guidance"),
    ],
)
def test_a_bound_that_is_exceeded_is_named(schema: dict[str, Any], named: str) -> None:
    assert named in excess(schema)


@pytest.mark.parametrize(
    "schema",
    [
        {},
        nested(20),
        properties(400),
        merged(3, 3),
        {"enum": [f"x{at}" for at in range(1000)]},
        {"allOf": [{"$ref": "#/$defs/a"}], "description": "one part", "$defs": {"a": {}}},
        {"properties": {f"p{at}": {"anyOf": [{"type": "string"}, {}]} for at in range(99)}},
        {"anyOf": [{"multipleOf": step} for step in (0.01, 0.05, 0.5, 5)]},
        {"multipleOf": 1000},
        {"pattern": r"^\d{4}-\d{2}-\d{2}$", "minLength": 10_000, "minimum": True},
        {"properties": {"minItems": {"type": "integer"}, "pattern": {"type": "string"}}},
    ],
)
def test_what_people_write_is_within_the_bounds(schema: dict[str, Any]) -> None:
    assert excess(schema) == ""


KEYS = st.sampled_from(
    ["allOf", "anyOf", "multipleOf", "pattern", "patternProperties", "properties", "$ref",
     "minimum", "maxItems", "format"]
)  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
)  # fmt: skip


@given(JSON)
def test_any_json_gives_a_reason_or_none(schema: Any) -> None:
    assert isinstance(excess(schema), str)

"""Whether a JSON answer holds what the request asked for."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import orjson
import pytest

from trivet.middleware.dialects.answers import json_fault


def fault(text: str, schema: Any) -> str | None:
    return json_fault(text, orjson.dumps(schema))


def test_json_without_a_schema_only_has_to_parse() -> None:
    assert json_fault('{"a":[1,2.5,null]}', None) is None


@pytest.mark.parametrize("text", ["", "{", "{'a':1}", "NaN", '{"a":1}x', "\ud83d", "[" * 2000])
def test_what_does_not_parse_is_named_so(text: str) -> None:
    assert json_fault(text, None) == "invalid-json"
    assert fault(text, {}) == "invalid-json"


def test_a_schema_decides() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    assert fault('{"a":1}', schema) is None
    assert fault('{"a":"1"}', schema) == "schema-mismatch"
    assert fault("{}", schema) == "schema-mismatch"


def test_references_inside_the_schema_are_followed() -> None:
    schema = {
        "$ref": "#/$defs/n",
        "$defs": {"n": {"type": "object", "properties": {"n": {"$ref": "#/$defs/n"}}}},
    }
    assert fault('{"n":{"n":{}}}', schema) is None
    assert fault('{"n":{"n":1}}', schema) == "schema-mismatch"


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "nope"},
        {"$ref": "http://127.0.0.1:9/schema"},
        {"$ref": "file:///etc/hostname"},
        {"$schema": "http://127.0.0.1:9/unknown"},
        {"pattern": "(("},
        [1],
        {"description": "x" * (256 << 10)},
    ],
)
def test_a_schema_that_cannot_be_used_without_fetching_leaves_nothing_to_store(schema: Any) -> None:
    assert fault('{"a":1}', schema) == "schema-unusable"


def test_a_schema_that_is_no_json_cannot_be_used() -> None:
    assert json_fault("1", b"\x00{}") == "schema-unusable"


def test_patterns_are_matched_in_linear_time_or_not_at_all() -> None:
    assert fault(orjson.dumps("a" * 30000 + "!").decode(), {"pattern": "^(a+)+$"}) == (
        "schema-mismatch"
    )
    assert fault('"aa"', {"pattern": r"^(?=a)(a+)\1$"}) == "schema-unusable"


def test_a_schema_whose_references_multiply_is_not_used() -> None:
    doubled: Any = {"n0": {"type": "integer"}}
    for level in range(1, 40):
        named = {"$ref": f"#/$defs/n{level - 1}"}
        doubled[f"n{level}"] = {"allOf": [named, named]}
    assert fault("1", {"$defs": doubled, "$ref": "#/$defs/n39"}) == "schema-unusable"
    assert fault("1", {"$defs": doubled, "$ref": "#/$defs/n1"}) == "schema-unusable"
    few = {name: doubled[name] for name in ("n0", "n1", "n2")}
    assert fault("1", {"$defs": few, "$ref": "#/$defs/n2"}) is None


def test_a_large_answer_under_a_large_schema_is_not_validated() -> None:
    schema = {"items": {"allOf": [{"not": {"const": place}} for place in range(2000)]}}
    assert fault("[5000]", schema) is None
    assert fault("[" + "5000," * 2000 + "5000]", schema) == "schema-unusable"


@pytest.mark.parametrize(
    "schema",
    [
        {"allOf": [{"$ref": "#"}]},
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
        {"properties": {"a": {"allOf": [{"$ref": "#"}, {"$ref": "#"}]}}},
        {"anyOf": [{"properties": {"a": {"$ref": "#/anyOf/0"}}}, {"type": "null"}]},
        {"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"properties": {"a": {"$ref": "#"}}}}},
    ],
)
def test_recursive_schemas_come_to_an_end(schema: Any) -> None:
    assert fault('{"a":' * 500 + "1" + "}" * 500, schema) is None


@pytest.mark.parametrize(
    "schema",
    [
        {"$dynamicRef": "#x"},
        {"$defs": {"a": {"$id": "other", "$ref": "#"}}},
        {"$ref": "#anchor"},
        {"$ref": "#/%24defs/a", "$defs": {"a": {}}},
        {"$ref": "#/$defs/a/b/0", "$defs": {"a": {"b": 5}}},
        {"$ref": "#/anyOf/7", "anyOf": [{}]},
    ],
)
def test_references_that_cannot_be_weighed_are_not_used(schema: Any) -> None:
    assert fault("1", schema) == "schema-unusable"


def test_a_chain_of_references_without_end_in_sight_is_not_used() -> None:
    chain: Any = {f"n{level}": {"$ref": f"#/$defs/n{level + 1}"} for level in range(3000)}
    assert fault("1", {"$defs": chain | {"n3000": {}}, "$ref": "#/$defs/n0"}) == "schema-unusable"


def test_the_validator_is_imported_when_it_is_first_needed() -> None:
    script = "import sys, trivet.middleware.dialects.chat; print('jsonschema_rs' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert found.stdout.strip() == b"False"

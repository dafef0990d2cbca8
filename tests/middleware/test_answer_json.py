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


def test_a_pattern_that_backtracks_without_end_is_no_match() -> None:
    assert fault(orjson.dumps("a" * 30000 + "!").decode(), {"pattern": r"^(?=a)(a+)+\1$"}) == (
        "schema-mismatch"
    )


def test_a_value_nested_beyond_the_validator_is_no_match() -> None:
    nested = {"type": "object", "additionalProperties": {"$ref": "#"}}
    assert fault('{"a":' * 900 + "1" + "}" * 900, nested) == "schema-mismatch"


def test_the_validator_is_imported_when_it_is_first_needed() -> None:
    script = "import sys, trivet.middleware.dialects.chat; print('jsonschema_rs' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert found.stdout.strip() == b"False"

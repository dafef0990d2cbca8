"""Whether a JSON answer holds what the request asked for."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import jsonschema_rs
import orjson
import pytest

from trivet.middleware.dialects import answers
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


def patterned(*patterns: str) -> dict[str, Any]:
    return {"properties": {f"p{place}": {"pattern": one} for place, one in enumerate(patterns)}}


def never_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonschema_rs, "validator_for", lambda *_, **__: pytest.fail("compiled"))


@pytest.mark.parametrize(
    "patterns",
    [
        [r"^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"],
        [rf"^\d{{4}}-\d{{2}}-\d{{2}}T{place}$" for place in range(32)],
        [r"^[^@\s]+@[^@\s]+\.[A-Za-z]{2,63}$", r"^(?:[a-z0-9-]{1,63}\.)+[a-z]{2,}$"],
        [r"^.{1,500}$", r"^(?<year>\d{4})|\p{Lu}\p{L}*$", r"^\+[1-9]\d{1,14}$", ""],
    ],
)
def test_patterns_of_everyday_use_are_matched(patterns: list[str]) -> None:
    assert fault("{}", patterned(*patterns)) is None
    assert fault('{"p0":"\\u0000\\n"}', patterned(*patterns)) == "schema-mismatch"


def test_a_schema_of_costly_patterns_is_refused_before_it_is_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Compiled, these took 27 s and 3 GB."""
    never_compile(monkeypatch)
    schema = patterned(*[rf"\p{{L}}{{200}}{place}" for place in range(300)])
    assert fault("{}", schema) == "schema-unusable"


@pytest.mark.parametrize(
    "schema",
    [
        patterned(*[f"a{place}" for place in range(33)]),
        {"patternProperties": {f"a{place}": {} for place in range(33)}},
        patterned("a" * 513),
        patterned(r"\p{L}{200}"),
        patterned(r"((a{30}){30}){30}"),
        patterned("a{10000}"),
        patterned("a{9000,}"),
        patterned("(?:ab){0,5000}"),
        patterned(r"[\p{L}\p{N}]{20}"),
        patterned("(aaaaaaaa[(]){1000}"),
        patterned("(?i)a"),
        patterned("(?x: a {9} )"),
        patterned("[]a{9}]"),
        patterned("[a[b]]"),
        patterned("a)"),
        patterned(*[rf"\p{{L}}{place}" for place in range(32)]),
        {"$defs": {"a": {"enum": [{"pattern": r"\p{L}{99}"}]}}, "$ref": "#/$defs/a/enum/0"},
    ],
)
def test_patterns_beyond_the_budget_are_not_used(schema: Any) -> None:
    assert fault("{}", schema) == "schema-unusable"


def test_costly_patterns_are_matched_against_short_texts_only() -> None:
    schema = {"pattern": "[ab]*a[ab]{400}c"}
    assert fault('"ab"', schema) == "schema-mismatch"
    assert fault('"' + "ab" * 20_000 + '"', schema) == "schema-unusable"
    shared = {"$defs": {"a": schema}, "allOf": [{"$ref": "#/$defs/a"}] * 1000}
    assert fault('"' + "ab" * 100 + '"', shared) == "schema-unusable"


@pytest.mark.parametrize("keyword", ["unevaluatedProperties", "unevaluatedItems"])
def test_keywords_that_multiply_a_schema_are_not_used(
    keyword: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A 10 KB schema of these took 8 s and 1.4 GB to compile."""
    never_compile(monkeypatch)
    schema: Any = {}
    for place in range(100):
        nested = {"allOf": [schema], "anyOf": [{"$ref": "#"}]}
        schema = {keyword: False, "properties": {f"a{place}": {}}, **nested}
    assert fault("{}", schema) == "schema-unusable"


def test_a_schema_of_too_many_parts_is_not_compiled() -> None:
    assert fault("1", {"allOf": [{}] * 6000}) is None
    assert fault("1", {"allOf": [{} for _ in range(8000)]}) == "schema-unusable"


def test_compiled_schemas_are_kept_by_weight_the_last_used_longest() -> None:
    cache = answers._Cache(100_000)
    small = [orjson.dumps({"const": place}) for place in range(3)]
    kept = [cache.get(one) for one in small]
    large = orjson.dumps({"pattern": "a{80}"})
    assert cache.get(small[0]) is kept[0]
    cache.get(large)
    assert cache.get(small[0]) is kept[0]
    cache.get(orjson.dumps({"pattern": "a{95}"}))
    assert large not in cache._held
    assert cache._size <= 100_000


def test_a_schema_larger_than_the_cache_is_used_and_not_kept() -> None:
    cache = answers._Cache(1)
    assert cache.get(b"{}") is not None
    assert (cache._size, list(cache._held)) == (0, [])


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

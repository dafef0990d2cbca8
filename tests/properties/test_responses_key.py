"""The key of an OpenAI Responses request is complete, and splits nothing that is one request."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from json_mutations import Path, mutants

from trivet.errors import RequestError
from trivet.middleware.dialects.responses import ResponsesDialect
from trivet.middleware.dialects.responses_request import NUMERIC, TRANSPORT

DIALECT = ResponsesDialect()
TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
LEAF = st.none() | st.booleans() | st.integers(-9, 9) | TEXT
JSON = st.recursive(
    LEAF,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
MARK = "prompt_cache_breakpoint"
BREAKPOINT = st.sampled_from([{"mode": "explicit"}, {"mode": "explicit", "ttl": "12h"}])


def part(fields: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(fields, optional={MARK: BREAKPOINT})


PART = part({"type": st.just("input_text"), "text": TEXT}) | part(
    {"type": st.just("input_image"), "image_url": st.just("data:image/png;base64,QQ==")}
)
ITEM = st.one_of(
    st.fixed_dictionaries(
        {
            "role": st.sampled_from(["user", "developer"]),
            "content": TEXT | st.lists(PART, max_size=2),
        }
    ),
    st.fixed_dictionaries(
        {"type": st.just("function_call"), "call_id": TEXT, "name": TEXT, "arguments": TEXT}
    ),
    st.fixed_dictionaries(
        {
            "type": st.just("function_call_output"),
            "call_id": TEXT,
            "output": TEXT | st.lists(PART, max_size=2),
        }
    ),
    st.fixed_dictionaries(
        {
            "type": st.just("reasoning"),
            "id": TEXT,
            "summary": st.just([]),
            "encrypted_content": TEXT,
        }
    ),
)
TOOL = st.fixed_dictionaries(
    {
        "type": st.sampled_from(["function", "custom"]),
        "name": TEXT,
        "parameters": st.dictionaries(TEXT | st.just(MARK), JSON, max_size=3),
    }
)
FORMAT = st.just({"type": "json_schema", "name": "n", "schema": {"b": 1, "a": 2}, "strict": True})
SHAPING: dict[str, st.SearchStrategy[Any]] = {
    "instructions": TEXT,
    "max_output_tokens": st.integers(1, 9),
    "max_tool_calls": st.integers(1, 9),
    "parallel_tool_calls": st.booleans(),
    "reasoning": st.just({"effort": "low", "summary": "auto"}),
    "temperature": st.sampled_from([0, 0.0, 0.5, 1, 1.0]),
    "top_p": st.sampled_from([0.5, 1.0]),
    "top_logprobs": st.integers(0, 3),
    "text": st.fixed_dictionaries({"format": FORMAT, "verbosity": st.just("low")}),
    "tool_choice": st.just({"type": "function", "name": "f"}),
    "tools": st.lists(TOOL, max_size=2),
    "truncation": st.just("auto"),
    "include": st.just(["reasoning.encrypted_content", "message.output_text.logprobs"]),
    "moderation": st.just({"model": "omni", "policy": None}),
    "image": st.just({"context_compression": "auto"}),
    "prompt": st.just({"id": "p", "version": "1", "variables": {"a": "b", MARK: "c"}}),
    "access_programs": st.just({"cyber": "standard"}),
    "context_management": st.just([{"type": "compaction", "compact_threshold": 1}]),
    "multi_agent": st.just({"enabled": True}),
    "store": st.booleans(),
    "background": st.booleans(),
    "background_options": st.just({"completion_window": "2h"}),
    "previous_response_id": TEXT,
    "conversation": TEXT | st.just({"id": "c"}),
    "generate": st.just(False),
    "cache_salt": TEXT,
    "x_unknown": JSON,
}
CARRIED: dict[str, Any] = {
    "stream": True,
    "stream_options": {"include_obfuscation": False},
    "metadata": {"a": "b"},
    "user": "u",
    "safety_identifier": "s",
    "service_tier": "flex",
    "prompt_cache_key": "k",
    "prompt_cache_options": {"mode": "explicit"},
    "prompt_cache_retention": "24h",
}
BODY = st.fixed_dictionaries(
    {"model": st.sampled_from(["gpt-5", "gpt-6"]), "input": TEXT | st.lists(ITEM, max_size=3)},
    optional=SHAPING,
)


def canonical(body: Any, **style: Any) -> bytes | None:
    """The canonical form of a body, or None if it is refused."""
    try:
        return DIALECT.decode(json.dumps(body, **style).encode(), {}).canonical
    except RequestError:
        return None


def is_mark(path: Path) -> bool:
    """Whether the API defines a cache breakpoint at this place."""
    return path[-1:] == (MARK,) and path[0] == "input" and len(path) == 5


def meaning(value: Any, path: Path = ()) -> Any:
    """What a body says, written down in the plainest way: an oracle for `canonical`."""
    if isinstance(value, dict):
        pairs = [
            [key, meaning(item, (*path, key))]
            for key, item in value.items()
            if not is_mark((*path, key)) and not (path == () and key in TRANSPORT)
        ]
        unordered = path == () or (path[0] == "input" and len(path) == 2)
        return {"object": sorted(pairs, key=lambda pair: pair[0]) if unordered else pairs}
    if isinstance(value, list):
        return [meaning(item, (*path, index)) for index, item in enumerate(value)]
    if isinstance(value, float) and len(path) == 1 and path[0] in NUMERIC and value.is_integer():
        return int(value)
    return value


@settings(max_examples=200, deadline=None)
@given(BODY)
def test_bodies_share_a_key_only_if_they_say_the_same(body: dict[str, Any]) -> None:
    key, said = canonical(body), json.dumps(meaning(body))
    assert key is not None
    for path, changed in mutants(body):
        same = json.dumps(meaning(changed)) == said
        assert (canonical(changed) == key) == same, path


@settings(max_examples=150, deadline=None)
@given(BODY, st.data())
def test_transport_order_spacing_and_number_style_do_not_change_the_key(
    body: dict[str, Any], data: st.DataObject
) -> None:
    key = canonical(body)
    fields = list(body.items()) + list(CARRIED.items())
    shuffled = dict(data.draw(st.permutations(fields)))
    restyled = {
        field: float(value) if field in NUMERIC and type(value) is int else value
        for field, value in shuffled.items()
    }
    assert canonical(restyled) == key
    assert canonical(restyled, indent=1, ensure_ascii=False) == key


def test_a_string_and_a_part_are_two_requests() -> None:
    short = {"model": "m", "input": [{"role": "user", "content": "x"}]}
    parts = [{"type": "input_text", "text": "x"}]
    assert canonical(short) != canonical(
        {"model": "m", "input": [{"role": "user", "content": parts}]}
    )
    assert canonical({"model": "m", "input": "x"}) != canonical(short)


def test_every_transport_field_is_exercised() -> None:
    assert set(CARRIED) == TRANSPORT | {"stream_options"}

"""The key of an Anthropic Messages request is complete, and splits nothing that is one request."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from json_mutations import Path, mutants

from trivet.errors import RequestError
from trivet.middleware.dialects.messages import MessagesDialect
from trivet.middleware.dialects.messages_request import NUMERIC, TRANSPORT

DIALECT = MessagesDialect()
TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
LEAF = st.none() | st.booleans() | st.integers(-9, 9) | TEXT
JSON = st.recursive(
    LEAF,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
MARK = st.sampled_from([{"type": "ephemeral"}, {"type": "ephemeral", "ttl": "1h"}, None])
SCHEMA = st.fixed_dictionaries(
    {"type": st.just("object"), "properties": st.dictionaries(TEXT, JSON, max_size=2)},
    optional={"cache_control": MARK},
)


def marked(fields: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(fields, optional={"cache_control": MARK})


TEXT_BLOCK = marked({"type": st.just("text"), "text": TEXT})
TOOL_USE = marked(
    {
        "type": st.just("tool_use"),
        "id": TEXT,
        "name": TEXT,
        "input": st.dictionaries(TEXT | st.just("cache_control"), JSON, max_size=2),
    }
)
IMAGE = marked({"type": st.just("image"), "source": st.just({"type": "base64", "data": "QQ=="})})
RESULT = marked(
    {
        "type": st.just("tool_result"),
        "tool_use_id": TEXT,
        "content": TEXT | st.lists(TEXT_BLOCK | IMAGE, max_size=2),
    }
)
THINKING = st.fixed_dictionaries({"type": st.just("thinking"), "thinking": TEXT, "signature": TEXT})
CONTENT = TEXT | st.lists(TEXT_BLOCK | TOOL_USE | IMAGE | RESULT | THINKING, max_size=3)
MESSAGE = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant"]), "content": CONTENT}
)
TOOL = marked({"name": TEXT, "description": TEXT, "input_schema": SCHEMA})
SHAPING: dict[str, st.SearchStrategy[Any]] = {
    "system": TEXT | st.lists(TEXT_BLOCK, max_size=2),
    "stop_sequences": st.lists(TEXT, max_size=2),
    "temperature": st.sampled_from([0, 0.0, 0.5, 1, 1.0]),
    "top_p": st.sampled_from([0.5, 1.0]),
    "top_k": st.integers(1, 9),
    "thinking": st.just({"type": "enabled", "budget_tokens": 1024}),
    "tool_choice": st.just({"type": "auto", "disable_parallel_tool_use": True}),
    "tools": st.lists(TOOL, max_size=2),
    "output_config": st.just({"effort": "low", "format": {"type": "json_schema", "schema": {}}}),
    "inference_geo": TEXT,
    "speed": st.just("fast"),
    "context_management": st.just({"edits": [{"type": "clear_tool_uses_20250919"}]}),
    "fallbacks": st.just([{"model": "b"}]),
    "container": st.just({"skills": [{"skill_id": "pdf"}]}),
    "mcp_servers": st.just([{"type": "url", "url": "u"}]),
    "thread": st.just({"id": "t"}),
    "fallback_credit_token": TEXT,
    "compaction": st.just({"type": "auto"}),
    "x_unknown": JSON,
}
CARRIED: dict[str, Any] = {
    "stream": True,
    "metadata": {"user_id": "u"},
    "service_tier": "auto",
    "user_profile_id": "p",
    "billing_policy": {"a": 1},
    "cache_control": {"type": "ephemeral"},
    "diagnostics": {"previous_message_id": None},
}
BODY = st.fixed_dictionaries(
    {
        "model": st.sampled_from(["claude-opus-5", "claude-sonnet-5"]),
        "max_tokens": st.integers(0, 9),
        "messages": st.lists(MESSAGE, min_size=1, max_size=3),
    },
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
    inside = ("input_schema", "input", "x_unknown")
    return path[-1:] == ("cache_control",) and not any(name in path for name in inside)


def meaning(value: Any, path: Path = ()) -> Any:
    """What a body says, written down in the plainest way: an oracle for `canonical`."""
    if isinstance(value, dict):
        pairs = [
            [key, meaning(item, (*path, key))]
            for key, item in value.items()
            if not is_mark((*path, key)) and not (path == () and key in TRANSPORT)
        ]
        unordered = path == () or (path[0] == "messages" and len(path) == 2)
        return {"object": sorted(pairs, key=lambda pair: pair[0]) if unordered else pairs}
    if isinstance(value, list):
        return [meaning(item, (*path, index)) for index, item in enumerate(value)]
    if isinstance(value, str) and path[:1] == ("messages",) and path[2:] == ("content",):
        return meaning([{"type": "text", "text": value}], path)
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


@given(TEXT)
def test_a_string_is_the_documented_shorthand_for_one_text_block(text: str) -> None:
    short = {"model": "m", "messages": [{"role": "user", "content": text}]}
    long = {
        "model": "m",
        "messages": [{"role": "user", "content": [{"type": "text", "text": text}]}],
    }
    assert canonical(short) == canonical(long)


def test_every_transport_field_is_exercised() -> None:
    assert set(CARRIED) == TRANSPORT

"""The key of the OpenAI text dialects is complete and injective: whatever shapes an answer changes
it, and nothing else does. Each example makes 200 mutants of one request, 80,000 in all."""

from __future__ import annotations

import copy
import json
import unicodedata
from random import Random
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trivet.middleware.dialects.chat import ChatDialect
from trivet.middleware.dialects.completions import CompletionsDialect

CHAT, COMPLETIONS = ChatDialect(), CompletionsDialect()
ABSENT = object()
MUTANTS = 200

SCHEMA = {"type": "object", "properties": {"b": {"type": "string"}, "a": {"type": "integer"}}}
SWAPPED = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}}


def tool(name: str, schema: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": schema}}


# Values of each list differ in meaning, absence included.
NUMERIC: dict[str, list[Any]] = {
    "frequency_penalty": [ABSENT, 0, 0.5, -1],
    "presence_penalty": [ABSENT, 0, 0.5, 1.5],
    "max_tokens": [ABSENT, 1, 5, 500],
    "seed": [ABSENT, 0, 1, -1, 2**62, 2**70],
    "temperature": [ABSENT, 0, 0.1, 1, 1.0000000000000002],
    "top_p": [ABSENT, 1, 0.9],
    "top_k": [ABSENT, 1, 40],
    "min_p": [ABSENT, 0, 0.05],
    "repetition_penalty": [ABSENT, 1, 1.1],
    "min_tokens": [ABSENT, 0, 5],
}
COMMON: dict[str, list[Any]] = {
    **NUMERIC,
    "model": ["m", "M", "m:adapter", "m "],
    "n": [ABSENT, 1, 2, 128],
    "logit_bias": [ABSENT, {}, {"50256": -100}, {"50256": 100}],
    "stop": [ABSENT, "", "x", ["x"], ["x", "y"], ["y", "x"]],
    "stream_options": [ABSENT, {"continuous_usage_stats": True}],
    "stop_token_ids": [ABSENT, [], [1], [1, 2]],
    "ignore_eos": [ABSENT, None, True, False],
    "guided_json": [ABSENT, SCHEMA, SWAPPED],
    "grammar": [ABSENT, "root ::= a", "root ::= b"],
    "documents": [ABSENT, [{"text": "a"}], [{"text": "b"}]],
    "chat_template_kwargs": [ABSENT, {"thinking": True}, {"thinking": False}],
    "num_ctx": [ABSENT, None, 2048, 2048.0, 8192],
    "x-unknown": [ABSENT, None, 0, False, "", [], {}, 0.0, "0", {"a": 1, "b": 2}, {"b": 2, "a": 1}],
    "cache": [ABSENT, True, {"mine": 1}],
}
CHAT_FIELDS: dict[str, list[Any]] = {
    **COMMON,
    "audio": [ABSENT, {"voice": "ash", "format": "wav"}, {"voice": "ash", "format": "mp3"}],
    "function_call": [ABSENT, None, "none", "auto", {"name": "f"}],
    "functions": [ABSENT, [], [{"name": "f"}], [{"name": "g"}]],
    "logprobs": [ABSENT, True, False],
    "top_logprobs": [ABSENT, 0, 5],
    "max_completion_tokens": [ABSENT, 5, 500],
    "modalities": [ABSENT, ["text"], ["text", "audio"], ["audio", "text"]],
    "moderation": [ABSENT, None, {"model": "omni-moderation-latest"}],
    "parallel_tool_calls": [ABSENT, None, True, False],
    "prediction": [
        ABSENT,
        {"type": "content", "content": "a"},
        {"type": "content", "content": "b"},
    ],
    "reasoning_effort": [ABSENT, "low", "high"],
    "response_format": [
        ABSENT,
        None,
        {"type": "text"},
        {"type": "json_object"},
        {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}},
        {"type": "json_schema", "json_schema": {"name": "s", "schema": SWAPPED}},
        {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA, "strict": True}},
    ],
    "tool_choice": [ABSENT, None, "none", "auto", {"type": "function", "function": {"name": "f"}}],
    "tools": [
        ABSENT,
        None,
        [],
        [tool("f", SCHEMA)],
        [tool("f", SWAPPED)],
        [tool("f", SCHEMA), tool("g", SCHEMA)],
        [tool("g", SCHEMA), tool("f", SCHEMA)],
    ],
    "verbosity": [ABSENT, "low", "high"],
    "web_search_options": [ABSENT, {}, {"search_context_size": "low"}],
    "add_generation_prompt": [ABSENT, True, False],
}
COMPLETION_FIELDS: dict[str, list[Any]] = {
    **COMMON,
    "prompt": [
        None,
        "a",
        "",
        ["a"],
        ["a", "b"],
        ["b", "a"],
        [1, 2],
        [[1], [2]],
        "e\u0301",
        "\u00e9",
    ],
    "best_of": [ABSENT, 1, 3],
    "echo": [ABSENT, True, False],
    "logprobs": [ABSENT, 0, 5],
    "suffix": [ABSENT, "", "a"],
    "metadata": [ABSENT, None, {}, {"a": "b"}],
    "store": [ABSENT, None, True, False],
}
SERVER_TRANSPORT: dict[str, list[Any]] = {
    "stream": [None, True, False],
    "user": [None, "", "u1"],
    "cache_salt": ["s1", None],
    "extra_key": ["a", ["a"]],
    "priority": [0, 7],
    "request_id": ["r1"],
    "rid": ["r1", ["r1"]],
    "session_id": ["s"],
    "kv_transfer_params": [None, {"a": 1}],
    "stream_interval": [1, 8],
    "cache_prompt": [True, False],
    "id_slot": [0, -1],
}
CHAT_TRANSPORT: dict[str, list[Any]] = {
    **SERVER_TRANSPORT,
    "safety_identifier": [None, "", "u1"],
    "metadata": [None, {}, {"a": "b"}],
    "store": [None, True, False],
    "service_tier": [None, "auto", "flex"],
    "prompt_cache_key": [None, "k"],
    "prompt_cache_options": [{"mode": "explicit"}],
    "prompt_cache_retention": [None, "24h"],
}
NULLABLE = ("seed", "stop", "temperature", "top_p", "max_tokens", "n", "logit_bias", "logprobs")


def base_chat(random: Random) -> dict[str, Any]:
    parts = [
        {"type": "text", "text": "Look at 1 and 1.0"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA", "detail": "low"}},
        {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
    ]
    call = {"id": "call_1", "type": "function"}
    call["function"] = {"name": "f", "arguments": '{"a": 1, "b": "caf\u00e9"}'}  # type: ignore[assignment]
    body: dict[str, Any] = {
        "model": "m",
        "messages": [
            {"role": "system", "content": "Be kind.", "name": "ops"},
            {"role": "user", "content": parts},
            {"role": "assistant", "content": None, "tool_calls": [call], "refusal": None},
            {"role": "tool", "tool_call_id": "call_1", "content": '{"t": 21.50}'},
        ],
    }
    return scattered(body, CHAT_FIELDS, random)


def base_completion(random: Random) -> dict[str, Any]:
    return scattered({"model": "m", "prompt": "a"}, COMPLETION_FIELDS, random)


def scattered(body: dict[str, Any], fields: dict[str, list[Any]], random: Random) -> dict[str, Any]:
    """`body` with some of the fields set, in any order."""
    for name in random.sample(sorted(fields), random.randrange(8)):
        put(body, name, random.choice(fields[name]))
    return shuffled(body, random)


CLOSED = {"n", "store"}
"""Only some values of these are requests: they are changed to the listed ones, not at random."""


def put(body: dict[str, Any], name: str, value: Any) -> None:
    if value is ABSENT:
        body.pop(name, None)
    else:
        body[name] = copy.deepcopy(value)


def shuffled(value: dict[str, Any], random: Random) -> dict[str, Any]:
    return {name: value[name] for name in random.sample(list(value), len(value))}


def written(body: dict[str, Any], random: Random) -> bytes:
    """The body as JSON in one of the ways to write it."""
    if random.random() < 0.4:
        try:
            return orjson.dumps(body)
        except TypeError:
            pass
    separators = random.choice([(",", ":"), (", ", ": "), (" ,", " :")])
    indent = random.choice([None, None, 1, 4])
    ascii_only = random.random() < 0.5
    return json.dumps(body, separators=separators, indent=indent, ensure_ascii=ascii_only).encode(
        "utf-8"
    )


def same(old: Any, new: Any) -> bool:
    """Whether two field values are one JSON text: 1 is not 1.0, and order counts."""
    return old is new or (ABSENT not in (old, new) and json.dumps(old) == json.dumps(new))


def reshape(body: dict[str, Any], fields: dict[str, list[Any]], random: Random) -> str:
    """Change something that shapes the answer; says what."""
    if random.random() < 0.6:
        name = random.choice(sorted(fields))
        old = body.get(name, ABSENT)
        new = random.choice([value for value in fields[name] if not same(old, value)])
        put(body, name, new)
        return f"{name}: {old!r} -> {new!r}"
    root = "messages" if "messages" in body else random.choice(sorted(body.keys() - CLOSED))
    places = list(leaves(body, root))
    holder, place = random.choice(places)
    old = holder[place]
    holder[place] = touched(old, random)
    return f"{root}..{place}: {old!r} -> {holder[place]!r}"


def leaves(holder: Any, place: Any) -> Any:
    """Every place below `holder[place]` and that place itself."""
    value = holder[place]
    yield holder, place
    if isinstance(value, dict):
        for name in value:
            yield from leaves(value, name)
    elif isinstance(value, list):
        for index in range(len(value)):
            yield from leaves(value, index)


def touched(value: Any, random: Random) -> Any:
    """Another value than `value`, close to it, and of a kind that the field may have."""
    if isinstance(value, str):
        other = unicodedata.normalize("NFD", value)
        choices = [value + " ", value + "\u200b", value.swapcase() + "x", other + "\x00"]
        return random.choice([*choices, other if other != value else value + "."])
    if isinstance(value, bool) or value is None:
        return "was a constant"
    if isinstance(value, int | float):
        return value + 1
    if isinstance(value, list):
        return [*value, {"role": "user", "content": "one more"}]
    return {**value, "added": random.choice([None, 0, "", []])}


def spare(body: dict[str, Any], transport: dict[str, list[Any]], random: Random) -> dict[str, Any]:
    """A body that means the same."""
    made = copy.deepcopy(body)
    for name in random.sample(sorted(transport), random.randrange(4)):
        put(made, name, random.choice([ABSENT, *transport[name]]))
    renumber(made, random)
    for name in NULLABLE:
        if name not in made and random.random() < 0.2:
            made[name] = None
    if random.random() < 0.3:
        options = {"include_usage": random.random() < 0.5, "include_obfuscation": False}
        made["stream_options"] = {**(made.get("stream_options") or {}), **options}
    if "cache" not in made and random.random() < 0.2:
        made["cache"] = {"no-cache": True, "ttl": 5}
    if "messages" in made:
        made["messages"] = [shuffled(message, random) for message in made["messages"]]
        for part in made["messages"][1]["content"]:
            part["prompt_cache_breakpoint"] = {"mode": "explicit"}
    return shuffled(made, random)


def renumber(made: dict[str, Any], random: Random) -> None:
    """Write integers as the floats that equal them."""
    for name in NUMERIC:
        if type(made.get(name)) is int and abs(made[name]) < 2**53:
            made[name] = random.choice([made[name], float(made[name])])
            if made[name] == 0 and random.random() < 0.3:
                made[name] = -0.0


CASES = [
    pytest.param(CHAT, base_chat, CHAT_FIELDS, CHAT_TRANSPORT, id="chat"),
    pytest.param(
        COMPLETIONS, base_completion, COMPLETION_FIELDS, SERVER_TRANSPORT, id="completions"
    ),
]


@pytest.mark.parametrize(("dialect", "base", "fields", "transport"), CASES)
@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32))
def test_whatever_shapes_the_answer_changes_the_key(
    dialect: Any, base: Any, fields: Any, transport: Any, seed: int
) -> None:
    random = Random(seed)
    original = base(random)
    raw = written(original, random)
    key = dialect.decode(raw, {}).canonical
    for _ in range(MUTANTS):
        mutant = copy.deepcopy(original)
        what = reshape(mutant, fields, random)
        # Every mutant is a request: one that is refused would prove nothing.
        assert dialect.decode(written(mutant, random), {}).canonical != key, what


@pytest.mark.parametrize(("dialect", "base", "fields", "transport"), CASES)
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32))
def test_order_spacing_and_transport_never_change_the_key(
    dialect: Any, base: Any, fields: Any, transport: Any, seed: int
) -> None:
    random = Random(seed)
    original = base(random)
    key = dialect.decode(written(original, random), {}).canonical
    for _ in range(MUTANTS // 2):
        text = written(spare(original, transport, random), random)
        assert dialect.decode(text, {}).canonical == key, text


def test_every_pair_of_values_of_every_field_has_two_keys() -> None:
    random = Random(7)
    for dialect, base, fields in (
        (CHAT, base_chat, CHAT_FIELDS),
        (COMPLETIONS, base_completion, COMPLETION_FIELDS),
    ):
        for name, values in fields.items():
            body = base(random)
            keys = set()
            for value in values:
                put(body, name, value)
                keys.add(dialect.decode(written(body, random), {}).canonical)
            assert len(keys) == len(values), name

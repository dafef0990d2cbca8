"""Chat Completions: how requests are read, keyed, and refused."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from openai_bodies import (
    ask,
    choice,
    completion,
    message,
    record,
)

from trivet.errors import RequestError
from trivet.messages import Api
from trivet.middleware.dialects.base import error_from
from trivet.middleware.dialects.chat import ChatDialect

CHAT = ChatDialect()


def decoded(**fields: Any) -> Any:
    return CHAT.decode(ask(**fields), {})


def key(**fields: Any) -> bytes:
    return CHAT.decode(ask(**fields), {}).canonical


def part(**fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, fields]}]}


# Reading


def test_a_plain_request_is_read() -> None:
    request = decoded(stream=True, stream_options={"include_usage": True}, n=2, user="u1")
    assert (request.api, request.model, request.stream) == (Api.CHAT, "m", True)
    assert (request.include_usage, request.choices, request.user) == (True, 2, "u1")
    assert (request.sampled, request.tools, request.uncacheable) == (False, False, None)


def test_an_unchanged_body_is_forwarded_as_the_very_bytes_that_came() -> None:
    raw = b'{ "model" : "m", "messages":[{"role":"user","content":"\\u0068i"}] }'
    assert CHAT.decode(raw, {}).forward is raw


def test_litellm_directives_are_taken_out_of_what_is_forwarded_and_of_the_key() -> None:
    directives = {"no-cache": True, "ttl": 5}
    request = decoded(cache=directives, z=1, a=2.0)
    assert request.directives == directives
    assert request.forward == ask(z=1, a=2.0)
    assert request.canonical == key(z=1, a=2.0)


def test_a_body_that_orjson_cannot_write_is_forwarded_all_the_same() -> None:
    raw = b'{"model":"m","messages":[{"role":"user","content":"\\ud83d"}],"cache":{},"x":1.0}'
    request = CHAT.decode(raw, {})
    assert (
        request.forward == b'{"model":"m","messages":[{"role":"user","content":"\\ud83d"}],"x":1.0}'
    )


@pytest.mark.parametrize("cache", [True, {"ttl": 1, "other": 2}, "on"])
def test_another_cache_field_stays_in_the_body_and_in_the_key(cache: Any) -> None:
    request = decoded(cache=cache)
    assert request.directives == {}
    assert request.forward == ask(cache=cache)
    assert request.canonical != key()


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"model": ""}, "model"),
        ({"model": None}, "model"),
        ({"messages": "hi"}, "messages"),
        ({"messages": [{"role": "user", "content": "a"}, "b"]}, "messages[1]"),
        ({"stream": 1}, "stream"),
        ({"store": "yes"}, "store"),
        ({"stream_options": []}, "stream_options"),
        ({"response_format": "json"}, "response_format"),
        ({"user": 7}, "user"),
        ({"safety_identifier": {}}, "safety_identifier"),
        ({"temperature": True}, "temperature"),
        ({"top_p": "1"}, "top_p"),
        ({"n": 0}, "n"),
        ({"n": 129}, "n"),
        ({"n": 1.5}, "n"),
        ({"n": True}, "n"),
        ({"tools": {}}, "tools"),
        ({"modalities": "audio"}, "modalities"),
    ],
)
def test_a_wrong_type_is_refused_and_the_field_is_named(fields: Any, named: str) -> None:
    with pytest.raises(RequestError) as caught:
        decoded(**fields)
    assert (caught.value.status, caught.value.field) == (400, named)
    assert f"'{named}'" in caught.value.message


def test_a_body_that_is_no_object_is_refused() -> None:
    with pytest.raises(RequestError, match="JSON object"):
        CHAT.decode(b"[]", {})


def test_what_trivet_does_not_read_is_left_to_the_upstream_to_judge() -> None:
    assert decoded(top_k="many", tool_choice=5, stop=7, seed=None, n=None).choices == 1


@pytest.mark.parametrize(
    ("fields", "sampled"),
    [
        ({"temperature": None}, True),
        ({"temperature": 0.7}, True),
        ({"temperature": 0.0}, False),
        ({"temperature": -0.0}, False),
        ({"temperature": 1, "seed": 0}, False),
        ({"temperature": 1, "seed": None}, True),
    ],
)
def test_a_request_is_sampled_without_seed_and_zero_temperature(
    fields: dict[str, Any], sampled: bool
) -> None:
    assert decoded(**fields).sampled is sampled


def test_an_absent_temperature_counts_as_sampled() -> None:
    raw = b'{"model":"m","messages":[{"role":"user","content":"hi"}]}'
    assert CHAT.decode(raw, {}).sampled


def test_the_end_user_is_user_and_else_the_safety_identifier() -> None:
    assert decoded(user="a", safety_identifier="b").user == "a"
    assert decoded(user="", safety_identifier="b").user == "b"
    assert decoded(user=None).user is None


def test_the_schema_of_a_json_answer_is_kept_in_its_order() -> None:
    schema: Any = {"type": "object", "properties": {"b": {}, "a": {}}}
    request = decoded(response_format={"type": "json_schema", "json_schema": {"schema": schema}})
    assert (request.json_answer, request.schema) == (True, orjson.dumps(schema))
    request = decoded(response_format={"type": "json_schema", "schema": schema})
    assert (request.json_answer, request.schema) == (True, orjson.dumps(schema))
    assert decoded(response_format={"type": "json_object"}).json_answer
    assert not decoded(response_format={"type": "text"}).json_answer
    assert decoded(guided_json=schema).schema == orjson.dumps(schema)


# What no cache may answer


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"web_search_options": {}}, "live-search"),
        ({"web_search_options": None}, None),
        ({"search_parameters": {"mode": "on"}}, "live-search"),
        ({"enable_search": True}, "live-search"),
        ({"enable_search": False}, None),
        ({"plugins": [{"id": "web"}]}, "hosted-tool"),
        ({"plugins": []}, None),
        ({"modalities": ["text", "audio"]}, "audio"),
        ({"modalities": ["text"]}, None),
        ({"audio": {"voice": "ash", "format": "wav"}}, "audio"),
        ({"store": True}, "stored-completion"),
        ({"store": False}, None),
        ({"model": "gpt-4o-search-preview"}, "live-search"),
        ({"model": "gpt-4o-search-preview-2025-03-11"}, "live-search"),
        ({"model": "gpt-5-search-api"}, "live-search"),
        ({"model": "openai/gpt-4o:online"}, "live-search"),
        ({"model": "perplexity/sonar-pro"}, "live-search"),
        ({"model": "my-sonar"}, None),
        ({"kv_transfer_params": {"do_remote_decode": True}}, "kv-transfer"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, None),
        ({"tools": [{"type": "custom", "custom": {"name": "f"}}]}, None),
        ({"tools": [{"function": {"name": "f"}}]}, None),
        ({"tools": [{"type": "function"}, {"type": "web_search"}]}, "hosted-tool"),
        ({"tools": [{"googleSearch": {}}]}, "hosted-tool"),
        ({"tools": ["x"]}, "hosted-tool"),
        ({"messages": [{"role": "assistant", "audio": {"id": "audio_1"}}]}, "audio"),
        ({"messages": []}, "no-messages"),
        (part(type="image_url", image_url={"url": "https://a/b.png"}), "remote-image"),
        (part(type="image_url", image_url="HTTP://a/b.png"), "remote-image"),
        (part(type="image_url", image_url={"url": "file:///b.png"}), "remote-image"),
        (part(type="image_url", image_url={"url": "data:image/png;base64,AA"}), None),
        (part(type="image_url", image_url={"url": "DATA:image/png;base64,AA"}), None),
        (part(type="video_url", video_url={"url": "https://a/b.mp4"}), "remote-media"),
        (part(type="file", file={"file_data": "https://a/b.pdf"}), "remote-media"),
        (part(type="file", file={"file_data": "data:application/pdf;base64,AA"}), None),
        (part(type="file", file={"file_id": "file-1"}), "file-id"),
        (part(type="input_audio", input_audio={"data": "AA", "format": "wav"}), None),
    ],
)
def test_a_request_with_effects_at_the_server_is_uncacheable(
    fields: dict[str, Any], reason: str | None
) -> None:
    assert decoded(**fields).uncacheable == reason


def test_a_remote_image_is_named_only_if_nothing_else_stands_against_caching() -> None:
    image = part(type="image_url", image_url={"url": "https://a/b.png"})
    assert decoded(**image, store=True).uncacheable == "stored-completion"
    assert decoded(**image, web_search_options={}).uncacheable == "live-search"


# The key


@pytest.mark.parametrize(
    "transport",
    [
        {"stream": True},
        {"stream": True, "stream_options": {"include_usage": True, "include_obfuscation": False}},
        {"stream_options": None},
        {"user": "u"},
        {"safety_identifier": "s"},
        {"metadata": {"a": "b"}},
        {"store": True},
        {"service_tier": "flex"},
        {"prompt_cache_key": "k"},
        {"prompt_cache_options": {"mode": "explicit"}},
        {"prompt_cache_retention": "24h"},
        {"cache_salt": "s"},
        {"priority": 3},
        {"id_slot": 1},
    ],
)
def test_transport_fields_are_not_in_the_key(transport: dict[str, Any]) -> None:
    assert key(**transport) == key()


def test_another_member_of_stream_options_is_in_the_key() -> None:
    assert key(stream_options={"include_usage": True, "continuous_usage_stats": True}) != key()


def test_prompt_cache_breakpoints_are_not_in_the_key() -> None:
    plain = key(**part(type="text", text="b"))
    assert key(**part(type="text", text="b", prompt_cache_breakpoint={"mode": "explicit"})) == plain


def test_a_breakpoint_elsewhere_than_in_a_part_is_in_the_key() -> None:
    tools = [{"type": "function", "function": {"name": "f"}, "prompt_cache_breakpoint": {}}]
    assert key(tools=tools) != key(tools=[{"type": "function", "function": {"name": "f"}}])


def test_the_order_of_the_envelope_and_of_message_keys_makes_no_difference() -> None:
    one = b'{"model":"m","messages":[{"role":"user","content":"x"}],"seed":1}'
    two = b'{"seed":1,"messages":[{"content":"x","role":"user"}],"model":"m"}'
    assert CHAT.decode(one, {}).canonical == CHAT.decode(two, {}).canonical


def test_the_order_of_schema_properties_tools_and_arguments_does() -> None:
    def formatted(*names: str) -> bytes:
        schema: Any = {"properties": {name: {} for name in names}}
        return key(response_format={"type": "json_schema", "json_schema": {"schema": schema}})

    assert formatted("a", "b") != formatted("b", "a")
    assert key(tools=[{"type": "function"}, {"type": "custom"}]) != key(
        tools=[{"type": "custom"}, {"type": "function"}]
    )
    assert key(**part(type="text", text="b")) != key(**part(text="b", type="text"))


def test_integral_numbers_are_one_value_in_numeric_parameters_only() -> None:
    assert key(temperature=0) == key(temperature=0.0) == key(temperature=-0.0)
    assert key(seed=1) == key(seed=1.0)
    assert key(seed=2**53 + 1) != key(seed=float(2**53 + 2))
    assert key(num_ctx=1) != key(num_ctx=1.0)
    assert key(logit_bias={"1": 1}) != key(logit_bias={"1": 1.0})
    assert key(logprobs=True) != key(logprobs=1)


def test_null_is_absent_for_known_parameters_only() -> None:
    assert key(seed=None, stop=None, n=None, top_p=None) == key()
    assert key(num_ctx=None) != key()
    assert key(tools=None) != key()


def test_the_max_tokens_fields_are_two_fields() -> None:
    assert key(max_tokens=5) != key(max_completion_tokens=5)


def test_litellm_key_concatenation_has_no_counterpart_here() -> None:
    assert key(stop="x", temperature=0) != key(stop="xtemperature: 0", temperature=None)


def test_unicode_forms_and_lone_surrogates_are_kept_apart() -> None:
    def said(text: bytes) -> bytes:
        raw = b'{"model":"m","messages":[{"role":"user","content":"%b"}]}' % text
        return CHAT.decode(raw, {}).canonical

    texts = [b"\xc3\xa9", b"e\xcc\x81", b"e", b"E", b"\\ud83d", b"\\ud83e", b"\\u0000", b" e"]
    assert len({said(text) for text in texts}) == len(texts)
    assert said(b"\\u00e9") == said(b"\xc3\xa9")


def test_a_replayed_turn_gives_the_next_request_the_key_of_the_live_turn() -> None:
    live = completion(choice(message=message("Hi.", reasoning_content="Think.")))
    answer = record(CHAT, decoded(), live)
    replayed = orjson.loads(CHAT.render_json(answer, decoded()))
    history = [{"role": "user", "content": "hi"}]
    assert key(messages=[*history, live["choices"][0]["message"]]) == key(
        messages=[*history, replayed["choices"][0]["message"]]
    )


# Errors


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (403, "permission_error"),
        (404, "invalid_request_error"),
        (429, "rate_limit_error"),
        (500, "server_error"),
        (504, "server_error"),
    ],
)
def test_errors_have_the_shape_of_openai(status: int, kind: str) -> None:
    error = RequestError(status, "No.", field="model", code="c")
    assert error_from(CHAT, error) == (
        status,
        b'{"error":{"message":"No.","type":"%b","param":"model","code":"c"}}' % kind.encode(),
    )

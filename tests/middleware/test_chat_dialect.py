"""Chat Completions: how requests are read, answers judged, streams recorded and replayed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
import pytest
from openai_bodies import (
    DONE,
    RULES,
    ask,
    call,
    calling,
    choice,
    chunk,
    chunks,
    completion,
    delta,
    follow,
    followed,
    hello,
    message,
    record,
    refused,
)

from trivet.errors import RequestError
from trivet.messages import Api, Usage
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
        ({"messages": []}, "messages"),
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
        schema = {"properties": {name: {} for name in names}}
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


# Judging JSON answers


def test_a_complete_answer_is_stored_compact_with_usage_model_and_ids() -> None:
    value = calling(call(0), call(1))
    answer = CHAT.record(decoded(), orjson.dumps(value, option=orjson.OPT_INDENT_2), RULES)
    assert answer == record(CHAT, decoded(), value)
    assert answer.body == orjson.dumps(value)
    assert answer.usage == Usage(input_tokens=9, output_tokens=3)
    assert answer.model == "m-2026"
    assert answer.ids == ("chatcmpl-1", "call_0", "call_1")


@pytest.mark.parametrize(
    ("usage", "known"),
    [
        (None, None),
        ({}, None),
        ({"prompt_tokens": "9"}, None),
        ({"prompt_tokens": -1, "completion_tokens": 1}, None),
        (
            {
                "prompt_tokens": 9,
                "completion_tokens": 3,
                "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 2},
            },
            Usage(9, 3, 4, 2),
        ),
        (
            {"prompt_tokens": 9, "completion_tokens": 3, "prompt_cache_hit_tokens": 8},
            Usage(9, 3, 8),
        ),
    ],
)
def test_unknown_usage_is_unknown_and_never_zero(usage: Any, known: Usage | None) -> None:
    assert record(CHAT, decoded(), completion(usage=usage)).usage == known


def test_what_belongs_to_one_request_is_not_kept() -> None:
    value = completion(metadata={"a": "b"}, kv_transfer_params={"x": 1}, service_tier="flex")
    assert orjson.loads(record(CHAT, decoded(), value).body) == completion(service_tier="flex")


def _said(text: Any, **fields: Any) -> dict[str, Any]:
    return completion(choice(message=message(text, **fields)))


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ([], "wrong-object"),
        ({"error": {"message": "no"}}, "upstream-error"),
        (completion(error={"code": 502}), "upstream-error"),
        (completion(object="text_completion"), "wrong-object"),
        (completion(choices=[]), "choices-mismatch"),
        (completion(choices=None), "choices-mismatch"),
        (completion(choice(0), choice(1)), "choices-mismatch"),
        (completion(choice(1)), "choices-mismatch"),
        (completion(choice("0")), "choices-mismatch"),  # type: ignore[arg-type]
        (completion(choice(finish="length")), "finish-length"),
        (completion(choice(finish="content_filter")), "finish-content-filter"),
        (completion(choice(finish="abort")), "finish-other"),
        (completion(choice(finish=["stop"])), "finish-other"),
        (completion(choice(finish=None)), "incomplete"),
        (completion(choice(finish="tool_calls")), "incomplete"),
        (completion(choice(error={"code": 502})), "upstream-error"),
        (completion(choice(message=None)), "wrong-object"),
        (_said(""), "empty"),
        (_said(None), "empty"),
        (_said(" \n"), "empty"),
        (_said([{"type": "text", "text": "a"}]), "unknown-content"),
        (_said(None, refusal={"a": 1}), "unknown-content"),
        (_said(None, audio={"id": "a"}), "audio"),
        (calling(call(arguments='{"a":')), "invalid-tool-call"),
        (calling(call(function=None)), "invalid-tool-call"),
        (calling(call(function={"name": "", "arguments": "{}"})), "invalid-tool-call"),
        (calling(call(type="mcp", function=None)), "invalid-tool-call"),
        (calling({"id": "c", "type": "custom", "custom": {"name": "f"}}), "invalid-tool-call"),
        (completion(choice(message=message(None, tool_calls={"a": 1}))), "invalid-tool-call"),
        (completion(choice(message=message(None, function_call={"a": 1}))), "invalid-tool-call"),
        (
            completion(moderation={"output": {"results": [{"flagged": True}]}}),
            "moderation",
        ),
        (completion(moderation={"input": {"type": "error"}}), "moderation"),
    ],
)
def test_an_answer_that_is_not_complete_is_not_stored(value: Any, reason: str) -> None:
    assert refused(CHAT.record(decoded(), orjson.dumps(value), RULES)) == reason


@pytest.mark.parametrize("body", [b"", b"{", b"<html>", b'{"a":NaN}', b'{"a":"\\ud800"}'])
def test_what_is_not_json_is_not_stored(body: bytes) -> None:
    assert refused(CHAT.record(decoded(), body, RULES)) == "not-json"


def test_an_answer_nested_too_deep_to_write_is_not_stored() -> None:
    body = orjson.dumps(completion(x=0)).replace(b'"x":0', b'"x":' + b"[" * 300 + b"]" * 300)
    assert refused(CHAT.record(decoded(), body, RULES)) == "nested-too-deep"


def test_the_size_limit_counts_the_stored_bytes() -> None:
    size = len(orjson.dumps(completion()))
    spaced = orjson.dumps(completion(), option=orjson.OPT_INDENT_2)
    assert CHAT.record(decoded(), spaced, replace(RULES, max_entry=size)).ids  # type: ignore[union-attr]
    found = CHAT.record(decoded(), spaced, replace(RULES, max_entry=size - 1))
    assert refused(found) == "too-large"


@pytest.mark.parametrize("finish", ["tool_calls", "stop"])
def test_tool_calls_are_stored_only_where_the_policy_says(finish: str) -> None:
    value = calling(call(), finish=finish)
    assert record(CHAT, decoded(), value).ids == ("chatcmpl-1", "call_0")
    found = CHAT.record(decoded(), orjson.dumps(value), replace(RULES, tool_calls=False))
    assert refused(found) == "tool-calls"


def test_a_legacy_function_call_is_a_tool_call() -> None:
    called = message(None, function_call={"name": "f", "arguments": "{}"})
    value = completion(choice(finish="function_call", message=called))
    record(CHAT, decoded(), value)
    found = CHAT.record(decoded(), orjson.dumps(value), replace(RULES, tool_calls=False))
    assert refused(found) == "tool-calls"


def test_refusals_are_stored_only_where_the_policy_says() -> None:
    value = _said(None, refusal="I can't.")
    record(CHAT, decoded(response_format={"type": "json_object"}), value)
    found = CHAT.record(decoded(), orjson.dumps(value), replace(RULES, refusals=False))
    assert refused(found) == "refusal"


def test_every_choice_that_was_asked_for_has_to_be_there_and_complete() -> None:
    asked = decoded(n=2)
    record(CHAT, asked, completion(choice(1), choice(0)))
    one_cut = completion(choice(0), choice(1, "length"))
    assert refused(CHAT.record(asked, orjson.dumps(one_cut), RULES)) == "finish-length"
    assert refused(CHAT.record(asked, orjson.dumps(completion()), RULES)) == "choices-mismatch"
    twice = completion(choice(0), choice(0))
    assert refused(CHAT.record(asked, orjson.dumps(twice), RULES)) == "choices-mismatch"


def test_a_json_answer_has_to_parse_and_to_satisfy_its_schema() -> None:
    schema = {"type": "object", "required": ["a"]}
    asked = decoded(response_format={"type": "json_schema", "json_schema": {"schema": schema}})
    record(CHAT, asked, _said('{"a":1}'))
    assert refused(CHAT.record(asked, orjson.dumps(_said('{"a":')), RULES)) == "invalid-json"
    assert refused(CHAT.record(asked, orjson.dumps(_said('{"b":1}')), RULES)) == "schema-mismatch"
    record(CHAT, asked, calling(call()))


# Recording streams


def test_a_complete_stream_is_the_answer_that_json_would_have_been() -> None:
    usage = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}
    events = hello()
    events.insert(4, chunk(usage=usage))
    assert followed(CHAT, decoded(), events) == completion()


def test_comments_and_keepalives_are_no_events() -> None:
    events = [b": OPENROUTER PROCESSING\n\n", b"event: ping\ndata: \n\n", *hello()]
    assert "usage" not in followed(CHAT, decoded(), events)


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        ([], "no-done"),
        (hello()[:-1], "no-done"),
        ([*hello()[:3], DONE], "incomplete"),
        ([DONE], "choices-mismatch"),
        ([*hello()[:2], chunk(error={"message": "x"}), *hello()[2:]], "upstream-error"),
        ([b'data: {"error":{"message":"x"}}\n\n', DONE], "upstream-error"),
        ([b'event: error\ndata: {"message":"x"}\n\n', *hello()], "upstream-error"),
        (
            [*hello()[:3], chunk({**delta(0, "error"), "error": {"code": 502}}), DONE],
            "upstream-error",
        ),
        ([*hello()[:3], chunk(delta(0, "length")), DONE], "finish-length"),
        ([*hello()[:3], chunk(delta(0, "length")), *hello()[3:]], "bad-stream"),
        ([*hello()[:3], chunk(delta(0, "content_filter")), DONE], "finish-content-filter"),
        ([hello()[0], *hello()[3:]], "empty"),
        ([b"data: {\n\n", *hello()], "not-json"),
        ([b"data: [1]\n\n", *hello()], "wrong-object"),
        ([chunk(delta(content="x"), object="text_completion"), *hello()], "wrong-object"),
        ([chunk(delta(1, content="x")), *hello()], "bad-stream"),
        ([chunk(delta(-1, content="x")), *hello()], "bad-stream"),
        ([chunk({"delta": {"content": "x"}}), *hello()], "bad-stream"),
        ([chunk({"index": 0, "delta": "x"}), *hello()], "bad-stream"),
        ([chunk({"index": 0, "logprobs": "x"}), *hello()], "bad-stream"),
        ([chunk(delta(content={"a": 1})), *hello()], "bad-stream"),
        ([chunk(delta(content=5)), *hello()], "bad-stream"),
        ([chunk(delta(tool_calls=[{"id": "x"}, {"index": 0}])), *hello()], "bad-stream"),
        ([chunk(choices=5), *hello()], "bad-stream"),
        ([chunk(delta(refusal="No.")), *hello()], None),
    ],
)
def test_a_stream_that_is_not_complete_is_not_stored(events: Any, reason: str | None) -> None:
    found = follow(CHAT, decoded(), events)
    assert getattr(found, "reason", None) == reason


def test_what_follows_done_is_not_part_of_the_answer() -> None:
    assert (
        followed(CHAT, decoded(), [*hello(), b"data: {\n\n"])["choices"][0]["message"]["content"]
        == "Hello there."
    )


def test_tool_calls_merge_by_index_and_lose_it() -> None:
    def called(index: int, **fields: Any) -> bytes:
        return chunk(delta(tool_calls=[{"index": index, **fields}]))

    events = [
        chunk(delta(role="assistant", content=None)),
        called(0, id="call_0", type="function", function={"name": "weather", "arguments": ""}),
        called(1, id="call_1", type="function", function={"name": "weather", "arguments": ""}),
        called(1, function={"arguments": '{"city":'}),
        called(0, function={"arguments": '{"city":"Bern'}),
        called(0, function={"arguments": '"}'}),
        called(1, function={"arguments": '"Bern"}'}),
        chunk(delta(0, "tool_calls")),
        DONE,
    ]
    choices = followed(CHAT, decoded(), events)["choices"]
    assert choices == [
        choice(
            finish="tool_calls",
            message={"role": "assistant", "content": None, "tool_calls": [call(0), call(1)]},
        )
    ]


def test_ids_roles_and_names_that_a_server_repeats_are_not_doubled() -> None:
    repeated = {"index": 0, "id": "call_0", "type": "function"}
    events = [
        chunk(
            delta(
                role="assistant",
                tool_calls=[{**repeated, "function": {"name": "weather", "arguments": piece}}],
            )
        )
        for piece in ('{"city":', '"Bern"}')
    ]
    events += [chunk(delta(0, "tool_calls", role="assistant")), DONE]
    found = followed(CHAT, decoded(), events)["choices"][0]["message"]
    assert found == {"role": "assistant", "content": None, "tool_calls": [call(0)]}


def test_two_calls_under_one_index_are_not_taken_for_one() -> None:
    events = [
        chunk(delta(tool_calls=[{"index": 0, **call(number)}], role="assistant"))
        for number in range(2)
    ]
    found = follow(CHAT, decoded(), [*events, chunk(delta(0, "tool_calls")), DONE])
    assert refused(found) == "bad-stream"


def test_unknown_delta_fields_are_accumulated_as_the_sdk_does() -> None:
    def detail(**fields: Any) -> dict[str, Any]:
        return {"index": 0, "type": "reasoning.text", "format": "v1", **fields}

    events = [
        chunk(
            delta(role="assistant", reasoning_content="Let ", reasoning_details=[detail(text="L")])
        ),
        chunk(delta(reasoning_content="me.", reasoning_details=[detail(text="et", signature="s")])),
        chunk(delta(annotations=[{"type": "url_citation"}], seen=True, count=2, tags=["a"])),
        chunk(delta(annotations=[{"type": "file"}], seen=True, count=3, tags=["b"])),
        *hello()[1:],
    ]
    assert followed(CHAT, decoded(), events)["choices"][0]["message"] == {
        "role": "assistant",
        "content": "Hello there.",
        "reasoning_content": "Let me.",
        "reasoning_details": [detail(text="Let", signature="s")],
        "annotations": [{"type": "url_citation"}, {"type": "file"}],
        "seen": True,
        "count": 5,
        "tags": ["a", "b"],
    }


def test_interleaved_choices_are_told_apart() -> None:
    events = [
        chunk(delta(1, role="assistant", content="B")),
        chunk(delta(0, role="assistant", content="A"), delta(1, content="b")),
        chunk(delta(0, content="a")),
        chunk(delta(1, "stop")),
        chunk(delta(0, "stop")),
        DONE,
    ]
    choices = followed(CHAT, decoded(n=2), events)["choices"]
    assert [(one["index"], one["message"]["content"]) for one in choices] == [(0, "Aa"), (1, "Bb")]


def test_logprobs_fields_of_the_choice_and_of_the_chunk_are_kept() -> None:
    def token(text: str) -> dict[str, Any]:
        return {"token": text, "logprob": -0.5, "bytes": list(text.encode()), "top_logprobs": []}

    def spoken(text: str) -> dict[str, Any]:
        logprobs = {"content": [token(text)], "refusal": None}
        return {**delta(content=text), "logprobs": logprobs, "token_ids": [len(text)]}

    events = [
        chunk(object="", id="", model="", created=0, prompt_filter_results=[{"prompt_index": 0}]),
        chunk(delta(role="assistant", content=""), system_fingerprint="fp", obfuscation="xx"),
        chunk(spoken("Hello"), obfuscation="yyy"),
        chunk({**spoken(" you"), "content_filter_results": {"hate": {"filtered": False}}}),
        chunk({**delta(0, "stop"), "content_filter_results": {}, "stop_reason": None}),
        chunk(timings={"cache_n": 1}, usage=None),
        DONE,
    ]
    found = followed(CHAT, decoded(), events)
    assert found["choices"] == [
        choice(
            message={"role": "assistant", "content": "Hello you"},
            logprobs={"content": [token("Hello"), token(" you")], "refusal": None},
            token_ids=[5, 4],
            content_filter_results={"hate": {"filtered": False}},
            stop_reason=None,
        )
    ]
    del found["choices"]
    assert found == {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1700000000,
        "model": "m-2026",
        "prompt_filter_results": [{"prompt_index": 0}],
        "system_fingerprint": "fp",
        "timings": {"cache_n": 1},
    }


def test_ids_are_known_as_soon_as_they_have_passed() -> None:
    recorder = CHAT.recorder(decoded())
    recorder.feed(chunk(delta(role="assistant")))
    assert recorder.ids == ["chatcmpl-1"]
    recorder.feed(chunk(delta(tool_calls=[{"index": 0, **call(0)}])))
    assert recorder.ids == ["chatcmpl-1", "call_0"]


def test_the_usage_chunk_is_recognised_and_nothing_else_is() -> None:
    recorder = CHAT.recorder(decoded())
    assert recorder.is_usage_only(chunk(usage={"prompt_tokens": 1}))
    assert recorder.is_usage_only(b'data: {"choices" : [ ], "usage": {"prompt_tokens": 1}}\n\n')
    assert not recorder.is_usage_only(chunk(prompt_filter_results=[], usage=None))
    assert not recorder.is_usage_only(chunk(delta(0, "stop"), usage={"prompt_tokens": 1}))
    assert not recorder.is_usage_only(chunk(delta(content='"choices":[],"usage":{}')))
    assert not recorder.is_usage_only(DONE)
    assert not recorder.is_usage_only(b'data: {"choices":[]\n\n')


# Replaying


def test_a_json_replay_is_the_stored_body_itself() -> None:
    answer = record(CHAT, decoded(), completion())
    assert CHAT.render_json(answer, decoded()) is answer.body


def test_a_replayed_stream_has_one_role_one_finish_and_done() -> None:
    answer = record(CHAT, decoded(), completion())
    assert chunks(CHAT.render_stream(answer, decoded(stream=True))) == [
        orjson.loads(event[6:])
        for event in (
            chunk(delta(role="assistant", content="", refusal=None)),
            chunk(delta(content="Hello there.")),
            chunk(delta(0, "stop")),
        )
    ]


def test_the_usage_chunk_is_sent_only_to_a_caller_that_asked() -> None:
    answer = record(CHAT, decoded(), completion())
    asked = decoded(stream=True, stream_options={"include_usage": True})
    *others, last = chunks(CHAT.render_stream(answer, asked))
    assert (last["choices"], last["usage"]) == ([], completion()["usage"])
    assert [one["usage"] for one in others] == [None] * 3
    assert not any("usage" in one for one in chunks(CHAT.render_stream(answer, decoded())))


def test_unknown_usage_is_not_replayed_as_zeros() -> None:
    value = completion()
    del value["usage"]
    asked = decoded(stream=True, stream_options={"include_usage": True})
    found = chunks(CHAT.render_stream(record(CHAT, decoded(), value), asked))
    assert [one["usage"] for one in found] == [None] * 3


def test_ids_and_names_of_tool_calls_are_sent_once() -> None:
    long = '{"text":"%s"}' % ("word " * 100)
    answer = record(CHAT, decoded(), calling(call(0, long), call(1)))
    stream = CHAT.render_stream(answer, decoded(stream=True))
    assert stream.count(b'"id":"call_0"') == stream.count(b'"id":"call_1"') == 1
    assert stream.count(b'"name":"weather"') == 2
    assert stream.count(b'"id":"chatcmpl-1"') == len(chunks(stream))
    assert followed(CHAT, decoded(), [stream_event(one) for one in chunks(stream)] + [DONE])


def stream_event(value: Any) -> bytes:
    return b"data: %b\n\n" % orjson.dumps(value)


def test_choices_are_replayed_in_index_order() -> None:
    asked = decoded(n=3)
    answer = record(CHAT, asked, completion(choice(2), choice(0), choice(1)))
    found = [one["choices"][0]["index"] for one in chunks(CHAT.render_stream(answer, asked))]
    assert found == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_fields_of_the_providers_own_stand_in_the_first_and_the_last_chunk() -> None:
    value = completion(service_tier="default", citations=["https://a"])
    found = chunks(CHAT.render_stream(record(CHAT, decoded(), value), decoded()))
    assert [one.get("citations") for one in found] == [["https://a"], None, ["https://a"]]
    assert [one["service_tier"] for one in found] == ["default"] * 3


def test_tokens_dictate_the_pieces_and_half_characters_stay_together() -> None:
    def token(raw: bytes) -> dict[str, Any]:
        return {"token": repr(raw), "bytes": list(raw), "logprob": -1.0, "top_logprobs": []}

    tokens = [token(raw) for raw in (b"Hi ", b"\xf0\x9f", b"\x91\xa9", b"!")]
    value = completion(
        choice(message=message("Hi 👩!"), logprobs={"content": tokens, "refusal": None})
    )
    found = chunks(CHAT.render_stream(record(CHAT, decoded(), value), decoded()))[1:-1]
    assert [one["choices"][0]["delta"]["content"] for one in found] == ["Hi ", "👩", "!"]
    sent = [one["choices"][0]["logprobs"]["content"] for one in found]
    assert sent == [tokens[:1], tokens[1:3], tokens[3:]]


@pytest.mark.parametrize("tokens", [["Hel"], ["Hello there.", "<end>"], [5], [None], []])
def test_tokens_that_do_not_spell_the_text_are_sent_whole(tokens: list[Any]) -> None:
    entries = [{"token": one, "logprob": -1.0} if one else one for one in tokens]
    logprobs = {"content": entries, "refusal": None}
    value = completion(choice(logprobs=logprobs))
    found = chunks(CHAT.render_stream(record(CHAT, decoded(), value), decoded()))
    sent = [one["choices"][0] for one in found if one["choices"][0]["logprobs"]]
    assert [one["logprobs"] for one in sent] == [logprobs]


def test_line_ends_of_unicode_are_escaped_in_a_stream() -> None:
    text = "a\u2028b\u2029c\u0085d\r\ne"
    stream = CHAT.render_stream(record(CHAT, decoded(), _said(text)), decoded())
    assert len(stream.decode().splitlines()) == stream.count(b"\n")
    assert chunks(stream)[1]["choices"][0]["delta"]["content"] == text


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

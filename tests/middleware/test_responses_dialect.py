"""The OpenAI Responses dialect: reading requests, judging answers, replaying them."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trivet.errors import RequestError
from trivet.messages import Answer, NotStored, Usage
from trivet.middleware.dialects import sse
from trivet.middleware.dialects.base import StoreRules
from trivet.middleware.dialects.responses import ResponsesDialect

DIALECT = ResponsesDialect()
RULES = StoreRules(tool_calls=True, refusals=True, max_entry=1 << 20)
STRICT = StoreRules(tool_calls=False, refusals=False, max_entry=1 << 20)
TEXT = {"type": "output_text", "text": "Hello.", "annotations": []}
REFUSAL = {"type": "refusal", "refusal": "No."}
CALL = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "call_1",
    "name": "f",
    "arguments": '{"a":1}',
    "status": "completed",
}
CUSTOM = {"type": "custom_tool_call", "id": "ctc_1", "call_id": "call_2", "name": "g", "input": "x"}
REASONING = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}]}
SCHEMA = {"type": "object", "properties": {"b": {}, "a": {}}, "required": ["a"]}
FORMAT: Any = {"text": {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA}}}


def decode(**fields: Any) -> Any:
    made: dict[str, Any] = {"model": "gpt-5", "input": "hi"}
    return DIALECT.decode(orjson.dumps(made | fields), {})


def said(*content: Any, **fields: Any) -> dict[str, Any]:
    made: dict[str, Any] = {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": list(content),
    }
    return made | fields


def response(*output: Any, **fields: Any) -> dict[str, Any]:
    made: dict[str, Any] = {
        "id": "resp_1",
        "object": "response",
        "status": "completed",
        "model": "gpt-5-2026",
        "error": None,
        "incomplete_details": None,
        "output": list(output),
        "metadata": {},
        "user": None,
        "usage": {"input_tokens": 5, "output_tokens": 3},
    }
    return made | fields


def judged(answer: Any, rules: StoreRules = RULES, **request: Any) -> str | None:
    """Why an answer is not stored, alike as a body and as a stream; None if it is."""
    asked = decode(**request)
    found = DIALECT.record(asked, orjson.dumps(answer), rules)
    recorder = DIALECT.recorder(asked)
    last = orjson.dumps({"type": "response.completed", "sequence_number": 0, "response": answer})
    recorder.feed(sse.frame(last, "response.completed"))
    assert recorder.finish(rules) == found
    return found.reason if isinstance(found, NotStored) else None


def stored(answer: dict[str, Any], **request: Any) -> Answer:
    found = DIALECT.record(decode(**request), orjson.dumps(answer), RULES)
    assert isinstance(found, Answer), found
    return found


def stream_of(answer: dict[str, Any]) -> list[bytes]:
    return sse.split(DIALECT.render_stream(Answer(orjson.dumps(answer), None, "m"), decode()))


def finished(events: list[bytes], rules: StoreRules = RULES) -> Answer | NotStored:
    recorder = DIALECT.recorder(decode())
    for event in events:
        recorder.feed(event)
    return recorder.finish(rules)


def test_a_request_is_forwarded_as_the_same_object() -> None:
    raw = orjson.dumps({"model": "m", "input": "x"})
    assert DIALECT.decode(raw, {}).forward is raw


def test_the_facts_of_a_request_are_read() -> None:
    found = decode(
        stream=True,
        store=False,
        temperature=0.0,
        user="u",
        metadata={"a": "b"},
        tools=[{"type": "function", "name": "f"}],
        **FORMAT,
    )
    assert (found.model, found.stream, found.sampled) == ("gpt-5", True, False)
    assert (found.user, found.tools, found.choices) == ("u", True, 1)
    assert (found.json_answer, orjson.loads(found.schema)) == (True, SCHEMA)
    assert (found.uncacheable, found.keep_ids) == (None, False)
    assert dict(found.echo) == {"user": "u", "metadata": {"a": "b"}}


def test_the_end_user_may_come_as_a_safety_identifier() -> None:
    assert decode(safety_identifier="s").user == "s"
    assert decode().user is None


def test_stored_responses_keep_their_ids() -> None:
    assert decode().keep_ids
    assert decode(store=None).keep_ids
    assert decode(store=True).keep_ids
    assert not decode(store=False).keep_ids
    assert decode(store=False).canonical != decode(store=True).canonical


def test_json_mode_has_no_schema() -> None:
    found = decode(text={"format": {"type": "json_object"}})
    assert (found.json_answer, found.schema) == (True, None)


def test_litellms_cache_field_is_taken_out() -> None:
    found = decode(cache={"no-store": True})
    assert found.directives == {"no-store": True}
    assert found.forward == b'{"model":"gpt-5","input":"hi"}'
    assert found.canonical == decode().canonical


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"model": None}, "model"),
        ({"model": 5}, "model"),
        ({"input": 1}, "input"),
        ({"input": ["hi"]}, "input[0]"),
        ({"stream": 1}, "stream"),
        ({"store": "no"}, "store"),
        ({"temperature": "0"}, "temperature"),
        ({"tools": {}}, "tools"),
        ({"metadata": []}, "metadata"),
        ({"text": "plain"}, "text"),
        ({"user": 5}, "user"),
        ({"background": "yes"}, "background"),
        ({"stream_options": "x"}, "stream_options"),
    ],
)
def test_a_wrong_type_is_named(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(RequestError) as caught:
        decode(**fields)
    assert (caught.value.status, caught.value.field) == (400, field)


def test_a_stored_prompt_may_name_the_model() -> None:
    assert decode(model=None, prompt={"id": "p", "version": "2"}).model == ""


def user(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"input": [{"role": "user", "content": list(parts)}]}


URL_IMAGE = {"type": "input_image", "detail": "auto", "image_url": "https://a/b.png"}
DATA_IMAGE = {"type": "input_image", "detail": "auto", "image_url": "DATA:image/png;base64,QQ=="}
FILE = {"type": "input_file", "file_id": "file_1"}


def tools(*kinds: Any) -> dict[str, Any]:
    return {"tools": [{"type": kind} for kind in kinds]}


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({}, None),
        ({"background": False}, None),
        ({"background": True}, "background"),
        ({"background_options": {}}, "background"),
        ({"previous_response_id": "resp_1"}, "stored-conversation"),
        ({"previous_response_id": None}, None),
        ({"conversation": "conv_1"}, "stored-conversation"),
        ({"conversation": {"id": "conv_1"}}, "stored-conversation"),
        ({"prompt": {"id": "p"}}, "unversioned-prompt"),
        ({"prompt": {"id": "p", "version": None}}, "unversioned-prompt"),
        ({"prompt": {"id": "p", "version": "1"}}, None),
        ({"prompt": {"id": "p", "version": "1", "variables": {"x": FILE}}}, "file-id"),
        ({"prompt_cache_options": {"prewarm": True}}, "prewarm"),
        ({"prompt_cache_options": {"prewarm": False}}, None),
        ({"generate": False}, "prewarm"),
        ({"context_management": [{"type": "compaction"}]}, "compaction"),
        ({"context_management": []}, None),
        (tools("function", "custom"), None),
        *(
            (tools("function", kind), "hosted-tool")
            for kind in (
                "web_search",
                "web_search_preview",
                "web_search_preview_2025_03_11",
                "file_search",
                "code_interpreter",
                "computer",
                "computer_use_preview",
                "image_generation",
                "mcp",
                "shell",
                "local_shell",
                "apply_patch",
                "programmatic_tool_calling",
                "tool_search",
                "anything_new",
                None,
                ["function"],
            )
        ),
        ({"tools": [{"type": "tool_search", "execution": "client"}]}, None),
        ({"tools": [{"type": "namespace", "tools": [{"type": "custom"}]}]}, None),
        ({"tools": [{"type": "namespace", "tools": [{"type": "mcp"}]}]}, "hosted-tool"),
        (
            {"input": [{"type": "additional_tools", "role": "developer", **tools("mcp")}]},
            "hosted-tool",
        ),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "item-reference"),
        ({"input": [{"id": "msg_1"}]}, "item-reference"),
        ({"input": [{"type": "compaction_trigger"}]}, "compaction"),
        (user(FILE), "file-id"),
        (user({"type": "input_file", "file_url": "https://a/b.pdf"}), "remote-image"),
        (user(URL_IMAGE), "remote-image"),
        (user(URL_IMAGE, FILE), "file-id"),
        (user(URL_IMAGE) | tools("mcp"), "hosted-tool"),
        (user(DATA_IMAGE), None),
        (
            {"input": [{"type": "function_call_output", "call_id": "c", "output": [URL_IMAGE]}]},
            "remote-image",
        ),
        (
            {"input": [{"type": "computer_call_output", "call_id": "c", "output": URL_IMAGE}]},
            "remote-image",
        ),
    ],
)
def test_what_no_cache_may_answer_has_a_reason(fields: dict[str, Any], reason: str | None) -> None:
    assert decode(**fields).uncacheable == reason


def test_breakpoints_are_stripped_from_content_parts_only() -> None:
    mark = {"prompt_cache_breakpoint": {"mode": "explicit"}}
    part = {"type": "input_text", "text": "x"}
    output = {"type": "function_call_output", "call_id": "c", "output": [part]}
    plain = {"input": [{"role": "user", "content": [part]}, output]}
    marked = {
        "input": [{"role": "user", "content": [part | mark]}, output | {"output": [part | mark]}]
    }
    assert decode(**marked).canonical == decode(**plain).canonical
    schema = {"tools": [{"type": "function", "name": "f", "parameters": mark}]}
    assert b"explicit" in decode(**schema).canonical


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (response(said(TEXT)), None),
        (response(REASONING, said(TEXT)), None),
        (response(said(TEXT), status="queued"), "status-queued"),
        (response(said(TEXT), status="in_progress"), "status-in-progress"),
        (response(said(TEXT), status="failed"), "status-failed"),
        (response(said(TEXT), status="cancelled"), "status-cancelled"),
        (response(said(TEXT), status="invented"), "no-status"),
        (response(said(TEXT), status=None), "no-status"),
        (response(said(TEXT), status=["completed"]), "no-status"),
        (response(said(TEXT), status="incomplete"), "incomplete"),
        (response(said(TEXT), incomplete_details={"reason": "content_filter"}), "content-filter"),
        (
            response(
                said(TEXT), status="incomplete", incomplete_details={"reason": "max_output_tokens"}
            ),
            "max-output-tokens",
        ),
        (response(said(TEXT), incomplete_details={"reason": "invented"}), "incomplete"),
        (response(said(TEXT), error={"code": "server_error"}), "upstream-error"),
        (response(said(TEXT, status="incomplete")), "item-incomplete"),
        (response(said(TEXT, status="in_progress")), "item-incomplete"),
        (response(CALL), "tool-calls"),
        (response(CUSTOM), "tool-calls"),
        (response(said(REFUSAL)), "refusal"),
        (response(said(TEXT, REFUSAL)), "refusal"),
        (response(), "empty"),
        (response(REASONING), "empty"),
        (response(said()), "empty"),
        (response(said(TEXT | {"text": ""})), "empty"),
        (response(said({"type": "output_text"})), "malformed"),
        (response(said("text")), "malformed"),
        (response(said(TEXT, content="text")), "malformed"),
        (response("text"), "malformed"),
        (response(said(TEXT), output="text"), "malformed"),
        (response(REASONING | {"summary": ["x"]}, said(TEXT)), "malformed"),
        (response({"type": "web_search_call", "id": "ws"}, said(TEXT)), "hosted-tool"),
        (response({"type": "mcp_list_tools", "id": "m"}, said(TEXT)), "hosted-tool"),
        (response({"type": "program", "id": "p"}, said(TEXT)), "hosted-tool"),
        (response({"type": "compaction", "id": "c"}, said(TEXT)), "compaction"),
        (response({"type": "vendor_note"}, said(TEXT)), None),
        (response(said(TEXT), moderation={"input": {"flagged": True}}), "moderation"),
        (response(said(TEXT), moderation={"input": {"flagged": False}, "output": None}), None),
        (response(said(TEXT), errors=["x"]), "upstream-error"),
        (response(said(TEXT), detail="quota"), "upstream-error"),
        (response(said(TEXT), object="error"), "upstream-error"),
        (response(said(TEXT), object="response.compaction"), "malformed"),
        (response(said(TEXT, role="user")), "malformed"),
        ({}, "no-status"),
        ([], "malformed"),
    ],
)
def test_only_complete_successful_answers_are_stored(answer: Any, reason: str | None) -> None:
    assert judged(answer, STRICT) == reason


def test_the_policy_lets_tool_calls_and_refusals_in() -> None:
    assert judged(response(CALL, CUSTOM)) is None
    assert judged(response(said(REFUSAL))) is None
    assert judged(response(CALL | {"arguments": '{"a":'})) == "invalid-tool-input"
    assert judged(response(CALL | {"call_id": None})) == "malformed"


@pytest.mark.parametrize("raw", [b"", b"<html>", b'{"id":"r"', b'{"a":1,"a":2}', b"\xff"])
def test_an_answer_that_is_not_json_is_not_stored(raw: bytes) -> None:
    assert DIALECT.record(decode(), raw, RULES) == NotStored("invalid-json")


@pytest.mark.parametrize(
    ("text", "reason"),
    [('{"a":1}', None), ('{"b":1}', "schema-mismatch"), ('{"a":1', "invalid-json")],
)
def test_a_json_answer_parses_and_validates(text: str, reason: str | None) -> None:
    assert judged(response(said(TEXT | {"text": text})), **FORMAT) == reason
    comment = said(TEXT, id="msg_0", phase="commentary")
    final = said(TEXT | {"text": text}, phase="final_answer")
    assert judged(response(comment, final), **FORMAT) == reason


def test_calls_and_refusals_are_not_read_as_json() -> None:
    assert judged(response(CALL), **FORMAT) is None
    assert judged(response(said(REFUSAL)), **FORMAT) is None


def test_an_answer_over_the_limit_is_not_stored() -> None:
    size = len(orjson.dumps(response(said(TEXT))))
    assert judged(response(said(TEXT)), StoreRules(True, True, size)) is None
    assert judged(response(said(TEXT)), StoreRules(True, True, size - 1)) == "too-large"


def test_a_stored_answer_is_compact_and_knows_its_ids_and_cost() -> None:
    details = {"cached_tokens": 17817, "cache_write_tokens": 5}
    usage = {"input_tokens": 17903, "input_tokens_details": details, "output_tokens": 7}
    made = response(REASONING, CALL, CUSTOM, usage=usage)
    raw = orjson.dumps(made, option=orjson.OPT_INDENT_2)
    cost = Usage(17903, 7, 17817, 5)
    ids = ("resp_1", "call_1", "call_2")
    assert DIALECT.record(decode(store=False), raw, RULES) == Answer(
        orjson.dumps(made), cost, "gpt-5-2026", ids
    )
    assert DIALECT.record(decode(), raw, RULES) == Answer(orjson.dumps(made), cost, "gpt-5-2026")


@pytest.mark.parametrize("usage", [None, {}, {"input_tokens": 1}, {"input_tokens": -1}, "x"])
def test_unknown_usage_is_none(usage: Any) -> None:
    assert stored(response(said(TEXT), usage=usage)).usage is None


def test_ids_are_known_as_soon_as_a_stream_names_them() -> None:
    recorder = DIALECT.recorder(decode(store=False))
    kept = DIALECT.recorder(decode())
    seen = []
    for event in stream_of(response(REASONING, CALL, CUSTOM)):
        recorder.feed(event)
        kept.feed(event)
        seen.append(list(recorder.ids))
    assert seen[0] == ["resp_1"]
    assert seen[-1] == ["resp_1", "call_1", "call_2"]
    assert kept.ids == []


def test_numbers_beyond_64_bits_and_lone_surrogates_survive() -> None:
    odd = b'{"type":"note","n":123456789012345678901234,"s":"\\ud83d"}'
    raw = orjson.dumps(response("odd", said(TEXT))).replace(b'"odd"', odd)
    found = DIALECT.record(decode(), raw, RULES)
    assert isinstance(found, Answer)
    assert found.body == raw
    assert finished(sse.split(DIALECT.render_stream(found, decode()))) == found


FULL = response(REASONING, said(TEXT), CALL, CUSTOM)


def test_every_cut_of_a_stream_is_noticed() -> None:
    events = stream_of(FULL)
    assert isinstance(finished(events), Answer)
    for count in range(len(events)):
        assert finished(events[:count]) == NotStored("stream-cut")


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (b'event: error\ndata: {"type":"error","message":"x"}\n\n', "upstream-error"),
        (b'data: {"error":{"message":"x"}}\n\n', "upstream-error"),
        (b"data: {broken\n\n", "malformed-stream"),
        (b"data: []\n\n", "malformed-stream"),
        (b'data: {"type":["x"]}\n\n', "malformed-stream"),
        (b'data: {"type":"response.x.delta"}\nevent: error\n\n', "upstream-error"),
        (b'data: {"type":"note","detail":"x"}\n\n', "upstream-error"),
        (b'data: {"object":"error"}\n\n', "upstream-error"),
        (b'{"type":"error"}\n\n', "malformed-stream"),
    ],
)
def test_an_event_out_of_place_ends_the_recording(event: bytes, reason: str) -> None:
    events = stream_of(FULL)
    for place in (0, 3, len(events)):
        assert finished([*events[:place], event, *events[place:]]) == NotStored(reason)


def test_text_after_the_end_and_an_end_of_another_response_are_not_stored() -> None:
    events = stream_of(FULL)
    late = sse.frame(b'{"type":"response.output_text.delta","delta":"x"}')
    assert finished([*events, late]) == NotStored("malformed-stream")
    other = stream_of(FULL | {"id": "resp_2"})
    assert finished([*events[:-1], other[-1]]) == NotStored("malformed-stream")


def test_a_response_with_very_many_ids_is_not_stored() -> None:
    calls = [CALL | {"call_id": f"call_{number}"} for number in range(256)]
    assert judged(response(*calls), store=False) == "too-many-ids"
    assert judged(response(*calls[1:]), store=False) is None
    assert judged(response(*calls), store=True) is None
    recorder = DIALECT.recorder(decode(store=False))
    for event in stream_of(response(*calls, *calls)):
        recorder.feed(event)
    assert recorder.finish(RULES) == NotStored("too-many-ids")
    assert len(recorder.ids) == 257


@pytest.mark.parametrize("text", ["Hello.", "\ud83d"])
@pytest.mark.parametrize("space", [b"", b" ", b"\t "])
def test_a_follower_gets_no_field_of_the_caller_whom_it_follows(text: str, space: bytes) -> None:
    led = response(said(TEXT), metadata={"turn": "1"}, user="ann", safety_identifier="ann")
    raw = orjson.dumps({"type": "response.completed", "response": led})
    raw = raw.replace(b'"response":', b'"response"%b:%b' % (space, space))
    raw = raw.replace(b"Hello.", json.dumps(text).encode()[1:-1])
    event = DIALECT.follow(sse.frame(raw, "response.completed"), decode(user="bob"))
    assert b'"ann"' not in event
    shown = json.loads(sse.data_of(event))["response"]
    assert (shown["metadata"], shown["user"], shown["safety_identifier"]) == ({}, "bob", None)
    assert shown["output"] == [said(TEXT | {"text": text})]


def test_a_member_of_stream_options_that_is_not_known_is_in_the_key() -> None:
    plain = decode().canonical
    assert decode(stream_options={"include_obfuscation": False}).canonical == plain
    assert decode(stream_options={}).canonical == plain
    assert decode(stream_options=None).canonical == plain
    found = decode(stream_options={"include_obfuscation": False, "x": 1}).canonical
    assert found == decode(stream_options={"x": 1}).canonical != plain


def test_a_second_end_is_not_an_end() -> None:
    events = stream_of(FULL)
    assert finished([*events, events[-1]]) == NotStored("malformed-stream")


@pytest.mark.parametrize(
    ("kind", "fields", "reason"),
    [
        ("failed", {"status": "failed", "error": {"code": "server_error"}}, "upstream-error"),
        (
            "incomplete",
            {"incomplete_details": {"reason": "max_output_tokens"}},
            "max-output-tokens",
        ),
        ("failed", {"status": "failed"}, "status-failed"),
    ],
)
def test_other_ends_of_a_stream_are_not_stored(
    kind: str, fields: dict[str, Any], reason: str
) -> None:
    last = orjson.dumps({"type": f"response.{kind}", "response": FULL | fields})
    events = [*stream_of(FULL)[:-1], sse.frame(last, f"response.{kind}")]
    assert finished(events) == NotStored(reason)


def test_comments_and_a_done_marker_change_nothing() -> None:
    events = stream_of(FULL)
    mixed = [part for event in events for part in (b": ping\n\n", event)]
    assert finished([*mixed, b"data: [DONE]\n\n"]) == finished(events)


@given(st.lists(st.binary(max_size=40) | st.sampled_from(stream_of(FULL)), max_size=30))
def test_a_recorder_never_raises(events: list[bytes]) -> None:
    finished(events)


JSON: Any = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
KIND = st.sampled_from(["message", "reasoning", "function_call", "custom_tool_call", "note"])
PART = st.dictionaries(
    st.sampled_from(["type", "text", "annotations", "logprobs", "refusal"]),
    JSON | st.sampled_from(["output_text", "refusal", "reasoning_text"]),
)
ITEM = st.builds(
    lambda kind, fields, parts: {**fields, "type": kind, "content": parts, "summary": parts},
    KIND,
    st.dictionaries(st.sampled_from(["id", "call_id", "arguments", "input", "status"]), JSON),
    st.lists(PART, max_size=2) | JSON,
)


@given(st.lists(ITEM | JSON, max_size=3), st.dictionaries(st.sampled_from(list(FULL)), JSON))
def test_no_shape_of_an_answer_raises(output: list[Any], fields: dict[str, Any]) -> None:
    for answer in (FULL | fields, FULL | {"output": [said(TEXT), *output]}):
        found = DIALECT.record(decode(), orjson.dumps(answer), RULES)
        if isinstance(found, Answer):
            assert finished(sse.split(DIALECT.render_stream(found, decode()))) == found


def test_what_is_stored_does_not_hold_the_callers_own_fields() -> None:
    asked = {"metadata": {"turn": "1"}, "user": "ann", "service_tier": "flex"}
    answer = stored(response(said(TEXT), **asked), **asked)
    kept = orjson.loads(answer.body)
    assert (kept["metadata"], kept["user"], kept["service_tier"]) == ({}, None, "default")


def test_a_replay_repeats_the_fields_of_the_request_at_hand() -> None:
    answer = stored(response(said(TEXT), prompt_cache_options={"mode": "implicit", "ttl": "30m"}))
    asked = decode(
        metadata={"turn": "2"},
        user="bob",
        service_tier="priority",
        prompt_cache_key="k",
        prompt_cache_options={"ttl": "12h"},
    )
    replayed = orjson.loads(DIALECT.render_json(answer, asked))
    assert replayed == orjson.loads(answer.body) | {
        "metadata": {"turn": "2"},
        "user": "bob",
        "service_tier": "priority",
        "prompt_cache_key": "k",
        "prompt_cache_options": {"mode": "implicit", "ttl": "12h"},
    }
    last = sse.split(DIALECT.render_stream(answer, asked))[-1]
    assert orjson.loads(sse.data_of(last))["response"] == replayed


def test_a_replay_without_echo_is_the_stored_body() -> None:
    answer = stored(response(said(TEXT)))
    assert DIALECT.render_json(answer, decode()) is answer.body


def test_the_tier_that_auto_chose_is_kept() -> None:
    answer = stored(response(said(TEXT), service_tier="priority"), service_tier="auto")
    replayed = orjson.loads(DIALECT.render_json(answer, decode(service_tier="auto")))
    assert replayed["service_tier"] == "priority"


def test_an_error_has_openais_shape_and_names_the_field() -> None:
    made = orjson.loads(DIALECT.error(400, "No.", field="input", code="bad"))
    assert made["error"]["message"] == "No."
    assert (made["error"]["param"], made["error"]["code"]) == ("input", "bad")

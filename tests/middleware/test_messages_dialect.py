"""The Anthropic Messages dialect: reading requests, judging answers, replaying them."""

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
from trivet.middleware.dialects.messages import MessagesDialect

DIALECT = MessagesDialect()
RULES = StoreRules(tool_calls=True, refusals=True, max_entry=1 << 20)
STRICT = StoreRules(tool_calls=False, refusals=False, max_entry=1 << 20)
TEXT = {"type": "text", "text": "Hello."}
CALL = {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"a": 1}}
SCHEMA = {"type": "object", "properties": {"b": {}, "a": {}}, "required": ["a"]}
FORMAT: Any = {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}}


def body(**fields: Any) -> dict[str, Any]:
    made: dict[str, Any] = {
        "model": "claude-opus-5",
        "max_tokens": 10,
        "messages": [{"role": "user", "content": "hi"}],
    }
    return made | fields


def decode(**fields: Any) -> Any:
    return DIALECT.decode(orjson.dumps(body(**fields)), {})


def user(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": list(blocks)}]}


def message(*content: Any, **fields: Any) -> dict[str, Any]:
    made: dict[str, Any] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-opus-5-20260801",
        "content": list(content),
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 5, "output_tokens": 3},
    }
    return made | fields


def judged(answer: Any, rules: StoreRules = RULES, **request: Any) -> str | None:
    """Why a JSON answer is not stored; None if it is. Its stream is judged the same."""
    asked = decode(**request)
    found = DIALECT.record(asked, orjson.dumps(answer), rules)
    return found.reason if isinstance(found, NotStored) else None


def stream_of(answer: dict[str, Any]) -> list[bytes]:
    return sse.split(DIALECT.render_stream(Answer(orjson.dumps(answer), None, "m"), decode()))


def finished(events: list[bytes], rules: StoreRules = RULES) -> Answer | NotStored:
    recorder = DIALECT.recorder(decode())
    for event in events:
        recorder.feed(event)
    return recorder.finish(rules)


def test_a_request_is_forwarded_as_the_same_object() -> None:
    raw = orjson.dumps(body())
    assert DIALECT.decode(raw, {}).forward is raw


def test_the_facts_of_a_request_are_read() -> None:
    found = decode(
        stream=True, temperature=0.0, metadata={"user_id": "u"}, tools=[{"name": "f"}], **FORMAT
    )
    assert (found.model, found.stream, found.sampled) == ("claude-opus-5", True, False)
    assert (found.user, found.tools, found.choices) == ("u", True, 1)
    assert (found.json_answer, orjson.loads(found.schema)) == (True, SCHEMA)
    assert (found.uncacheable, found.keep_ids, dict(found.echo)) == (None, False, {})


@pytest.mark.parametrize("fields", [{}, {"temperature": None}, {"temperature": 0.2}])
def test_an_answer_without_temperature_zero_is_drawn_at_random(fields: dict[str, Any]) -> None:
    assert decode(**fields).sampled


def test_litellms_cache_field_is_taken_out_and_the_order_of_keys_kept() -> None:
    found = decode(cache={"no-cache": True, "ttl": 5}, system="s", a=1)
    assert found.directives == {"no-cache": True, "ttl": 5}
    assert found.forward == orjson.dumps(body(system="s", a=1))
    assert found.canonical == decode(system="s", a=1).canonical


def test_a_cache_field_of_another_kind_stays_in_the_request() -> None:
    found = decode(cache={"mode": "simple"})
    assert (found.directives, found.forward) == ({}, orjson.dumps(body(cache={"mode": "simple"})))
    assert b'"mode":"simple"' in found.canonical


def test_a_stripped_body_keeps_what_orjson_cannot_write() -> None:
    raw = b'{"model":"m","messages":[],"cache":{},"n":123456789012345678901234,"s":"\\ud83d"}'
    forward = DIALECT.decode(raw, {}).forward
    assert forward == b'{"model":"m","messages":[],"n":123456789012345678901234,"s":"\\ud83d"}'


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"model": None}, "model"),
        ({"model": ""}, "model"),
        ({"model": 5}, "model"),
        ({"messages": None}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": ["hi"]}, "messages.0"),
        ({"messages": [{"role": "user"}]}, "messages.0.content"),
        ({"system": 1}, "system"),
        ({"stream": "true"}, "stream"),
        ({"max_tokens": True}, "max_tokens"),
        ({"temperature": "0"}, "temperature"),
        ({"tools": {}}, "tools"),
        ({"metadata": []}, "metadata"),
        ({"thinking": True}, "thinking"),
    ],
)
def test_a_wrong_type_is_named(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(RequestError) as caught:
        decode(**fields)
    assert (caught.value.status, caught.value.field) == (400, field)


@pytest.mark.parametrize("raw", [b"", b"[]", b"{", b'{"model":"a","model":"b"}', b'{"a":NaN}'])
def test_a_body_that_is_not_one_json_object_is_refused(raw: bytes) -> None:
    with pytest.raises(RequestError):
        DIALECT.decode(raw, {})


URL_IMAGE = {"type": "image", "source": {"type": "url", "url": "https://a/b.png"}}
FILE = {"type": "document", "source": {"type": "file", "file_id": "file_1"}}


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"max_tokens": 0}, "prewarm"),
        ({"max_tokens": 0.0}, "prewarm"),
        ({"thread": {"id": "t"}}, "thread"),
        ({"container": "c"}, "container"),
        ({"mcp_servers": [{"type": "url"}]}, "mcp-servers"),
        ({"mcp_servers": []}, None),
        ({"fallback_credit_token": "t"}, "fallback-credit-token"),
        ({"compaction": {}}, "compaction"),
        ({"context_management": {"edits": [{"type": "compact_20260112"}]}}, "compaction"),
        ({"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}}, None),
        ({"tools": [{"name": "f"}, {"type": "custom", "name": "g"}]}, None),
        ({"tools": [{"type": "bash_20250124"}]}, None),
        ({"tools": [{"type": "text_editor_20250728"}]}, None),
        ({"tools": [{"type": "memory_20250818"}]}, None),
        ({"tools": [{"type": "computer_20251124"}]}, None),
        ({"tools": [{"type": "computer_toolset_20260801"}]}, None),
        ({"tools": [{"type": "web_search_20250305"}]}, "hosted-tool"),
        ({"tools": [{"type": "web_fetch_20250910"}]}, "hosted-tool"),
        ({"tools": [{"type": "code_execution_20250825"}]}, "hosted-tool"),
        ({"tools": [{"type": "tool_search_tool_bm25_20251119"}]}, "hosted-tool"),
        ({"tools": [{"type": "anything_new"}]}, "hosted-tool"),
        ({"tools": [{"type": 5}]}, "hosted-tool"),
        (user(URL_IMAGE), "remote-image"),
        (user(URL_IMAGE) | {"tools": [{"type": "web_fetch_20250910"}]}, "hosted-tool"),
        (user(URL_IMAGE, FILE), "file-id"),
        (user(FILE), "file-id"),
        (user({"type": "container_upload", "file_id": "f"}), "file-id"),
        (user({"type": "tool_result", "tool_use_id": "t", "content": [URL_IMAGE]}), "remote-image"),
        (
            user({"type": "document", "source": {"type": "content", "content": [URL_IMAGE]}}),
            "remote-image",
        ),
        (
            user(
                {
                    "type": "tool_addition",
                    "tool": {
                        "type": "tool_definition",
                        "definition": {"type": "web_search_20250305"},
                    },
                }
            ),
            "hosted-tool",
        ),
        (user({"type": "image", "source": {"type": "base64", "data": "QQ=="}}), None),
        (user({"type": "search_result", "source": "https://a", "content": [TEXT]}), None),
        ({"messages": []}, "no-messages"),
    ],
)
def test_what_no_cache_may_answer_has_a_reason(fields: dict[str, Any], reason: str | None) -> None:
    assert decode(**fields).uncacheable == reason


def test_breakpoints_are_stripped_at_structural_places_only() -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    result = {"type": "tool_result", "tool_use_id": "t", "content": [TEXT]}
    plain = body(system=[TEXT], tools=[{"name": "f", "input_schema": {}}], **user(TEXT, result))
    marked = body(
        system=[TEXT | mark],
        tools=[{"name": "f", "input_schema": {}} | mark],
        **mark,
        **user(TEXT | mark, result | mark | {"content": [TEXT | mark]}),
    )
    assert decode(**marked).canonical == decode(**plain).canonical
    for place in (
        {"tools": [{"name": "f", "input_schema": mark}]},
        user(CALL | {"input": mark}),
        user(TEXT | {"text": orjson.dumps(mark).decode()}),
    ):
        assert b"ephemeral" in decode(**place).canonical


def test_the_order_inside_a_schema_is_kept() -> None:
    turned = {"type": "object", "properties": {"a": {}, "b": {}}, "required": ["a"]}
    other = {"output_config": {"format": {"type": "json_schema", "schema": turned}}}
    assert decode(**FORMAT).canonical != decode(**other).canonical


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (message(TEXT), None),
        (message(TEXT, stop_reason="stop_sequence", stop_sequence="x"), None),
        (message(TEXT, stop_reason="max_tokens"), "max-tokens"),
        (message(TEXT, stop_reason="pause_turn"), "pause-turn"),
        (
            message(TEXT, stop_reason="model_context_window_exceeded"),
            "model-context-window-exceeded",
        ),
        (message(TEXT, stop_reason="compaction"), "compaction"),
        (message(TEXT, stop_reason="invented"), "unknown-stop-reason"),
        (message(TEXT, stop_reason=None), "no-stop-reason"),
        (message(TEXT, stop_reason=["end_turn"]), "no-stop-reason"),
        (message(TEXT, stop_reason="tool_use"), "malformed"),
        (message(TEXT, stop_reason="refusal"), "refusal"),
        (message(CALL, stop_reason="tool_use"), "tool-calls"),
        (message(TEXT, CALL), "tool-calls"),
        (message(), "empty"),
        (message({"type": "text", "text": ""}), "empty"),
        (message({"type": "thinking", "thinking": "hm", "signature": ""}), "empty"),
        (message({"type": "text"}), "malformed"),
        (message("text"), "malformed"),
        (message(TEXT, content="text"), "malformed"),
        (message(TEXT, container={"id": "c"}), "container"),
        (message({"type": "compaction", "content": "x"}), "compaction"),
        (message(TEXT, {"type": "server_tool_use", "id": "s", "input": {}}), "hosted-tool"),
        (message(TEXT, {"type": "web_search_tool_result", "content": []}), "hosted-tool"),
        ({"type": "error", "error": {"type": "overloaded_error"}}, "upstream-error"),
        (message(TEXT, error={"message": "x"}), "upstream-error"),
        ({}, "malformed"),
        ([], "malformed"),
    ],
)
def test_only_complete_successful_answers_are_stored(answer: Any, reason: str | None) -> None:
    assert judged(answer, STRICT) == reason


def test_the_policy_lets_tool_calls_and_refusals_in() -> None:
    assert judged(message(TEXT, CALL, stop_reason="tool_use")) is None
    assert judged(message(stop_reason="refusal")) is None
    assert judged(message(CALL | {"input": "{}"}, stop_reason="tool_use")) == "malformed"


@pytest.mark.parametrize("raw", [b"", b"<html>", b'{"type":"message"', b'{"a":1,"a":2}', b"\xff"])
def test_an_answer_that_is_not_json_is_not_stored(raw: bytes) -> None:
    assert DIALECT.record(decode(), raw, RULES) == NotStored("invalid-json")


@pytest.mark.parametrize(
    ("text", "reason"),
    [('{"a":1}', None), ('{"b":1}', "schema-mismatch"), ('{"a":1', "invalid-json")],
)
def test_a_json_answer_parses_and_validates(text: str, reason: str | None) -> None:
    half = len(text) // 2
    blocks = [{"type": "text", "text": text[:half]}, {"type": "text", "text": text[half:]}]
    assert judged(message(*blocks), **FORMAT) == reason
    assert judged(message(TEXT, CALL, stop_reason="tool_use"), **FORMAT) is None


def test_an_answer_over_the_limit_is_not_stored() -> None:
    size = len(orjson.dumps(message(TEXT)))
    assert judged(message(TEXT), StoreRules(True, True, size)) is None
    assert judged(message(TEXT), StoreRules(True, True, size - 1)) == "too-large"


def test_a_stored_answer_is_compact_and_knows_its_ids_and_cost() -> None:
    usage = {
        "input_tokens": 5,
        "cache_read_input_tokens": 128955,
        "cache_creation_input_tokens": 1253,
        "output_tokens": 7,
    }
    made = message(TEXT, CALL, stop_reason="tool_use", usage=usage)
    found = DIALECT.record(decode(), orjson.dumps(made, option=orjson.OPT_INDENT_2), RULES)
    assert found == Answer(
        orjson.dumps(made),
        Usage(130213, 7, 128955, 1253),
        "claude-opus-5-20260801",
        ("msg_1", "toolu_1"),
    )


@pytest.mark.parametrize("usage", [None, {}, {"input_tokens": 1}, {"input_tokens": -1}, "x"])
def test_unknown_usage_is_none(usage: Any) -> None:
    found = DIALECT.record(decode(), orjson.dumps(message(TEXT, usage=usage)), RULES)
    assert isinstance(found, Answer)
    assert found.usage is None
    assert stream_of(message(TEXT, usage=usage))


def test_numbers_beyond_64_bits_survive_recording_and_replay() -> None:
    call = b'{"type":"tool_use","id":"t","name":"f","input":{"n":123456789012345678901234}}'
    raw = orjson.dumps(message(stop_reason="tool_use")).replace(b"[]", b"[" + call + b"]")
    found = DIALECT.record(decode(), raw, RULES)
    assert isinstance(found, Answer)
    assert found.body == raw
    assert finished(sse.split(DIALECT.render_stream(found, decode()))) == found


def test_a_lone_surrogate_survives_and_halves_of_a_pair_join() -> None:
    events = stream_of(message({"type": "text", "text": "AB"}))
    high, low = (events[2].replace(b'"AB"', half) for half in (b'"\\ud83d"', b'"\\ude00"'))
    found = finished([*events[:2], high, low, *events[3:]])
    assert isinstance(found, Answer)
    assert orjson.loads(found.body)["content"][0]["text"] == "😀"
    alone = finished([*events[:2], high, *events[3:]])
    assert isinstance(alone, Answer)
    assert b'"text":"\\ud83d"' in alone.body
    assert finished(sse.split(DIALECT.render_stream(alone, decode()))) == alone


FULL = message(
    {"type": "thinking", "thinking": "hm", "signature": "sig"},
    TEXT,
    CALL,
    stop_reason="tool_use",
)


def test_every_cut_of_a_stream_is_noticed() -> None:
    events = stream_of(FULL)
    assert isinstance(finished(events), Answer)
    for count in range(len(events)):
        assert finished(events[:count]) == NotStored("stream-cut")


def test_a_stream_with_any_but_a_text_event_missing_is_not_stored() -> None:
    events = stream_of(FULL)
    for index, event in enumerate(events):
        if b"_delta" in event and b"message_delta" not in event:
            continue
        assert isinstance(finished(events[:index] + events[index + 1 :]), NotStored), event


ERROR = sse.frame(b'{"type":"error","error":{"type":"overloaded_error"}}', "error")


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (ERROR, "upstream-error"),
        (b"event: x\ndata: {broken\n\n", "invalid-json"),
        (b"data: []\n\n", "malformed-stream"),
        (b"data: {}\n\n", "malformed-stream"),
        (b'data: {"type":"new_event"}\n\n', "malformed-stream"),
        (b'data: {"type":"message_start","message":{}}\n\n', "malformed-stream"),
        (b'data: {"type":"content_block_stop","index":-1}\n\n', "malformed-stream"),
        (
            b'data: {"type":"content_block_delta","index":0,"delta":{"type":"new"}}\n\n',
            "malformed-stream",
        ),
        (b"data: [DONE]\n\n", "invalid-json"),
        (b'data: {"type":"ping"}\nevent: error\n\n', "upstream-error"),
        (b'data: {"type":"ping","error":{}}\n\n', "upstream-error"),
        (b'{"type":"error"}\n\n', "malformed-stream"),
    ],
)
def test_an_event_out_of_place_ends_the_recording(event: bytes, reason: str) -> None:
    events = stream_of(FULL)
    for place in (1, 3, len(events)):
        if place < len(events) or event is ERROR:
            found = finished([*events[:place], event, *events[place:]])
            assert found == NotStored(reason)


@pytest.mark.parametrize("kind", ["content_block_start", "content_block_delta", "message_delta"])
def test_a_message_that_goes_on_after_its_end_is_not_stored(kind: str) -> None:
    events = stream_of(message(TEXT))
    assert b"message_delta" in events[-2]
    more: dict[str, dict[str, Any]] = {
        "content_block_start": {"index": 1, "content_block": {"type": "text", "text": "x"}},
        "content_block_delta": {"index": 0, "delta": {"type": "text_delta", "text": "x"}},
        "message_delta": {"delta": {"stop_reason": "max_tokens"}},
    }
    added = sse.frame(orjson.dumps({"type": kind, **more[kind]}), kind)
    assert finished([*events[:-1], added, events[-1]]) == NotStored("malformed-stream")
    again = sse.frame(b'{"type":"message_delta","delta":{},"usage":{"output_tokens":3}}')
    assert isinstance(finished([*events[:-1], again, events[-1]]), Answer)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"role": "user"}, "malformed"),
        ({"errors": ["x"]}, "upstream-error"),
        ({"detail": "quota"}, "upstream-error"),
        ({"error": {}}, "upstream-error"),
    ],
)
def test_a_message_that_is_none_of_the_assistants_is_not_stored(
    fields: dict[str, Any], reason: str
) -> None:
    assert judged(message(TEXT, **fields)) == reason
    assert finished(stream_of(message(TEXT, **fields))) == NotStored(reason)


def test_a_message_with_very_many_ids_is_not_stored() -> None:
    calls = [{**CALL, "id": f"toolu_{number}"} for number in range(256)]
    made = message(*calls, stop_reason="tool_use")
    assert judged(made) == "too-many-ids"
    assert finished(stream_of(made)) == NotStored("too-many-ids")
    assert judged(message(*calls[1:], stop_reason="tool_use")) is None


def test_pings_and_comments_change_nothing() -> None:
    events = stream_of(FULL)
    noise = [b": keep-alive\n\n", b'event: ping\ndata: {"type": "ping"}\n\n', b"\n\n"]
    mixed = [part for event in events for part in (*noise, event)]
    assert finished(mixed) == finished(events)


def test_tool_input_that_is_not_json_is_not_stored() -> None:
    events = [event.replace(b'{\\"a\\":1}', b'{\\"a\\":') for event in stream_of(FULL)]
    assert finished(events) == NotStored("invalid-json")


@pytest.mark.parametrize(
    ("fields", "count"), [({"signature": "s"}, 1), ({"signature": ""}, 0), ({}, 0)]
)
def test_a_signature_is_sent_once_and_only_if_there_is_one(
    fields: dict[str, Any], count: int
) -> None:
    thinking = {"type": "thinking", "thinking": "A long thought. " * 40, **fields}
    made = message(thinking, TEXT)
    events = stream_of(made)
    assert sum(b"signature_delta" in event for event in events) == count
    assert sum(b"thinking_delta" in event for event in events) > 3
    found = finished(events)
    assert isinstance(found, Answer)
    assert orjson.loads(found.body) == made


def test_replayed_ids_can_be_found_in_the_bytes() -> None:
    answer = Answer(orjson.dumps(FULL), None, "m")
    asked = decode()
    for replayed in (DIALECT.render_json(answer, asked), DIALECT.render_stream(answer, asked)):
        assert replayed.count(b'"id":"msg_1"') == replayed.count(b'"id":"toolu_1"') == 1


def test_a_tool_that_a_message_brings_counts_as_a_tool() -> None:
    assert not decode().tools
    assert decode(**user({"type": "tool_addition", "tool": {"type": "tool_definition"}})).tools


def test_the_first_beta_of_structured_outputs_is_understood() -> None:
    found = decode(output_format={"type": "json_schema", "schema": SCHEMA})
    assert (found.json_answer, orjson.loads(found.schema)) == (True, SCHEMA)


def test_the_policy_judges_a_stream_like_a_body() -> None:
    assert finished(stream_of(FULL), STRICT) == NotStored("tool-calls")
    cut = message(TEXT, stop_reason="max_tokens")
    assert finished(stream_of(cut)) == NotStored("max-tokens")


def test_usage_of_a_stream_is_the_running_total() -> None:
    events = stream_of(message(TEXT, usage={"input_tokens": 5, "output_tokens": 3, "x": 1}))
    repeated = events[-2].replace(b'"input_tokens":5', b'"input_tokens":null')
    found = finished([*events[:-2], repeated, events[-1]])
    assert isinstance(found, Answer)
    assert found.usage == Usage(5, 3)
    assert orjson.loads(found.body)["usage"] == {"input_tokens": 5, "output_tokens": 3, "x": 1}


@given(st.lists(st.binary(max_size=40) | st.sampled_from(stream_of(FULL)), max_size=30))
def test_a_recorder_never_raises(events: list[bytes]) -> None:
    finished(events)


JSON: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from(list(FULL)), JSON))
def test_no_shape_of_an_answer_raises(fields: dict[str, Any]) -> None:
    found = DIALECT.record(decode(), json.dumps(FULL | fields).encode(), RULES)
    if isinstance(found, Answer):
        DIALECT.render_stream(found, decode())


@given(
    st.sampled_from(["message_start", "content_block_start", "content_block_delta"])
    | st.sampled_from(["content_block_stop", "message_delta", "message_stop", "error"]),
    st.dictionaries(
        st.sampled_from(["message", "index", "content_block", "delta", "usage", "error"]), JSON
    ),
    st.integers(0, 12),
)
def test_no_shape_of_an_event_raises(kind: str, fields: dict[str, Any], place: int) -> None:
    events = stream_of(FULL)
    event = sse.frame(json.dumps({"type": kind, **fields}).encode(), kind)
    found = finished([*events[:place], event, *events[place:]])
    if isinstance(found, Answer):
        DIALECT.render_stream(found, decode())


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (403, "permission_error"),
        (404, "not_found_error"),
        (405, "invalid_request_error"),
        (413, "request_too_large"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (502, "api_error"),
        (503, "overloaded_error"),
        (504, "timeout_error"),
        (529, "overloaded_error"),
    ],
)
def test_errors_have_anthropics_types(status: int, kind: str) -> None:
    made = orjson.loads(DIALECT.error(status, "No.", field=None, code=None))
    assert made == {"type": "error", "error": {"type": kind, "message": "No."}}


def test_an_error_names_its_field_once() -> None:
    for text in ("Too long.", "'system': Too long."):
        made = orjson.loads(DIALECT.error(400, text, field="system", code=None))
        assert made["error"]["message"].count("system") == 1

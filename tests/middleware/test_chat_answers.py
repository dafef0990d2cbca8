"""Chat Completions: which JSON answers are stored."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from openai_bodies import (
    RULES,
    ask,
    call,
    calling,
    choice,
    completion,
    message,
    record,
    refused,
)

from trivet.messages import Answer, Usage
from trivet.middleware.dialects.chat import ChatDialect

CHAT = ChatDialect()


def decoded(**fields: Any) -> Any:
    return CHAT.decode(ask(**fields), {})


def _said(text: Any, **fields: Any) -> dict[str, Any]:
    return completion(choice(message=message(text, **fields)))


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
        ({"prompt_tokens": 9, "completion_tokens": 3, "prompt_tokens_details": None}, Usage(9, 3)),
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
        (calling("call_0"), "invalid-tool-call"),  # type: ignore[arg-type]
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
    assert refused(CHAT.record(decoded(), body, RULES)) == "not-json"


def test_an_integer_that_cannot_be_written_again_is_not_stored() -> None:
    body = orjson.dumps(completion(x=0)).replace(b'"x":0', b'"x":18446744073709551616')
    assert refused(CHAT.record(decoded(), body, RULES)) == "unwritable"


@pytest.mark.parametrize(
    "fields",
    [{"error": {}}, {"error": "x"}, {"errors": ["x"]}, {"detail": "quota"}, {"type": "error"}],
)
def test_an_answer_that_says_it_failed_is_not_stored(fields: dict[str, Any]) -> None:
    assert refused(CHAT.record(decoded(), orjson.dumps(completion(**fields)), RULES)) == (
        "upstream-error"
    )


def test_fields_of_errors_that_are_empty_say_nothing() -> None:
    record(CHAT, decoded(), completion(error=None, errors=[], detail=None))


@pytest.mark.parametrize("reason", ["error", "ERROR"])
def test_a_choice_whose_provider_failed_is_not_stored(reason: str) -> None:
    value = completion(choice(native_finish_reason=reason))
    assert refused(CHAT.record(decoded(), orjson.dumps(value), RULES)) == "upstream-error"
    record(CHAT, decoded(), completion(choice(native_finish_reason="STOP", error=None)))


def test_a_message_of_another_role_is_not_stored() -> None:
    value = completion(choice(message=message(role="user")))
    assert refused(CHAT.record(decoded(), orjson.dumps(value), RULES)) == "wrong-object"


def test_an_answer_that_parsers_read_apart_is_not_stored() -> None:
    body = orjson.dumps(completion())
    evil = orjson.dumps([choice(message=message("evil"))])
    doubled = body[:-1] + b',"choices":%b}' % evil
    assert refused(CHAT.record(decoded(), doubled, RULES)) == "not-json"


def test_an_answer_with_very_many_ids_is_not_stored() -> None:
    """Each id is made anew on each hit."""
    calls = [call(number) for number in range(256)]
    assert len(record(CHAT, decoded(), calling(*calls[:255])).ids) == 256
    found = CHAT.record(decoded(), orjson.dumps(calling(*calls)), RULES)
    assert refused(found) == "too-many-ids"


def test_the_size_limit_counts_the_stored_bytes() -> None:
    size = len(orjson.dumps(completion()))
    spaced = orjson.dumps(completion(), option=orjson.OPT_INDENT_2)
    found = CHAT.record(decoded(), spaced, RULES._replace(max_entry=size))
    assert isinstance(found, Answer)
    assert found.ids
    found = CHAT.record(decoded(), spaced, RULES._replace(max_entry=size - 1))
    assert refused(found) == "too-large"


@pytest.mark.parametrize("finish", ["tool_calls", "stop"])
def test_tool_calls_are_stored_only_where_the_policy_says(finish: str) -> None:
    value = calling(call(), finish=finish)
    assert record(CHAT, decoded(), value).ids == ("chatcmpl-1", "call_0")
    found = CHAT.record(decoded(), orjson.dumps(value), RULES._replace(tool_calls=False))
    assert refused(found) == "tool-calls"


def test_a_legacy_function_call_is_a_tool_call() -> None:
    called = message(None, function_call={"name": "f", "arguments": "{}"})
    value = completion(choice(finish="function_call", message=called))
    record(CHAT, decoded(), value)
    found = CHAT.record(decoded(), orjson.dumps(value), RULES._replace(tool_calls=False))
    assert refused(found) == "tool-calls"


def test_refusals_are_stored_only_where_the_policy_says() -> None:
    value = _said(None, refusal="I can't.")
    record(CHAT, decoded(response_format={"type": "json_object"}), value)
    found = CHAT.record(decoded(), orjson.dumps(value), RULES._replace(refusals=False))
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

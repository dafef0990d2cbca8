"""Chat Completions: how a stream is recorded as the answer it amounts to."""

from __future__ import annotations

from typing import Any

import pytest
from openai_bodies import (
    DONE,
    ask,
    call,
    choice,
    chunk,
    completion,
    delta,
    follow,
    followed,
    hello,
    refused,
)

from trivet.middleware.dialects.chat import ChatDialect

CHAT = ChatDialect()


def decoded(**fields: Any) -> Any:
    return CHAT.decode(ask(**fields), {})


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
        ([*hello(), b'data: {"error":{"message":"x"}}\n\n'], "upstream-error"),
        ([*hello(), b"event: error\n\n"], "upstream-error"),
        ([*hello(), b"data: {}\n\n", b": bye\n\n", b"junk\n\n"], None),
        # An event that is named an error behind its data.
        ([*hello()[:4], b'data: {"message":"x"}\nevent: error\n\n', DONE], "upstream-error"),
        ([*hello()[:4], b"data: {}\revent: Error\r\r", DONE], "upstream-error"),
        ([*hello()[:4], b"event: server_error\n\n", DONE], "upstream-error"),
        ([*hello()[:4], b'data: {"object":"error","code":500}\n\n', DONE], "upstream-error"),
        ([*hello()[:4], b'{"error":{"message":"x"}}\n\n', DONE], "malformed-stream"),
        ([b"\xef\xbb\xbf" + hello()[0], *hello()[1:]], "malformed-stream"),
        ([*hello()[:4], b'data: {"message":"boom"}\n\n', DONE], "wrong-object"),
        ([*hello()[:4], b'data: {"errors":["x"]}\n\n', DONE], "upstream-error"),
        ([*hello()[:4], b'data: {"detail":"x"}\n\n', DONE], "upstream-error"),
        ([*hello()[:4], b"data: [DONE] but failed\n\n"], "not-json"),
        ([*hello()[:4], chunk(delta(content="More")), DONE], "bad-stream"),
        ([*hello()[:4], chunk(delta(tool_calls=[{"index": 0}])), DONE], "bad-stream"),
        ([*hello()[:4], chunk(delta(role="assistant", content="")), DONE], None),
        ([*hello()[:4], chunk({"index": 0, "logprobs": {"content": [1]}}), DONE], "bad-stream"),
        ([hello()[0], chunk(delta(content="x"), id="chatcmpl-2"), *hello()[1:]], "bad-stream"),
        ([hello()[0], chunk(delta(content="x"), model="n"), *hello()[1:]], "bad-stream"),
        ([hello()[0], chunk(delta(content="x"), model="M-2026"), *hello()[1:]], None),
        ([hello()[0], chunk(delta(content="x"), id="CHATCMPL-1"), *hello()[1:]], "bad-stream"),
        ([hello()[0], chunk(delta(content="x"), created=2), *hello()[1:]], None),
        ([*hello()[:3], chunk({**delta(), "native_finish_reason": "error"})], "upstream-error"),
        ([chunk(delta(role="user", content="x")), *hello()[1:]], "wrong-object"),
        ([chunk(delta(role="user", content="x")), *hello()], "bad-stream"),
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


@pytest.mark.parametrize("together", [True, False])
def test_a_stream_with_very_many_ids_is_not_followed_to_its_end(together: bool) -> None:
    calls = [{"index": number, **call(number)} for number in range(5000)]
    events = (
        [chunk(delta(tool_calls=calls))]
        if together
        else [chunk(delta(tool_calls=[one])) for one in calls]
    )
    recorder = CHAT.recorder(decoded())
    for event in events:
        recorder.feed(event)
    assert len(recorder.ids) == 257
    found = follow(CHAT, decoded(), [*events, chunk(delta(0, "tool_calls")), DONE])
    assert refused(found) == "too-many-ids"


def test_a_follower_gets_no_field_of_the_callers_whom_it_follows() -> None:
    led = chunk(delta(content='"metadata":'), metadata={"user": "ann"}, kv_transfer_params={})
    assert CHAT.follow(led, decoded()) == chunk(delta(content='"metadata":'))
    spaced = b'data: {"choices" : [], "metadata" : {"user": "ann"}, "x": "\\ud800"}\n\n'
    assert CHAT.follow(spaced, decoded()) == b'data: {"choices":[],"x":"\\ud800"}\n\n'


def test_other_events_are_followed_as_they_are() -> None:
    broken = b'data: {"metadata":\n\n'
    deep = b'data: {"metadata":1,"x":' + b"[" * 900 + b"]" * 900 + b"}\n\n"
    for event in (*hello(), chunk(delta(content='"metadata": 1')), b": ping\n\n", broken, deep):
        assert CHAT.follow(event, decoded()) is event


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

"""A stored OpenAI answer survives any way through JSON and streams, and garbage raises nothing."""

from __future__ import annotations

from typing import Any

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from trivet.messages import Answer, NotStored
from trivet.middleware.dialects.base import StoreRules
from trivet.middleware.dialects.chat import ChatDialect
from trivet.middleware.dialects.completions import CompletionsDialect
from trivet.middleware.dialects.sse import Splitter, split

CHAT, COMPLETIONS = ChatDialect(), CompletionsDialect()
RULES = StoreRules(tool_calls=True, refusals=True, max_entry=1 << 24)

TRICKY = [
    "data: [DONE]\n\n",
    "\u2028",
    "\u0085",
    "\r\n",
    "👩‍👩‍👧‍👦",
    '"id":"chatcmpl-1"',
    "\x00",
    "word ",
]
TEXT = st.lists(st.sampled_from(TRICKY) | st.text(max_size=40), min_size=1, max_size=30).map(
    lambda parts: "x" + "".join(parts)
)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(-1e9, 1e9)
    | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)
ARGUMENTS = st.dictionaries(st.text(max_size=9), JSON, max_size=4).map(
    lambda value: orjson.dumps(value).decode()
)


def calls(count: int) -> st.SearchStrategy[list[dict[str, Any]]]:
    function = st.fixed_dictionaries({"name": st.just("f"), "arguments": ARGUMENTS})
    custom = st.fixed_dictionaries({"name": st.just("g"), "input": st.text(max_size=200)})
    one = st.fixed_dictionaries({"type": st.just("function"), "function": function}) | (
        st.fixed_dictionaries({"type": st.just("custom"), "custom": custom})
    )
    return st.lists(one, min_size=1, max_size=count).map(
        lambda made: [{"id": f"call_{place}", **call} for place, call in enumerate(made)]
    )


@st.composite
def choices(draw: st.DrawFn, index: int) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": draw(TEXT)}
    finish, logprobs = "stop", None
    kind = draw(st.sampled_from(["text", "tokens", "calls", "refusal", "function"]))
    if kind == "tokens":
        tokens = [{"token": one, "logprob": -0.25, "bytes": None} for one in message["content"]]
        logprobs = {"content": tokens, "refusal": None}
    if kind == "calls":
        finish = draw(st.sampled_from(["tool_calls", "stop"]))
        message |= {"content": draw(st.none() | TEXT), "tool_calls": draw(calls(3))}
    if kind == "refusal":
        message |= {"content": None, "refusal": draw(TEXT)}
    if kind == "function":
        finish = "function_call"
        message |= {"content": None, "function_call": {"name": "f", "arguments": draw(ARGUMENTS)}}
    message |= draw(
        st.fixed_dictionaries(
            {},
            optional={
                "reasoning_content": TEXT,
                "reasoning_details": st.just(
                    [{"index": 0, "type": "t", "format": "v1", "text": "a"}]
                ),
                "annotations": st.just([{"type": "url_citation", "url_citation": {"url": "u"}}]),
                "provider": st.dictionaries(st.text("abc", max_size=5), JSON, max_size=2),
            },
        )
    )
    made = {"index": index, "message": message, "logprobs": logprobs, "finish_reason": finish}
    return made | draw(st.fixed_dictionaries({}, optional={"stop_reason": st.none() | st.text()}))


@st.composite
def completions(draw: st.DrawFn) -> dict[str, Any]:
    count = draw(st.integers(1, 3))
    made: dict[str, Any] = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 5,
        "model": "m",
    }
    made["choices"] = [draw(choices(index)) for index in range(count)]
    usage = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3, "x": {"y": [None, 1.5]}}
    optional = {"usage": st.just(usage), "system_fingerprint": st.none() | st.just("fp")}
    return made | draw(
        st.fixed_dictionaries({}, optional={**optional, "citations": st.just(["u"])})
    )


def asked(n: int, **fields: Any) -> Any:
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "n": n, **fields}
    return CHAT.decode(orjson.dumps(body), {})


def through_stream(answer: Answer, request: Any, size: int) -> Answer | NotStored:
    stream, splitter = CHAT.render_stream(answer, request), Splitter()
    recorder = CHAT.recorder(request)
    for start in range(0, len(stream), size):
        for event in splitter.push(stream[start : start + size]):
            recorder.feed(event)
    return recorder.finish(RULES)


def chunks(answer: Answer, request: Any) -> list[Any]:
    return [orjson.loads(event[6:]) for event in split(CHAT.render_stream(answer, request))[:-1]]


@settings(deadline=None)
@given(completions(), st.integers(1, 5000))
def test_a_stream_of_an_answer_is_recorded_as_the_answer(value: Any, size: int) -> None:
    request = asked(len(value["choices"]), stream=True, stream_options={"include_usage": True})
    answer = CHAT.record(request, orjson.dumps(value), RULES)
    assert isinstance(answer, Answer), answer
    again = through_stream(answer, request, size)
    assert isinstance(again, Answer), again
    assert orjson.loads(again.body) == value
    assert (again.usage, again.ids) == (answer.usage, answer.ids)
    assert chunks(again, request) == chunks(answer, request)


@settings(deadline=None)
@given(completions(), st.data())
def test_a_stream_that_misses_any_of_its_events_is_not_taken_for_another_answer(
    value: Any, data: st.DataObject
) -> None:
    request = asked(len(value["choices"]), stream=True)
    answer = CHAT.record(request, orjson.dumps(value), RULES)
    assert isinstance(answer, Answer)
    events = split(CHAT.render_stream(answer, request))
    cut = data.draw(st.integers(0, len(events) - 1))
    recorder = CHAT.recorder(request)
    for event in events[:cut]:
        recorder.feed(event)
    assert recorder.finish(RULES) == NotStored("no-done")


VALUES = JSON | st.sampled_from([{"index": 0}, [{"index": 0, "id": "a"}], {"content": 5}, [[]], {}])
NAMES = st.sampled_from(
    [
        "id",
        "object",
        "choices",
        "usage",
        "error",
        "delta",
        "index",
        "finish_reason",
        "logprobs",
        "text",
        "model",
    ]
)
CHUNKS = st.dictionaries(
    NAMES,
    VALUES | st.lists(st.dictionaries(NAMES, VALUES, max_size=4), max_size=2),
    max_size=5,
).map(lambda value: {"object": "chat.completion.chunk", **value})


@settings(deadline=None, max_examples=400)
@given(st.lists(CHUNKS.map(orjson.dumps) | st.binary(max_size=30), max_size=6))
def test_garbage_ends_as_not_stored_or_as_an_answer_and_never_raises(parts: list[bytes]) -> None:
    for dialect, kind in ((CHAT, b"chat.completion.chunk"), (COMPLETIONS, b"text_completion")):
        request = asked(1)
        recorder = dialect.recorder(request)
        for part in parts:
            event = b"data: %b\n\n" % part.replace(b"chat.completion.chunk", kind)
            recorder.feed(event)
            recorder.is_usage_only(event)
        recorder.feed(b"data: [DONE]\n\n")
        assert isinstance(recorder.finish(RULES), Answer | NotStored)


@settings(deadline=None, max_examples=400)
@given(CHUNKS, st.integers(1, 2))
def test_a_garbage_body_never_raises(value: Any, n: int) -> None:
    for dialect, kind in ((CHAT, "chat.completion"), (COMPLETIONS, "text_completion")):
        body = orjson.dumps({**value, "object": kind})
        assert isinstance(dialect.record(asked(n), body, RULES), Answer | NotStored)

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from trivet.messages import Usage
from trivet.middleware.prefix_tier.answer_ends import members_of_head, members_of_tail
from trivet.middleware.prefix_tier.usage_tap import Told, UsageTap

FORGED = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
TRUE = {"prompt_tokens": 20, "completion_tokens": 5, "total_tokens": 25}

VALUES = st.recursive(
    st.none() | st.text() | st.integers(0, 9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=20,
)


def tapped(value: Any, media_type: str = "application/json") -> Told:
    tap = UsageTap(media_type)
    text = json.dumps(value).encode()
    tap.take(text if media_type == "application/json" else b"data: " + text + b"\n\n")
    return tap.told()


def test_a_tool_call_s_arguments_are_not_taken_for_usage_or_model() -> None:
    called = {"toolUse": {"input": {"usage": FORGED, "model": "forged"}}}
    pad = "w" * 70_000
    message = {"content": [called, {"text": pad}, called]}
    body = {"output": {"message": message}, "usage": {"inputTokens": 20, "outputTokens": 5}}
    assert tapped(body) == Told(Usage(20, 5), "")
    assert tapped({"output": {"message": message}}) == Told(None, "")


def test_a_short_answer_s_tool_call_names_no_model() -> None:
    called = {"functionCall": {"args": {"model": "forged", "modelVersion": "forged"}}}
    answer = {"candidates": [{"content": {"parts": [called]}}], "modelVersion": "gemini-3"}
    assert tapped(answer).model == "gemini-3"
    assert tapped({"candidates": [called]}).model == ""


def test_tools_that_a_large_last_event_repeats_are_not_taken_for_usage() -> None:
    response = {
        "model": "m",
        "output": ["y" * 200_000],
        "usage": {"input_tokens": 30, "output_tokens": 4, "total_tokens": 34},
        "tools": [{"parameters": {"usage": FORGED, "input_tokens": 1}}],
    }
    told = tapped({"type": "response.completed", "response": response}, "text/event-stream")
    assert told.usage == Usage(30, 4)


def test_what_the_end_says_of_nought_counts() -> None:
    pad = "w" * 70_000
    cached = {**TRUE, "prompt_tokens_details": {"cached_tokens": 9}}
    body = {"usage": cached, "choices": [pad]}
    assert tapped(body).usage == Usage(20, 5, 9)
    none = {**TRUE, "prompt_tokens_details": {"cached_tokens": 0}}
    text = json.dumps(body)[:-1] + ',"usage":' + json.dumps(none) + "}"
    tap = UsageTap("application/json")
    tap.take(text.encode())
    assert tap.told().usage == Usage(20, 5, 0)


@given(VALUES, VALUES, st.integers(0, 400))
def test_the_end_tells_a_member_s_depth_wherever_it_is_cut(
    before: Any, after: Any, cut: int
) -> None:
    value = {"a": [before, {"usage": FORGED}], "usage": TRUE, "z": [after, {"usage": FORGED}]}
    text = json.dumps(value).encode()
    kept = min(cut, text.index(b'"usage": {"prompt_tokens": 20'))
    assert members_of_tail(text[kept:]) == {"usage": TRUE}
    assert members_of_head(text) == {"usage": TRUE}


@given(st.binary(max_size=300) | st.text(alphabet='{}[]":\\,ausge').map(str.encode))
def test_no_text_makes_it_fail(text: bytes) -> None:
    assert isinstance(members_of_head(text), dict)
    assert isinstance(members_of_tail(text), dict)

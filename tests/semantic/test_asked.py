"""Law 4: the last user text is compared, and everything else has to be equal."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trivet.messages import Api
from trivet.semantic.asked import LONGEST, Asked, read_asked


def chat(*messages: Any, **more: Any) -> bytes:
    return orjson.dumps({"model": "m", **more, "messages": list(messages)})


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


SYSTEM = {"role": "system", "content": "Be kind."}


def asked(api: Api, request: bytes) -> Asked:
    found = read_asked(api, request)
    assert isinstance(found, Asked)
    return found


def test_requests_that_differ_in_the_last_text_alone_have_an_equal_rest() -> None:
    one = asked(Api.CHAT, chat(SYSTEM, user("how are you")))
    other = asked(Api.CHAT, chat(SYSTEM, user("how do you do")))
    assert (one.text, other.text) == ("how are you", "how do you do")
    assert one.rest == other.rest


@pytest.mark.parametrize(
    "other",
    [
        chat({"role": "system", "content": "Be rude."}, user("hi")),
        chat(user("hi")),
        chat(SYSTEM, user("hi"), temperature=0.5),
        chat(SYSTEM, user("hi"), response_format={"type": "json_object"}),
        chat(SYSTEM, user("hi"), tools=[{"type": "function", "function": {"name": "f"}}]),
        chat(SYSTEM, user("hi"), unknown=1),
        chat(SYSTEM, user("before"), {"role": "assistant", "content": "yes"}, user("hi")),
        chat(SYSTEM, user([{"type": "text", "text": "hi"}])),
        chat(SYSTEM, {"role": "user", "content": "hi", "name": "bob"}),
        orjson.dumps({"model": "other", "messages": [SYSTEM, user("hi")]}),
    ],
)
def test_whatever_else_differs_makes_another_rest(other: bytes) -> None:
    assert asked(Api.CHAT, other).rest != asked(Api.CHAT, chat(SYSTEM, user("hi"))).rest


@given(st.text(min_size=1), st.text(min_size=1))
def test_no_text_can_pass_for_the_rest(one: str, other: str) -> None:
    first, second = (read_asked(Api.CHAT, chat(SYSTEM, user(text))) for text in (one, other))
    for text, found in ((one, first), (other, second)):
        assert isinstance(found, Asked) == bool(text.strip() and len(text) <= LONGEST)
    if isinstance(first, Asked) and isinstance(second, Asked):
        assert first.rest == second.rest
        assert first.text == one


def test_user_messages_are_counted() -> None:
    said = {"role": "assistant", "content": "yes"}
    assert asked(Api.CHAT, chat(user("a"), said, user("b"))).turns == 2


@pytest.mark.parametrize(
    ("reason", "request_body"),
    [
        ("multi-part", chat(user([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]))),
        ("multi-part", chat(user([{"type": "image_url", "image_url": {"url": "data:x"}}]))),
        ("multi-part", chat(user(None))),
        ("multi-part", chat(user([]))),
        ("not-a-question", chat(user("a"), {"role": "assistant", "content": "b"})),
        ("not-a-question", chat(user("a"), {"role": "tool", "content": "b", "tool_call_id": "1"})),
        ("not-a-question", orjson.dumps({"model": "m", "messages": []})),
        ("not-a-question", orjson.dumps({"model": "m", "messages": ["x"]})),
        ("empty", chat(user(" \n"))),
        ("too-long", chat(user("x" * (LONGEST + 1)))),
        ("unreadable", b"\x00{}"),
    ],
)
def test_what_is_not_one_user_text_at_the_end_is_not_looked_up(
    reason: str, request_body: bytes
) -> None:
    assert read_asked(Api.CHAT, request_body) == reason


@pytest.mark.parametrize("api", [Api.EMBEDDINGS, Api.COMPLETIONS])
def test_apis_without_user_messages_are_not_looked_up(api: Api) -> None:
    assert read_asked(api, orjson.dumps({"model": "m", "input": "x", "prompt": "x"})) == "api"


def test_messages_are_read_with_their_text_block() -> None:
    body = orjson.dumps(
        {"model": "m", "system": "s", "messages": [user([{"type": "text", "text": "hi"}])]}
    )
    assert asked(Api.MESSAGES, body).text == "hi"


def test_responses_are_read_in_both_forms_and_kept_apart() -> None:
    short = asked(Api.RESPONSES, orjson.dumps({"model": "m", "input": "hi"}))
    item = {"role": "user", "content": [{"type": "input_text", "text": "hi"}]}
    long = asked(Api.RESPONSES, orjson.dumps({"model": "m", "input": [item]}))
    assert short.text == long.text == "hi"
    assert short.rest != long.rest


def test_a_tool_result_of_responses_is_not_a_question() -> None:
    item = {"type": "function_call_output", "call_id": "c", "output": "x"}
    body = orjson.dumps({"model": "m", "input": [item]})
    assert read_asked(Api.RESPONSES, body) == "not-a-question"

"""A conversation with replayed call ids asks the same question as the original one."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from trivet.exact.tool_ids import mint
from trivet.middleware.dialects.call_ids import (
    Places,
    in_chat,
    in_messages,
    in_responses,
    with_original_ids,
)

NONCE = b"n" * 8


def chat(call_id: str) -> list[dict[str, Any]]:
    return [
        {"role": "user", "content": call_id},
        {"role": "assistant", "tool_calls": [{"id": call_id, "function": {"arguments": call_id}}]},
        {"role": "tool", "tool_call_id": call_id, "content": call_id},
    ]


def messages(call_id: str) -> list[dict[str, Any]]:
    block = {"type": "tool_use", "id": call_id, "input": {"id": call_id}}
    return [
        {"role": "assistant", "content": [{"type": "text", "text": call_id}, block]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call_id}]},
    ]


def responses(call_id: str) -> list[dict[str, Any]]:
    return [
        {"type": "function_call", "call_id": call_id, "id": call_id, "arguments": call_id},
        {"type": "function_call_output", "call_id": call_id, "output": call_id},
    ]


CASES = [(chat, in_chat), (messages, in_messages), (responses, in_responses)]


def ids(items: list[dict[str, Any]], places: Places) -> list[Any]:
    return [holder.get(field) for item in items for holder, field in places(item)]


@pytest.mark.parametrize(("make", "places"), CASES)
def test_minted_ids_become_their_originals_where_the_api_has_ids(make: Any, places: Places) -> None:
    minted = mint("call_123", NONCE)
    given = make(minted)
    before = copy.deepcopy(given)
    restored = with_original_ids(given, places)
    assert [one for one in ids(restored, places) if one] == ["call_123"] * 2
    assert given == before


def test_text_and_tool_input_are_never_touched() -> None:
    minted = mint("call_123", NONCE)
    user, assistant, tool = with_original_ids(chat(minted), in_chat)
    assert user["content"] == tool["content"] == minted
    assert assistant["tool_calls"][0]["function"] == {"arguments": minted}
    said = with_original_ids(messages(minted), in_messages)[0]["content"]
    assert (said[0]["text"], said[1]["input"]) == (minted, {"id": minted})
    made, output = with_original_ids(responses(minted), in_responses)
    assert (made["id"], made["arguments"], output["output"]) == (minted, minted, minted)


@pytest.mark.parametrize(("make", "places"), CASES)
def test_without_minted_ids_nothing_is_copied(make: Any, places: Places) -> None:
    given = make("call_123")
    assert with_original_ids(given, places) is given


def test_two_ids_of_one_request_never_become_one() -> None:
    one, two = mint("call_123", NONCE), mint("call_123", b"m" * 8)
    assert one != two
    restored = with_original_ids([*responses(one), *responses(two)], in_responses)
    assert len(set(ids(restored, in_responses))) == 2


@pytest.mark.parametrize(
    "odd",
    [
        {"role": "tool", "tool_call_id": 7},
        {"role": "assistant", "tool_calls": "x"},
        {"role": "assistant", "tool_calls": ["x", {"id": None}]},
        {"content": "text"},
        {"content": [7, {"type": "tool_use"}, {"type": "tool_result", "tool_use_id": []}]},
    ],
)
@pytest.mark.parametrize("places", [in_chat, in_messages, in_responses])
def test_what_has_another_shape_stays_as_it_is(odd: dict[str, Any], places: Places) -> None:
    minted = {"call_id": mint("call_123", NONCE), "tool_call_id": mint("call_123", NONCE)}
    restored = with_original_ids([odd, minted], places)
    assert restored[0] == odd

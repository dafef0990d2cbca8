import json
from typing import Any

import pytest

from trivet.messages import Api
from trivet.prefix.prompts.extent import MOST_CONTAINERS, MOST_PARTS, brief, crowded, crowded_text
from trivet.prefix.prompts.native_outline import native_outline
from trivet.prefix.prompts.outline import NativeApi, outline_of


def turn(blocks: list[Any], **body: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": blocks}], **body}


@pytest.mark.parametrize("block", [{}, 0, "x", {"type": "text", "text": "a"}])
def test_a_prompt_of_more_parts_than_are_looked_at_is_crowded(block: Any) -> None:
    assert crowded(turn([block] * MOST_PARTS))
    assert not crowded(turn([block] * (MOST_PARTS - 1)))


def test_pieces_within_a_tool_result_count_too() -> None:
    assert crowded(turn([{"type": "tool_result", "content": [{}] * MOST_PARTS}]))


def test_a_long_agent_loop_is_not_crowded() -> None:
    step = {"role": "user", "content": [{"type": "text", "text": "one, two, three"}]}
    assert not crowded({"tools": [{"name": "t"}] * 100, "messages": [step] * 1900})


@pytest.mark.parametrize("names", [("contents", "parts"), ("messages", "content")])
def test_native_prompts_are_counted_like_others(names: tuple[str, str]) -> None:
    turns, blocks = names
    assert crowded({turns: [{"role": "user", blocks: [{}] * MOST_PARTS}]})


def test_an_event_loop_works_on_short_bodies_of_few_pieces_only() -> None:
    assert brief(b'{"messages":["' + b"a" * 100_000 + b'"]}')
    assert not brief(b"[" + b"0," * 2000 + b"0]")
    assert not brief(b" " * (1 << 17))


def test_a_text_of_too_many_containers_is_told_without_reading_it() -> None:
    assert crowded_text(b"[]" * (MOST_CONTAINERS + 1))
    assert not crowded_text(b"[]" * MOST_CONTAINERS)


def test_an_outline_ends_where_it_is_told_to() -> None:
    body = turn([{"type": "text", "text": str(one)} for one in range(9)])
    whole = outline_of(Api.MESSAGES, body)
    cut = outline_of(Api.MESSAGES, body, 4)
    assert (cut.parts, cut.cut, whole.cut) == (whole.parts[:4], True, False)
    assert not outline_of(Api.MESSAGES, body, 9).cut


@pytest.mark.parametrize("api", list(NativeApi))
def test_a_native_outline_ends_where_it_is_told_to(api: NativeApi) -> None:
    blocks = [{"text": str(one)} for one in range(9)]
    body = json.loads(json.dumps(turn(blocks)))
    body["contents"] = [{"role": "user", "parts": blocks}]
    whole, cut = native_outline(api, "m", body), native_outline(api, "m", body, 4)
    assert (cut.parts, cut.cut, whole.cut) == (whole.parts[:4], True, False)

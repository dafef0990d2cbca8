"""Where two prompts part: the level, the part, the member and the character."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trivet.messages import Api
from trivet.prefix.doctor.layout import common_length, common_prefix, reading, same
from trivet.prefix.prompts.outline import Level, chain, outline_of

BODY: dict[str, Any] = {
    "model": "claude-sonnet-5",
    "tools": [{"name": "a", "description": "Does it.", "input_schema": {"x": 1, "y": [1, 2]}}],
    "system": [{"type": "text", "text": "You help people."}, {"type": "text", "text": "Be kind."}],
    "messages": [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": [{"type": "text", "text": "two"}]},
        {"role": "user", "content": "three"},
    ],
}


def changed(place: tuple[str | int, ...], value: Any) -> dict[str, Any]:
    body = copy.deepcopy(BODY)
    at: Any = body
    for step in place[:-1]:
        at = at[step]
    at[place[-1]] = value
    return body


def parting(body: dict[str, Any], old: dict[str, Any] = BODY) -> Any:
    return common_prefix(outline_of(Api.MESSAGES, old), outline_of(Api.MESSAGES, body))


@pytest.mark.parametrize(
    ("place", "value", "level", "char"),
    [
        (("tools", 0, "description"), "Does that.", Level.TOOLS, 5),
        (("tools", 0, "input_schema", "y", 1), 3, Level.TOOLS, 0),
        (("system", 1, "text"), "Be kinder.", Level.SYSTEM, 7),
        (("messages", 1, "content", 0, "text"), "too", Level.MESSAGES, 1),
        (("messages", 2, "content"), "thirty", Level.MESSAGES, 2),
    ],
)
def test_the_place_goes_down_to_the_member_and_the_character(
    place: tuple[str | int, ...], value: Any, level: Level, char: int
) -> None:
    found = parting(changed(place, value))
    assert (found.level, found.place, found.char) == (level, place, char)


@pytest.mark.parametrize(
    ("name", "value", "level", "parts"),
    [
        ("model", "claude-opus-5", Level.TOOLS, 0),
        ("speed", "fast", Level.SYSTEM, 1),
        ("thinking", {"type": "enabled"}, Level.MESSAGES, 3),
    ],
)
def test_a_setting_parts_them_at_its_level(name: str, value: Any, level: Level, parts: int) -> None:
    found = parting({**BODY, name: value})
    assert (found.level, found.place, found.shared_parts) == (level, (name,), parts)


def test_a_prompt_that_goes_on_does_not_part() -> None:
    body = copy.deepcopy(BODY)
    body["messages"].append({"role": "assistant", "content": "four"})
    assert parting(body) is None
    assert parting(BODY, old=body) is None
    assert parting(BODY) is None


def test_a_string_and_a_block_with_that_text_are_one() -> None:
    body = changed(("messages", 0, "content"), [{"type": "text", "text": "one"}])
    assert parting(body) is None


def test_a_part_more_in_the_middle_is_where_they_part() -> None:
    body = copy.deepcopy(BODY)
    body["system"].append({"type": "text", "text": "Be brief."})
    found = parting(body)
    assert (found.what, found.place) == ("more", ("system", 2))
    back = parting(BODY, old=body)
    assert (back.what, back.place) == ("fewer", ("system", 2))


def test_keys_in_another_order_part_at_the_first_key_that_differs() -> None:
    found = parting(changed(("tools", 0, "input_schema"), {"y": [1, 2], "x": 1}))
    assert found.place == ("tools", 0, "input_schema", "y")


def test_tokens_before_the_place_are_shared() -> None:
    long = {**BODY, "system": "x" * 4_000 + "a"}
    found = parting({**BODY, "system": "x" * 4_000 + "b"}, old=long)
    before = outline_of(Api.MESSAGES, long).parts[0].tokens
    assert found.shared_tokens == before + 1_000


def test_a_text_without_a_utf8_form_is_read() -> None:
    lone = json.loads('"\\ud83d there"')
    found = parting(changed(("messages", 0, "content"), lone))
    assert found.place == ("messages", 0, "content")
    part = outline_of(Api.MESSAGES, changed(("messages", 0, "content"), lone)).parts[3]
    assert reading(part).text == lone


TEXTS = st.text(st.sampled_from("ab 1é😀"), max_size=12)
MESSAGES = st.lists(TEXTS, max_size=5)


@given(MESSAGES, MESSAGES, TEXTS, TEXTS)
def test_what_it_shares_is_what_the_chain_shares(
    one: list[str], other: list[str], first: str, second: str
) -> None:
    def body(system: str, texts: list[str]) -> dict[str, Any]:
        return {"system": system, "messages": [{"role": "user", "content": t} for t in texts]}

    a, b = (outline_of(Api.MESSAGES, body(*given)) for given in ((first, one), (second, other)))
    found = common_prefix(a, b)
    equal = 0
    for x, y in zip(chain(a), chain(b), strict=False):
        if x != y:
            break
        equal += 1
    assert (min(len(a.parts), len(b.parts)) if found is None else found.shared_parts) == equal
    assert found is None or not same(a.parts[equal], b.parts[equal])


@given(st.text(), st.text(), st.text())
def test_the_common_length_is_the_longest(head: str, one: str, other: str) -> None:
    length = common_length(head + one, head + other)
    assert length >= len(head)
    assert (head + one)[:length] == (head + other)[:length]
    assert (head + one)[length : length + 1] != (head + other)[length : length + 1] or not (
        (head + one)[length:] and (head + other)[length:]
    )

"""Repairs: what they change, and that nothing else changes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from trivet.messages import Api
from trivet.policies.prefix_model import PrefixRepairs
from trivet.prefix.prompts.repairs import active, difference, repair

ALL = PrefixRepairs(sort_tools=True, tool_json=True, move_lines=(r"Current time: .*",))
SYSTEM = "You help.\nCurrent time: 15:09\nBe kind."


def text(value: Any) -> bytes:
    return json.dumps(value, indent=1).encode()


def test_nothing_is_asked_for_by_default() -> None:
    assert not active(PrefixRepairs())
    assert active(PrefixRepairs(sort_tools=True))


def test_tools_are_sorted_by_name_and_their_bytes_alone_change() -> None:
    raw = text({"model": "m", "tools": [{"name": "b"}, {"name": "a"}], "messages": [1.0, "é"]})
    made = repair(Api.MESSAGES, raw, PrefixRepairs(sort_tools=True))
    assert json.loads(made.body)["tools"] == [{"name": "a"}, {"name": "b"}]
    head, tail = raw.split(b'"tools": ')[0], raw[raw.index(b',\n "messages"') :]
    assert made.body.startswith(head)
    assert made.body.endswith(tail)
    assert made.changes == ("tools: sorted by name (prefix.repair.sort_tools)",)


def test_functions_are_sorted_by_their_own_name() -> None:
    tools = [{"type": "function", "function": {"name": name}} for name in "cab"]
    made = repair(Api.CHAT, text({"tools": tools}), PrefixRepairs(sort_tools=True))
    assert [one["function"]["name"] for one in json.loads(made.body)["tools"]] == ["a", "b", "c"]


def test_a_breakpoint_stays_at_the_end_of_the_tools() -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    raw = text({"tools": [{"name": "b"}, {"name": "a", **mark}]})
    made = repair(Api.MESSAGES, raw, PrefixRepairs(sort_tools=True))
    assert json.loads(made.body)["tools"] == [{"name": "a"}, {"name": "b", **mark}]


def test_keys_of_tools_get_one_order_and_lists_keep_theirs() -> None:
    raw = text({"tools": [{"name": "a", "x": {"z": 1, "b": ["y", "x"]}}]})
    made = repair(Api.MESSAGES, raw, PrefixRepairs(tool_json=True))
    assert b'"tools": [{"name":"a","x":{"b":["y","x"],"z":1}}]' in made.body


@pytest.mark.parametrize(
    ("api", "body", "system", "newest"),
    [
        (
            Api.MESSAGES,
            {"system": SYSTEM, "messages": [{"role": "user", "content": "hi"}]},
            ("system",),
            ("messages", 0, "content"),
        ),
        (
            Api.MESSAGES,
            {
                "system": [{"type": "text", "text": SYSTEM}],
                "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}],
            },
            ("system", 0, "text"),
            ("messages", 0, "content", 0, "text"),
        ),
        (
            Api.CHAT,
            {
                "messages": [
                    {"role": "system", "content": SYSTEM},
                    {"role": "user", "content": "hi"},
                ]
            },
            ("messages", 0, "content"),
            ("messages", 1, "content"),
        ),
        (Api.RESPONSES, {"instructions": SYSTEM, "input": "hi"}, ("instructions",), ("input",)),
    ],
)
def test_a_line_goes_to_the_end_of_the_newest_user_message(
    api: Api, body: Any, system: tuple[Any, ...], newest: tuple[Any, ...]
) -> None:
    made = json.loads(repair(api, text(body), ALL).body)
    for place, expected in ((system, "You help.\nBe kind."), (newest, "hi\nCurrent time: 15:09")):
        found = made
        for step in place:
            found = found[step]
        assert found == expected


def test_a_line_with_no_message_to_go_to_stays() -> None:
    raw = text({"system": SYSTEM, "messages": [{"role": "assistant", "content": "hi"}]})
    assert repair(Api.MESSAGES, raw, ALL).body is raw


@pytest.mark.parametrize("raw", [b"", b"[1]", b"{", b'{"tools": 3}', b'{"tools": [1]}', b"null"])
def test_what_is_no_such_body_stays_the_same_object(raw: bytes) -> None:
    assert repair(Api.MESSAGES, raw, ALL).body is raw


def test_the_difference_shows_what_moved() -> None:
    raw = text({"system": SYSTEM, "messages": [{"role": "user", "content": "hi"}]})
    lines = difference(raw, repair(Api.MESSAGES, raw, ALL).body)
    assert [line for line in lines if line.startswith(("-  ", "+  "))] == [
        '-  "system": "You help.\\nCurrent time: 15:09\\nBe kind.",',
        '+  "system": "You help.\\nBe kind.",',
        '-      "content": "hi"',
        '+      "content": "hi\\nCurrent time: 15:09"',
    ]
    assert difference(raw, raw) == []


def test_a_pattern_that_is_no_regular_expression_is_refused() -> None:
    with pytest.raises(ValidationError, match="no regular expression"):
        PrefixRepairs(move_lines=("(",))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)
TOOLS = st.lists(
    st.fixed_dictionaries({"name": st.sampled_from("abc")}, optional={"x": JSON, "y": JSON}),
    max_size=4,
)
LINES = st.lists(st.sampled_from(["Current time: 1", "Help.", "", "Be kind."]), max_size=4)


@given(TOOLS, LINES, JSON)
def test_a_repaired_body_is_not_repaired_further(
    tools: list[Any], lines: list[str], other: Any
) -> None:
    given = {
        "metadata": other,
        "tools": tools,
        "system": "\n".join(lines),
        "messages": [{"role": "user", "content": "hi"}],
    }
    once = repair(Api.MESSAGES, text(given), ALL)
    assert repair(Api.MESSAGES, once.body, ALL).body is once.body
    made = json.loads(once.body)
    assert made["metadata"] == other
    assert sorted(map(json.dumps, map(_sorted, made["tools"]))) == sorted(
        map(json.dumps, map(_sorted, tools))
    )


def _sorted(value: Any) -> Any:
    return json.loads(json.dumps(value, sort_keys=True))

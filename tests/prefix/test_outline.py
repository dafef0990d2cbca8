"""The outline of a prompt: what its parts are, and which changes move its chain."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trivet.messages import Api
from trivet.prefix.prompts.outline import Level, Mark, Outline, chain, outline_of


def messages_body(**more: Any) -> dict[str, Any]:
    return {
        "model": "claude-sonnet-5",
        "tools": [
            {"name": "search", "description": "Finds pages.", "input_schema": {"type": "object"}},
            {"name": "read", "description": "Reads one.", "input_schema": {"type": "object"}},
        ],
        "system": [{"type": "text", "text": "You help."}],
        "messages": [
            {"role": "user", "content": "Find trivets."},
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "I look."},
                    {"type": "tool_use", "id": "t1", "name": "search", "input": {"q": "trivet"}},
                ],
            },
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1"}]},
        ],
        **more,
    }


def chat_body(**more: Any) -> dict[str, Any]:
    return {
        "model": "gpt-5.6",
        "messages": [
            {"role": "developer", "content": "You help."},
            {"role": "user", "content": [{"type": "text", "text": "Find trivets."}]},
            {"role": "assistant", "content": None, "tool_calls": [{"id": "c1"}]},
            {"role": "tool", "tool_call_id": "c1", "content": "Three found."},
        ],
        "tools": [{"type": "function", "function": {"name": "search"}}],
        **more,
    }


def shape(outline: Outline) -> list[tuple[str, tuple[str | int, ...], str, str]]:
    return [(part.level.value, part.place, part.kind, part.role) for part in outline.parts]


def same_prefix(a: Outline, b: Outline) -> int:
    """Parts at the start of both that a provider may share."""
    count = 0
    for one, other in zip(chain(a), chain(b), strict=False):
        if one != other:
            break
        count += 1
    return count


def test_a_messages_body_is_read_tools_first_then_system_then_messages() -> None:
    assert shape(outline_of(Api.MESSAGES, messages_body())) == [
        ("tools", ("tools", 0), "tool", ""),
        ("tools", ("tools", 1), "tool", ""),
        ("system", ("system", 0), "text", "system"),
        ("messages", ("messages", 0), "text", "user"),
        ("messages", ("messages", 1, "content", 0), "text", "assistant"),
        ("messages", ("messages", 1, "content", 1), "tool_use", "assistant"),
        ("messages", ("messages", 2, "content", 0), "tool_result", "user"),
    ]


def test_a_chat_body_has_its_leading_developer_messages_as_the_system_part() -> None:
    assert shape(outline_of(Api.CHAT, chat_body())) == [
        ("tools", ("tools", 0), "tool", ""),
        ("system", ("messages", 0), "text", "developer"),
        ("messages", ("messages", 1, "content", 0), "text", "user"),
        ("messages", ("messages", 2), "text", "assistant"),
        ("messages", ("messages", 3), "text", "tool"),
    ]


def test_a_system_message_in_the_middle_is_part_of_the_conversation() -> None:
    body = chat_body()
    body["messages"].append({"role": "system", "content": "Be brief."})
    assert outline_of(Api.CHAT, body).parts[-1].level is Level.MESSAGES


def test_a_responses_body_has_instructions_and_items() -> None:
    body = {
        "model": "gpt-5.6",
        "instructions": "You help.",
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "Find trivets."}]},
            {"type": "function_call", "call_id": "c1", "name": "search", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "Three found."},
        ],
    }
    assert shape(outline_of(Api.RESPONSES, body)) == [
        ("system", ("instructions",), "text", "system"),
        ("messages", ("input", 0, "content", 0), "text", "user"),
        ("messages", ("input", 1), "function_call", ""),
        ("messages", ("input", 2), "function_call_output", ""),
    ]


def test_a_string_input_is_one_part() -> None:
    outline = outline_of(Api.RESPONSES, {"model": "m", "input": "Find trivets."})
    assert shape(outline) == [("messages", ("input",), "text", "user")]


@pytest.mark.parametrize("ttl", ["", "5m", "1h"])
def test_a_mark_is_told_with_its_ttl_and_is_no_content(ttl: str) -> None:
    marker = {"type": "ephemeral", **({"ttl": ttl} if ttl else {})}
    marked = messages_body(system=[{"type": "text", "text": "You help.", "cache_control": marker}])
    plain, with_mark = (outline_of(Api.MESSAGES, body) for body in (messages_body(), marked))
    assert [part.mark for part in with_mark.parts if part.mark] == [Mark(ttl)]
    assert chain(plain) == chain(with_mark)


def test_the_automatic_mark_counts_as_one() -> None:
    outline = outline_of(Api.MESSAGES, messages_body(cache_control={"type": "ephemeral"}))
    assert outline.automatic == Mark("")
    assert outline.marks == 1


@pytest.mark.parametrize(
    ("change", "shared"),
    [
        ({"model": "claude-opus-5"}, 0),
        ({"speed": "fast"}, 2),
        ({"tool_choice": {"type": "any"}}, 3),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, 3),
        ({"max_tokens": 7}, 7),
        ({"metadata": {"user_id": "u"}}, 7),
    ],
)
def test_a_setting_moves_the_chain_from_its_level_on(change: dict[str, Any], shared: int) -> None:
    plain = outline_of(Api.MESSAGES, messages_body())
    changed = outline_of(Api.MESSAGES, messages_body(**change))
    assert same_prefix(plain, changed) == shared


@pytest.mark.parametrize("name", ["response_format", "reasoning_effort", "parallel_tool_calls"])
def test_a_setting_of_openai_moves_the_whole_chain(name: str) -> None:
    plain = outline_of(Api.CHAT, chat_body())
    assert same_prefix(plain, outline_of(Api.CHAT, chat_body(**{name: "x"}))) == 0


def test_the_role_of_a_message_is_in_the_chain() -> None:
    body = messages_body()
    other = copy.deepcopy(body)
    other["messages"][1]["role"] = "user"
    assert same_prefix(outline_of(Api.MESSAGES, body), outline_of(Api.MESSAGES, other)) == 4


def test_the_order_of_keys_in_a_tool_is_in_the_chain() -> None:
    body = messages_body()
    other = copy.deepcopy(body)
    other["tools"][1] = dict(reversed(other["tools"][1].items()))
    assert same_prefix(outline_of(Api.MESSAGES, body), outline_of(Api.MESSAGES, other)) == 1


def test_what_was_appended_leaves_the_chain_before_it_alone() -> None:
    body = messages_body()
    longer = copy.deepcopy(body)
    longer["messages"].append({"role": "assistant", "content": "Done."})
    short, long = outline_of(Api.MESSAGES, body), outline_of(Api.MESSAGES, longer)
    assert chain(long)[: len(short.parts)] == chain(short)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=8,
)


@given(
    st.sampled_from(sorted(Api)),
    st.dictionaries(
        st.sampled_from(
            ["model", "messages", "system", "tools", "input", "instructions", "prompt"]
        ),
        _JSON,
    ),
)
def test_no_body_is_too_odd_for_an_outline(api: Api, body: dict[str, Any]) -> None:
    outline = outline_of(api, body)
    assert len(chain(outline)) == len(outline.parts)
    assert all(part.tokens >= 1 for part in outline.parts)


@given(_JSON, _JSON)
def test_two_messages_share_a_chain_only_if_they_are_equal(one: Any, other: Any) -> None:
    def made(content: Any) -> Outline:
        body = {"model": "m", "messages": [{"role": "user", "content": content}]}
        return outline_of(Api.MESSAGES, body)

    if repr(one) != repr(other):
        assert chain(made(one)) != chain(made(other))


@pytest.mark.parametrize(
    "block",
    [
        {
            "type": "tool_result",
            "tool_use_id": "t",
            "content": [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}],
        },
        {
            "type": "document",
            "source": {
                "type": "content",
                "content": [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}],
            },
        },
    ],
)
def test_a_mark_within_a_block_is_the_callers_own(block: dict[str, Any]) -> None:
    body = messages_body(messages=[{"role": "user", "content": [block]}])
    assert outline_of(Api.MESSAGES, body).marks == 1


def test_what_a_tool_is_called_with_is_no_mark() -> None:
    call = {"type": "tool_use", "id": "t", "name": "n", "input": {"cache_control": {"ttl": "1h"}}}
    body = messages_body(messages=[{"role": "assistant", "content": [call]}])
    assert outline_of(Api.MESSAGES, body).marks == 0


@pytest.mark.parametrize("kind", ["my secret", "\ud83d", 7, None])
def test_a_type_of_the_callers_own_is_shown_as_other(kind: Any) -> None:
    body = messages_body(messages=[{"role": "user", "content": [{"type": kind, "text": "x"}]}])
    outline = outline_of(Api.MESSAGES, body)
    assert outline.parts[-1].kind == "other"
    assert len(chain(outline)) == len(outline.parts)

"""Deltas merge as the official SDK merges them, and contradictions are noticed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.lib.streaming._deltas import accumulate_delta

from trivet.middleware.dialects.deltas import DeltaError, merge, settle
from trivet.middleware.dialects.pieces import token_pieces


def merged(*deltas: Any) -> Any:
    held: dict[str, Any] = {}
    for one in deltas:
        merge(held, one)
    return settle(held)


CALL = st.fixed_dictionaries(
    {"index": st.integers(0, 2)},
    optional={"function": st.fixed_dictionaries({"arguments": st.text()})},
)
DELTAS = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "content": st.none() | st.text(),
            "reasoning": st.none() | st.text(),
            "tool_calls": st.lists(CALL, min_size=1, max_size=3),
            "count": st.integers(0, 9),
            "tags": st.lists(st.text(), min_size=1),
            "audio": st.fixed_dictionaries({}, optional={"data": st.text(), "at": st.integers()}),
        },
    ),
    max_size=8,
)


@given(DELTAS)
def test_what_the_sdk_accumulates_is_what_is_merged(deltas: list[dict[str, Any]]) -> None:
    # The SDK places an entry at the end of its list when entries before it are missing.
    opening = {"tool_calls": [{"index": index} for index in range(3)]}
    theirs: dict[object, object] = {}
    for one in (opening, *deltas):
        theirs = accumulate_delta(theirs, _copy(one))
    assert merged(opening, *map(_copy, deltas)) == theirs


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    ("deltas", "result"),
    [
        (({"a": None}, {"a": "x"}, {"a": None}), {"a": "x"}),
        (({"a": {"b": "x"}}, {"a": {"b": "y"}}), {"a": {"b": "xy"}}),
        (({"a": 1}, {"a": 0.5}), {"a": 1.5}),
        (({"a": True}, {"a": True}), {"a": True}),
        (({"a": True}, {"a": 5}), {"a": 5}),
        (({"id": "x"}, {"id": ""}, {"id": "x"}), {"id": "x"}),
        (({"id": ""}, {"id": "x"}), {"id": "x"}),
        (({"type": "a"}, {"type": "b"}), {"type": "b"}),
        (({"name": "get_"}, {"name": "it"}), {"name": "get_it"}),
        (({"name": "get"}, {"name": "get"}), {"name": "get"}),
        (({"a": []}, {"a": [{"index": 0}]}), {"a": [{"index": 0}]}),
        (({"a": [{"index": 1}]}, {"a": [{"index": 0}]}), {"a": [{"index": 0}, {"index": 1}]}),
        (({"a": [{"b": 1}]}, {"a": [{"b": 1}]}), {"a": [{"b": 1}, {"b": 1}]}),
    ],
)
def test_deltas_merge(deltas: Any, result: Any) -> None:
    assert merged(*deltas) == result


@pytest.mark.parametrize(
    "deltas",
    [
        ({"a": "x"}, {"a": {"b": 1}}),
        ({"a": "x"}, {"a": 1}),
        ({"a": "x"}, {"a": []}),
        ({"a": 1}, {"a": "x"}),
        ({"a": {}}, {"a": [1]}),
        ({"a": [1]}, {"a": "x"}),
        ({"a": [1]}, {"a": [{"index": 0}]}),
        ({"a": [{"index": 0}]}, {"a": [{"b": 1}]}),
        ({"a": [{"index": -1}]},),
        ({"a": [{"index": "0"}]},),
        ({"a": [{"index": True}]},),
        ({"id": "x"}, {"id": "y"}),
        ({"role": "assistant"}, {"role": "user"}),
    ],
)
def test_deltas_that_contradict_each_other_are_refused(deltas: Any) -> None:
    with pytest.raises(DeltaError):
        merged(*deltas)


def test_what_is_nested_beyond_reason_is_refused_or_left_alone() -> None:
    deep: Any = "x"
    for _ in range(900):
        deep = {"a": deep}
    assert merged({"b": deep}) == {"b": deep}
    with pytest.raises(DeltaError):
        merged({"b": deep}, {"b": deep})


@pytest.mark.parametrize(
    "tokens",
    [
        [{"token": "x", "bytes": [300]}],
        [{"token": "x", "bytes": [128] * 300}],
        [{"token": "x", "bytes": [0xF0]}],
        [{"token": "\ud83d"}],
        ["x"],
    ],
)
def test_tokens_that_are_not_understood_cut_nothing(tokens: list[Any]) -> None:
    assert token_pieces("x", tokens) is None

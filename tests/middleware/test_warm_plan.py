import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trivet.messages import Usage
from trivet.middleware.prefix_commands.warm_plan import Warm, most_output, plan_warm
from trivet.policies.traffic import Traffic


def row(key: int, *parts: int, times: int = 1, **changes: Any) -> list[Traffic]:
    """A request whose prompt has these parts, of 1,000 tokens each: a miss, and then hits."""
    prompt = {
        "route": "chat",
        "upstream": "anthropic",
        "cache": "anthropic",
        "body": json.dumps({"model": "claude-opus-5", "key": key}),
        "parts": [
            {
                "level": "messages",
                "place": ["messages", at],
                "kind": "text",
                "tokens": 1000,
                "digest": f"{part:032x}",
            }
            for at, part in enumerate(parts)
        ],
        **changes.pop("prompt", {}),
    }
    given = {
        "at": 1.0,
        "tenant": "acme",
        "api": "chat",
        "model": "claude-opus-5",
        "key": f"{key:064x}",
        "exact": {"store": True, "ttl": 60.0},
        "answer": {"tier": "model", "plain": True, "usage": {"input": 1000, "output": 100}},
        **changes,
    }
    miss = Traffic.model_validate({**given, "prompt": prompt})
    return [miss, *[Traffic.model_validate(given)] * (times - 1)]


def picked(*rows: list[Traffic]) -> list[tuple[int, int, int]]:
    """Key, tokens saved by the entry, and by the prefix."""
    plan = plan_warm(one for each in rows for one in each)
    return [(int(one.key, 16), one.entry_tokens, one.prefix_tokens) for one in plan.picked]


def test_an_answer_is_worth_its_tokens_times_how_often_it_was_asked_for() -> None:
    assert picked(row(1, 1, times=3), row(2, 2, times=5)) == [(2, 5500, 0), (1, 3300, 0)]


def test_what_came_once_and_begins_like_nothing_else_is_not_sent() -> None:
    plan = plan_warm(row(1, 1) + row(2, 2))
    assert (plan.picked, plan.worthless) == ([], 2)


def test_a_beginning_is_worth_its_tokens_for_each_other_request_that_has_it() -> None:
    """And once it is warm, the others need not bring it again."""
    assert picked(row(1, 7, 8, 1), row(2, 7, 8, 2), row(3, 7, 8, 3)) == [(1, 0, 4000)]


def test_the_longer_beginning_goes_first() -> None:
    rows = row(1, 7, 1), row(2, 7, 2), row(3, 7, 9, 3), row(4, 7, 9, 4)
    assert picked(*rows) == [(3, 0, 4000)]


@pytest.mark.parametrize(
    "changes",
    [{"tenant": "other"}, {"model": "claude-opus-4-1"}, {"prompt": {"upstream": "bedrock"}}],
)
def test_beginnings_are_not_shared_across_tenants_models_or_upstreams(changes: Any) -> None:
    assert picked(row(1, 7, 1), row(2, 7, 2, **changes)) == []


def test_a_beginning_below_the_model_s_minimum_is_worth_nothing() -> None:
    assert (
        picked(row(1, 7, 1, model="claude-opus-4-6"), row(2, 7, 2, model="claude-opus-4-6")) == []
    )


def test_where_no_prefix_cache_is_known_only_answers_count() -> None:
    assert picked(row(1, 7, prompt={"cache": ""}), row(2, 7, prompt={"cache": ""})) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"exact": {"store": True, "ttl": 60.0, "reason": "sampled"}},
        {"exact": {"store": False, "ttl": 60.0}},
        {"exact": {"store": True, "ttl": 60.0, "pool": 3}},
        {"answer": {"tier": "model", "plain": True, "usage": None}},
    ],
)
def test_an_answer_that_would_not_be_served_again_is_worth_nothing(changes: Any) -> None:
    assert picked(row(1, 1, times=5, **changes)) == []


def test_requests_without_a_body_are_counted_and_not_picked() -> None:
    plan = plan_warm(row(1, 1, times=5, prompt={"body": None}) + row(2, 2, times=2))
    assert (len(plan.picked), plan.no_body, plan.rows) == (1, 1, 7)


@given(st.lists(st.tuples(st.lists(st.integers(1, 3), min_size=1, max_size=3), st.integers(1, 4))))
def test_picks_come_in_the_order_of_their_value_and_once_each(
    made: list[tuple[list[int], int]],
) -> None:
    rows = [one for key, (parts, times) in enumerate(made) for one in row(key, *parts, times=times)]
    plan = plan_warm(rows)
    values = [one.value for one in plan.picked]
    assert values == sorted(values, reverse=True)
    assert all(values)
    assert len({one.key for one in plan.picked}) == len(values)
    assert len(plan.picked) + plan.worthless == len(made)


@pytest.mark.parametrize(
    ("body", "most"),
    [
        ({"max_tokens": 50}, 50),
        ({"max_completion_tokens": 50, "max_tokens": 90}, 50),
        ({"max_output_tokens": 7}, 7),
        ({"max_tokens": 50, "n": 3}, 150),
        ({}, 8000),
        ({"max_tokens": None}, 8000),
    ],
)
def test_the_longest_answer_is_the_body_s_limit_or_four_times_the_recorded_one(
    body: Any, most: int
) -> None:
    one = plan_warm(row(1, 1, times=2)).picked[0]
    assert most_output(one._replace(body=json.dumps(body), usage=Usage(1, 2000))) == most
    assert isinstance(one, Warm)

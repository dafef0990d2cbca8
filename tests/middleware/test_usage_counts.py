"""Token counts of an upstream that cannot be true are unknown, in every dialect."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trivet.messages import Usage
from trivet.middleware.dialects import messages_answer, openai_shapes, responses_answer
from trivet.middleware.dialects.bodies import token_count, usage_from
from trivet.middleware.dialects.embeddings import _usage

NO_COUNTS: list[Any] = [-1, -1_000_000, 1 << 31, 10**400, True, False, 5.0, 1.5, "5", [5], {}]
FIELDS = ("given", "made", "read", "written")


def chat(given: Any, made: Any, read: Any, written: Any) -> Usage | None:
    details = {"cached_tokens": read, "cache_write_tokens": written}
    return openai_shapes.usage_of(
        {"prompt_tokens": given, "completion_tokens": made, "prompt_tokens_details": details}
    )


def deepseek(given: Any, made: Any, read: Any, written: Any) -> Usage | None:
    return openai_shapes.usage_of(
        {
            "prompt_tokens": given,
            "completion_tokens": made,
            "prompt_cache_hit_tokens": read,
            "prompt_tokens_details": {"cache_write_tokens": written},
        }
    )


def responses(given: Any, made: Any, read: Any, written: Any) -> Usage | None:
    details = {"cached_tokens": read, "cache_write_tokens": written}
    usage = {"input_tokens": given, "output_tokens": made, "input_tokens_details": details}
    return responses_answer.usage_of({"usage": usage})


def messages(given: Any, made: Any, read: Any, written: Any) -> Usage | None:
    usage = {
        "input_tokens": given,
        "output_tokens": made,
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": written,
    }
    return messages_answer.usage_of({"usage": usage})


READERS = [chat, deepseek, responses, messages]


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("value", NO_COUNTS, ids=lambda value: repr(value)[:12])
def test_one_count_that_cannot_be_true_makes_the_usage_unknown(
    reader: Any, field: str, value: Any
) -> None:
    counts: dict[str, Any] = {"given": 9, "made": 3, "read": 4, "written": 2}
    assert reader(**counts) is not None
    assert reader(**{**counts, field: value}) is None


@pytest.mark.parametrize("reader", READERS)
def test_cache_counts_that_are_null_are_zero(reader: Any) -> None:
    assert reader(9, 3, None, None) == Usage(9, 3, 0, 0)


@pytest.mark.parametrize("value", [*NO_COUNTS, None], ids=lambda value: repr(value)[:12])
def test_an_embedding_usage_that_cannot_be_true_is_unknown(value: Any) -> None:
    assert _usage({"prompt_tokens": value}) is None
    assert _usage({"prompt_tokens": 5}) == Usage(5, 0)


JSON = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=2)


@given(JSON, JSON, JSON, JSON)
def test_no_count_of_a_usage_is_below_zero_or_other_than_an_integer(
    given_: Any, made: Any, read: Any, written: Any
) -> None:
    found = usage_from(given_, made, read, written)
    if found is not None:
        counts = (
            found.input_tokens,
            found.output_tokens,
            found.cache_read_tokens,
            found.cache_write_tokens,
        )
        assert all(token_count(count) is not None for count in counts)

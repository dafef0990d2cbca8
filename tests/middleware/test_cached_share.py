"""When the share of cached tokens fell."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trivet.middleware.console.views.cached_share import fell, merged, share


def series(*shares: float, calls: int = 5) -> list[list[int]]:
    return [[30 * at, calls, 1_000, int(1_000 * one)] for at, one in enumerate(shares)]


def test_the_moment_of_a_fall_is_the_first_bucket_behind_it() -> None:
    found = fell(series(0.9, 0.9, 0.9, 0.1, 0.1, 0.1))
    assert found is not None
    assert (found["at"], found["before"], found["behind"]) == (90, 0.9, 0.1)
    assert not found["back"]


def test_a_fall_that_is_over_says_so() -> None:
    found = fell(series(0.9, 0.9, 0.9, 0.1, 0.1, 0.1, *[0.9] * 6))
    assert found is not None
    assert found["back"]


def test_a_small_fall_is_none() -> None:
    assert fell(series(0.9, 0.8, 0.75, 0.8)) is None


def test_few_calls_are_chance() -> None:
    assert fell(series(0.9, 0.1, calls=1)) is None


def test_a_rise_is_none() -> None:
    assert fell(series(0.1, 0.1, 0.9, 0.9)) is None


BUCKETS = st.lists(
    st.tuples(st.integers(0, 20), st.integers(0, 9), st.integers(0, 100), st.integers(0, 100)).map(
        lambda one: [one[0] * 30, one[1], max(one[2:]), min(one[2:])]
    ),
    max_size=20,
)


@given(st.lists(BUCKETS, max_size=4))
def test_merging_keeps_every_token(told: list[list[list[int]]]) -> None:
    made = merged(told)
    starts = [one[0] for one in made]
    assert starts == sorted(set(starts))
    whole = share(bucket for one in told for bucket in one)
    assert share(made) == whole
    found = fell(made)
    if found is not None:
        assert found["before"] - found["behind"] >= 0.2
        assert found["at"] in starts

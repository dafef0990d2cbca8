"""Bounds that hold while somebody looks at them after every single outcome."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trivet.semantic.confidence import audits_to_open, lower, upper

ALPHA = 0.05
COUNTS = st.integers(0, 5000).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n)))
ALPHAS = st.floats(0.001, 0.5)


@given(COUNTS, ALPHAS)
def test_the_bounds_enclose_the_observed_rate(counts: tuple[int, int], alpha: float) -> None:
    n, k = counts
    assert 0.0 <= lower(n, k, alpha) <= (k / n if n else 0.0)
    assert (k / n if n else 1.0) <= upper(n, k, alpha) <= 1.0


@given(COUNTS, ALPHAS)
def test_one_more_false_hit_raises_both_bounds(counts: tuple[int, int], alpha: float) -> None:
    n, k = counts[0] + 1, counts[1]
    assert upper(n, k, alpha) <= upper(n, k + 1, alpha)
    assert lower(n, k, alpha) <= lower(n, k + 1, alpha) + 1e-12


@given(COUNTS, ALPHAS)
def test_one_more_hit_without_a_false_one_lowers_both_bounds(
    counts: tuple[int, int], alpha: float
) -> None:
    n, k = counts
    assert upper(n + 1, k, alpha) <= upper(n, k, alpha) + 1e-12
    assert lower(n + 1, k, alpha) <= lower(n, k, alpha) + 1e-12


@given(COUNTS, ALPHAS, ALPHAS)
def test_asking_for_more_confidence_widens_the_interval(
    counts: tuple[int, int], one: float, other: float
) -> None:
    n, k = counts
    strict, loose = min(one, other), max(one, other)
    assert upper(n, k, loose) <= upper(n, k, strict) + 1e-12
    assert lower(n, k, strict) <= lower(n, k, loose) + 1e-12


def test_nothing_is_known_before_the_first_outcome() -> None:
    assert (lower(0, 0, ALPHA), upper(0, 0, ALPHA)) == (0.0, 1.0)


def test_outcomes_that_are_all_false_leave_the_upper_bound_at_one() -> None:
    assert upper(7, 7, ALPHA) == 1.0
    assert lower(7, 7, ALPHA) > 0.2


def test_the_bounds_close_in_on_the_rate() -> None:
    assert lower(100_000, 2000, ALPHA) == pytest.approx(0.02, abs=0.002)
    assert upper(100_000, 2000, ALPHA) == pytest.approx(0.02, abs=0.002)


@pytest.mark.parametrize(("n", "k", "alpha"), [(1, 2, 0.05), (-1, 0, 0.05), (1, 0, 0), (1, 0, 1)])
def test_what_cannot_be_is_refused(n: int, k: int, alpha: float) -> None:
    for bound in (upper, lower):
        with pytest.raises(ValueError):
            bound(n, k, alpha)


class TestAuditsToOpen:
    @given(st.floats(0.003, 0.5), ALPHAS)
    def test_it_is_the_fewest(self, target: float, alpha: float) -> None:
        enough = audits_to_open(target, alpha)
        assert upper(enough, 0, alpha) <= target
        assert enough == 1 or upper(enough - 1, 0, alpha) > target

    def test_of_two_percent_at_ninety_five(self) -> None:
        assert audits_to_open(0.02, 0.05) == 187

    @pytest.mark.parametrize("target", [0.0, 1.0, -1.0])
    def test_a_target_that_cannot_be_is_refused(self, target: float) -> None:
        with pytest.raises(ValueError):
            audits_to_open(target, ALPHA)


def edges(rate: float, steps: int) -> tuple[list[int], list[int]]:
    """For each n, the most false ones that put the upper bound below the rate (-1: none do), and
    the fewest that put the lower bound above it. Neither falls as n grows, by the tests above."""
    few, many = [-1], [1]
    for n in range(1, steps + 1):
        most = few[-1]
        while most < n and upper(n, most + 1, ALPHA) < rate:
            most += 1
        least = many[-1]
        while least <= n and lower(n, least, ALPHA) <= rate:
            least += 1
        few.append(most)
        many.append(least)
    return few, many


def crossings(rate: float, runs: int, steps: int) -> tuple[int, int]:
    """In how many runs the rate was, at any moment, above the upper or below the lower bound."""
    rng = random.Random(20_261_130)
    few, many = edges(rate, steps)
    above = below = 0
    for _ in range(runs):
        k, too_low, too_high = 0, False, False
        for n in range(1, steps + 1):
            k += rng.random() < rate
            too_low |= k <= few[n]
            too_high |= k >= many[n]
        above, below = above + too_low, below + too_high
    return above, below


@pytest.mark.parametrize("rate", [0.01, 0.05, 0.3])
def test_the_bounds_hold_at_all_looks_of_a_run_together(rate: float) -> None:
    # 1,000 runs: were a crossing as likely as alpha allows, 69 and more of them would have a chance
    # of under 0.5 %.
    above, below = crossings(rate, runs=1000, steps=400)
    assert above <= 68
    assert below <= 68


def test_the_bounds_hold_over_ten_thousand_looks() -> None:
    # 200 runs: were a crossing as likely as alpha allows, 20 and more of them would have a chance
    # of under 0.5 %.
    above, below = crossings(0.02, runs=200, steps=10_000)
    assert above <= 19
    assert below <= 19

"""The sweep over scored rows: counts on paper, both denominators, curves against scikit-learn."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trivet.eval.sweep import (
    Row,
    average_precision,
    by_slice,
    ceiling,
    curve_thresholds,
    distinct_thresholds,
    operating_points,
    roc_auc,
    sweep,
)

ROWS = [
    Row(0.95, True, "near"),
    Row(0.90, False, "number"),
    Row(0.80, True, "near"),
    Row(0.80, False, "number"),
    Row(0.30, True, "far"),
    Row(None, True, "far"),
    Row(None, False, ""),
]

rows = st.lists(
    st.builds(
        Row,
        st.none() | st.sampled_from([-1.0, 0.0, 0.25, 0.5, 0.50004, 0.9, 1.0]),
        st.booleans(),
        st.sampled_from(["", "x", "y"]),
    ),
    max_size=30,
)


class TestSweep:
    def test_a_threshold_counts_what_it_serves(self) -> None:
        (point,) = sweep(ROWS, [0.8])
        assert (point.hits, point.same, point.false_hits, point.different) == (2, 4, 2, 3)

    def test_a_score_equal_to_the_threshold_is_served(self) -> None:
        assert [point.hits for point in sweep(ROWS, [0.95, 0.95001])] == [1, 0]

    def test_both_denominators(self) -> None:
        (point,) = sweep(ROWS, [0.8])
        assert point.false_hit_rate == 0.5
        assert point.false_over_all == 2 / 7

    def test_the_bound_is_exact_and_one_sided(self) -> None:
        (point,) = sweep(ROWS, [0.95])
        assert point.upper_bound == pytest.approx(0.95)

    def test_precision_is_1_where_nothing_is_served_and_the_bound_says_that_nothing_is_known(
        self,
    ) -> None:
        (point,) = sweep(ROWS, [0.99])
        assert (point.precision, point.false_hit_rate, point.upper_bound) == (1.0, 0.0, 1.0)

    def test_a_pair_without_a_score_is_never_served(self) -> None:
        (point,) = sweep(ROWS, [-1e9])
        assert (point.hits, point.same, point.false_hits, point.different) == (3, 4, 2, 3)

    def test_points_come_in_the_order_of_the_thresholds(self) -> None:
        assert [point.threshold for point in sweep(ROWS, [0.9, 0.1, 0.5])] == [0.9, 0.1, 0.5]

    def test_no_rows_are_no_rates(self) -> None:
        (point,) = sweep([], [0.5])
        assert (point.false_over_all, point.coverage, point.precision) == (0.0, 0.0, 1.0)

    @given(rows, st.lists(st.floats(-2, 2), max_size=5))
    def test_it_is_what_counting_one_by_one_finds(
        self, some: list[Row], thresholds: list[float]
    ) -> None:
        for point in sweep(some, thresholds):
            served = [r for r in some if r.score is not None and r.score >= point.threshold]
            assert point.hits == sum(r.same for r in served)
            assert point.false_hits == sum(not r.same for r in served)

    @given(rows)
    def test_slices_add_up_to_the_whole(self, some: list[Row]) -> None:
        named = [row for row in some if row.slice]
        (whole,) = sweep(named, [0.5])
        parts = [points[0] for points in by_slice(some, [0.5]).values()]
        assert whole.hits == sum(part.hits for part in parts)
        assert whole.false_hits == sum(part.false_hits for part in parts)


class TestThresholds:
    def test_few_scores_are_all_thresholds(self) -> None:
        assert distinct_thresholds(ROWS) == [0.3, 0.8, 0.9, 0.95]

    def test_many_are_thinned_and_the_ends_kept(self) -> None:
        found = distinct_thresholds([Row(at / 1000, True) for at in range(1000)], 5)
        assert found == [0.0, 0.25, 0.5, 0.749, 0.999]

    def test_they_are_rounded_down_so_that_their_own_pair_is_served(self) -> None:
        assert distinct_thresholds([Row(0.91239, True)]) == [0.9123]

    def test_a_picture_begins_where_coverage_begins_to_fall(self) -> None:
        some = [Row(at / 100, True) for at in range(100)] + [Row(0.01, False)]
        assert curve_thresholds(some, 1000)[0] == 0.05

    def test_without_a_score_there_is_no_threshold(self) -> None:
        assert distinct_thresholds([Row(None, True)]) == []
        assert curve_thresholds([Row(None, True)]) == []


class TestCeiling:
    def test_the_most_hits_within_the_target(self) -> None:
        point = ceiling(ROWS, 0.4)
        assert point is not None
        assert (point.threshold, point.hits, point.false_hits) == (0.3, 3, 2)

    def test_ties_are_served_together(self) -> None:
        point = ceiling(ROWS, 0.34)
        assert point is not None
        assert (point.threshold, point.hits) == (0.95, 1)

    def test_none_where_no_threshold_fits(self) -> None:
        assert ceiling([Row(0.9, False), Row(0.8, True)], 0.1) is None

    @given(rows, st.floats(0, 0.9))
    def test_no_score_as_a_threshold_does_better(self, some: list[Row], target: float) -> None:
        best = ceiling(some, target)
        scores = {row.score for row in some if row.score is not None}
        fit = [
            point.hits
            for point in sweep(some, sorted(scores))
            if point.false_hits <= target * (point.hits + point.false_hits)
        ]
        assert (0 if best is None else best.hits) == max(fit, default=0)


class TestRankings:
    @given(rows)
    def test_areas_are_those_of_scikit_learn(self, some: list[Row]) -> None:
        from sklearn.metrics import average_precision_score, roc_auc_score

        labels = [row.same for row in some]
        scores = [-9.0 if row.score is None else row.score for row in some]
        if len(set(labels)) == 2:
            assert roc_auc(some) == pytest.approx(roc_auc_score(labels, scores))
        if any(labels):
            wanted = average_precision_score(labels, scores)
            assert average_precision(some) == pytest.approx(wanted)

    def test_they_are_not_defined_for_one_kind_alone(self) -> None:
        assert roc_auc([Row(0.5, True)]) is None
        assert average_precision([Row(0.5, False)]) is None

    def test_the_curve_goes_from_nothing_to_everything(self) -> None:
        points = operating_points(ROWS)
        assert points[0][:2] == (0.0, 0.0)
        assert points[-1][:2] == (1.0, 1.0)

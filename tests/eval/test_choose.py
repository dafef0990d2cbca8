"""Thresholds that keep their promise after they were picked, by drawing and against MAPIE."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trivet.eval import choose
from trivet.eval.bounds import hits_needed, upper_bound
from trivet.eval.choose import NOISE, certify, just_below, learned_path, rank_path
from trivet.eval.sweep import Row

rows_of = st.lists(
    st.builds(Row, st.none() | st.floats(-1, 1, allow_nan=False), st.booleans()), max_size=60
)


def rows(*false_ranks: int, count: int) -> list[Row]:
    """Scores that fall evenly from 1; false at these ranks, which count from 1."""
    return [Row(1 - at / 1000, at + 1 not in false_ranks) for at in range(count)]


def picked(some: list[Row], target: float, confidence: float) -> choose.Certified | None:
    return certify(some, rank_path(some, target, confidence), target, confidence)


class TestCertify:
    def test_the_last_threshold_before_the_first_that_fails_is_taken(self) -> None:
        some = rows(150, 151, 152, count=400)
        found = picked(some, 0.02, 0.95)
        assert found is not None
        assert (found.hits, found.false_hits) == (149, 0)
        assert found.upper_bound <= 0.02

    def test_what_would_pass_behind_a_failure_is_not_tried(self) -> None:
        clean_later = rows(1, count=1000)
        assert certify(clean_later, [0.999, 0.0], 0.02, 0.95) is None
        assert certify(clean_later, [0.0], 0.02, 0.95) is not None

    @pytest.mark.parametrize(("false", "hits"), [((), 149), ((10,), None)])
    def test_149_hits_without_a_false_one_certify_2_percent_at_95(
        self, false: tuple[int, ...], hits: int | None
    ) -> None:
        found = picked(rows(*false, count=149), 0.02, 0.95)
        assert (found and found.hits) == hits
        assert picked(rows(*false, count=148), 0.02, 0.95) is None

    def test_without_a_score_nothing_is_certified(self) -> None:
        assert picked([Row(None, True)] * 500, 0.02, 0.5) is None

    @given(rows_of, st.floats(0.01, 0.5), st.floats(0.05, 0.99))
    def test_what_is_certified_has_its_bound_within_the_target(
        self, some: list[Row], target: float, confidence: float
    ) -> None:
        found = picked(some, target, confidence)
        if found is not None:
            served = [row for row in some if row.score is not None and row.score >= found.threshold]
            assert found.hits == len(served)
            assert found.false_hits == sum(not row.same for row in served)
            assert upper_bound(found.false_hits, found.hits, confidence) <= target


class TestPaths:
    @given(rows_of, st.floats(0.01, 0.5), st.floats(0.05, 0.99))
    def test_ranks_read_no_label(self, some: list[Row], target: float, confidence: float) -> None:
        flipped = [Row(row.score, not row.same) for row in some]
        assert rank_path(some, target, confidence) == rank_path(flipped, target, confidence)

    @given(rows_of, st.floats(0.1, 0.5), st.floats(0.05, 0.5))
    def test_paths_go_from_strict_to_loose(
        self, some: list[Row], target: float, confidence: float
    ) -> None:
        for path in (rank_path(some, target, confidence), learned_path(some, 2.0, target)):
            assert path == sorted(set(path), reverse=True)

    def test_the_first_rank_is_the_fewest_hits_that_certify(self) -> None:
        path = rank_path(rows(count=500), 0.02, 0.95)
        assert path[0] == just_below(1 - 148 / 1000)

    def test_a_learned_path_starts_below_false_hits_at_the_top(self) -> None:
        top_is_bad = rows(1, 2, count=400)
        path = learned_path(top_is_bad, 10.0, 0.05)
        assert path[0] < 0.7

    def test_scores_within_noise_of_each_other_are_never_parted(self) -> None:
        tied = [Row(0.9 + NOISE * (at % 3), True) for at in range(100)]
        (threshold,) = rank_path(tied, 0.05, 0.5)
        assert all(row.score is not None and row.score > threshold + NOISE / 2 for row in tied)


class TestRounding:
    @given(st.floats(-1, 1))
    def test_a_threshold_serves_its_score_through_noise_and_nothing_much_lower(
        self, score: float
    ) -> None:
        threshold = just_below(score)
        assert threshold <= score - 0.999 * NOISE
        assert threshold > score - 3 * NOISE
        assert threshold == round(threshold, 6)


def draw(rng: np.random.Generator, count: int, rate: float) -> list[Row]:
    """Scores of which the highest are hardly ever false, so that at `rate` of all the target is
    crossed at a fixed score: false with probability (1 - score) * 2 * rate."""
    scores = rng.uniform(0, 1, count)
    false = rng.uniform(0, 1, count) < (1 - scores) * 2 * rate
    return [Row(float(score), not bad) for score, bad in zip(scores, false, strict=True)]


class TestPromise:
    """Above a score s, the share of false ones is (1 - s) * rate."""

    rate = 0.2

    def missed(self, found: choose.Certified | None, target: float) -> bool:
        return found is not None and (1 - found.threshold) * self.rate > target

    @pytest.mark.parametrize(("target", "confidence"), [(0.05, 0.5), (0.05, 0.9), (0.02, 0.5)])
    def test_ranks_miss_the_target_no_more_often_than_promised(
        self, target: float, confidence: float
    ) -> None:
        rng = np.random.default_rng(1)
        trials = 300
        missed = sum(
            self.missed(picked(draw(rng, 600, self.rate), target, confidence), target)
            for _ in range(trials)
        )
        assert missed <= (1 - confidence) * trials + 3 * (trials * 0.25) ** 0.5

    def test_learned_paths_miss_the_target_no_more_often_than_promised(self) -> None:
        rng = np.random.default_rng(2)
        trials, missed = 200, 0
        for _ in range(trials):
            chosen_on, some = draw(rng, 400, self.rate), draw(rng, 1200, self.rate)
            found = certify(some, learned_path(chosen_on, 3.0, 0.05), 0.05, 0.9)
            missed += self.missed(found, 0.05)
        assert missed <= 0.1 * trials + 3 * (trials * 0.09) ** 0.5

    def test_a_threshold_is_found_where_there_is_one(self) -> None:
        found = picked(draw(np.random.default_rng(3), 3000, self.rate), 0.05, 0.95)
        assert found is not None
        assert 0.7 < found.threshold < 0.9


class TestOracle:
    """MAPIE's p-values for binary losses and its fixed-sequence procedure, on the same path."""

    @pytest.mark.parametrize("seed", range(8))
    def test_mapie_rejects_the_same_hypotheses(self, seed: int) -> None:
        from mapie.risk_control import control_fwer
        from mapie.risk_control.methods import compute_hoeffding_bentkus_p_value

        some = draw(np.random.default_rng(seed), 800, 0.2)
        target, confidence = 0.05, 0.9
        path = rank_path(some, target, confidence)
        served = [[row for row in some if (row.score or 0) >= threshold] for threshold in path]
        hits = np.array([len(one) for one in served])
        false_hits = np.array([sum(not row.same for row in one) for one in served])
        # MAPIE rounds up the count that it makes of the rate: a hair less stays the count.
        p_values = compute_hoeffding_bentkus_p_value(
            np.maximum(false_hits - 1e-9, 0) / hits, hits, target, binary=True
        )[:, 0]
        ours = [choose.p_value(*one, target) for one in zip(false_hits, hits, strict=True)]
        assert ours == pytest.approx(p_values)
        theirs = control_fwer(p_values, 1 - confidence, "fixed_sequence")
        found = choose.rejected(some, path, target, confidence)
        assert [one.threshold for one in found] == [path[at] for at in sorted(theirs)]

    @given(st.integers(1, 400), st.data(), st.floats(0.005, 0.3), st.floats(0.05, 0.99))
    def test_the_p_value_and_the_bound_agree(
        self, hits: int, data: st.DataObject, target: float, confidence: float
    ) -> None:
        false_hits = data.draw(st.integers(0, min(hits, 30)))
        p = choose.p_value(false_hits, hits, target)
        if abs(p - (1 - confidence)) > 1e-9:
            bound = upper_bound(false_hits, hits, confidence)
            assert (bound <= target) == (p <= 1 - confidence)


class TestShortfall:
    def test_it_counts_hits_and_pairs_at_the_share_that_is_served(self) -> None:
        some = rows(count=100) + [Row(None, False)] * 100
        found = choose.shortfall(some, 0.02, 0.95)
        assert found == choose.Shortfall(hits=49, pairs=98, served=100, false_hits=0)

    def test_that_many_more_pairs_like_these_are_enough(self) -> None:
        some = rows(count=100)
        found = choose.shortfall(some, 0.02, 0.95)
        assert found is not None
        assert picked(rows(count=100 + found.pairs), 0.02, 0.95) is not None
        assert picked(rows(count=99 + found.pairs), 0.02, 0.95) is None

    def test_without_a_score_there_is_none(self) -> None:
        assert choose.shortfall([Row(None, True)], 0.02, 0.95) is None

    def test_hits_needed_is_the_floor_of_it(self) -> None:
        found = choose.shortfall(rows(count=10), 0.1, 0.95)
        assert found is not None
        assert found.hits == hits_needed(0.1, 0.95) - 10

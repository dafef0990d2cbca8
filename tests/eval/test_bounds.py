"""Exact bounds, against scipy.stats, MAPIE and the figures of the data sheet."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trivet.eval.bounds import hits_needed, upper_bound

confidences = st.floats(0.01, 0.999)


class TestUpperBound:
    @pytest.mark.parametrize(("hits", "false_hits"), [(1, 0), (30, 2), (299, 0), (5000, 61)])
    @pytest.mark.parametrize("confidence", [0.5, 0.9, 0.95, 0.999])
    def test_it_is_the_exact_interval_of_scipy(
        self, hits: int, false_hits: int, confidence: float
    ) -> None:
        from scipy.stats import binomtest

        wanted = binomtest(false_hits, hits, alternative="less").proportion_ci(confidence, "exact")
        assert upper_bound(false_hits, hits, confidence) == pytest.approx(wanted.high, rel=1e-9)

    @pytest.mark.parametrize(("hits", "false_hits"), [(40, 0), (299, 0), (473, 1), (2000, 5)])
    @pytest.mark.parametrize("target", [0.01, 0.02, 0.05])
    def test_it_certifies_whatever_the_looser_p_value_of_mapie_certifies(
        self, hits: int, false_hits: int, target: float
    ) -> None:
        import numpy as np
        from mapie.risk_control.methods import compute_hoeffding_bentkus_p_value

        p = compute_hoeffding_bentkus_p_value(
            np.array([false_hits / hits]), np.array([hits]), np.array([target])
        )
        exact = upper_bound(false_hits, hits, 0.95)
        assert exact <= target or float(np.ravel(p)[0]) > 0.05

    def test_without_a_hit_nothing_is_known(self) -> None:
        assert upper_bound(0, 0, 0.95) == 1.0

    def test_false_hits_alone_leave_everything_open(self) -> None:
        assert upper_bound(3, 3, 0.95) == 1.0

    @given(st.integers(1, 2000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
    def test_it_is_never_below_the_estimate_at_95_percent(self, counts: tuple[int, int]) -> None:
        false_hits, hits = counts
        assert false_hits / hits <= upper_bound(false_hits, hits, 0.95) <= 1

    @given(st.integers(0, 20), st.integers(21, 500), confidences)
    def test_more_good_hits_tighten_it(self, false_hits: int, hits: int, confidence: float) -> None:
        now = upper_bound(false_hits, hits, confidence)
        assert upper_bound(false_hits, hits + 1, confidence) <= now

    @pytest.mark.parametrize("counts", [(-1, 3), (4, 3), (0, -1)])
    def test_counts_that_cannot_be_are_refused(self, counts: tuple[int, int]) -> None:
        with pytest.raises(ValueError, match="cannot be"):
            upper_bound(*counts, 0.95)

    @pytest.mark.parametrize("confidence", [0, 1, -1, float("nan")])
    def test_a_confidence_is_between_0_and_1(self, confidence: float) -> None:
        with pytest.raises(ValueError, match="confidence"):
            upper_bound(0, 1, confidence)


class TestHitsNeeded:
    @pytest.mark.parametrize(
        ("target", "wanted"),
        [(0.01, (299, 473, 628)), (0.02, (149, 236, 313)), (0.05, (59, 93, 124))],
    )
    def test_the_figures_for_95_percent(self, target: float, wanted: tuple[int, ...]) -> None:
        assert tuple(hits_needed(target, 0.95, false) for false in range(3)) == wanted

    @given(st.floats(0.005, 0.9), confidences, st.integers(0, 5))
    def test_it_is_the_fewest_that_will_do(
        self, target: float, confidence: float, false_hits: int
    ) -> None:
        found = hits_needed(target, confidence, false_hits)
        assert upper_bound(false_hits, found, confidence) <= target
        if found - 1 > false_hits:
            assert upper_bound(false_hits, found - 1, confidence) > target

    @pytest.mark.parametrize("target", [0, 1, -0.5, float("nan")])
    def test_a_target_is_between_0_and_1(self, target: float) -> None:
        with pytest.raises(ValueError, match="target"):
            hits_needed(target, 0.95)

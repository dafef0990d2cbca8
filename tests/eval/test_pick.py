"""Which chain is picked by which pairs, and that the promise holds whoever picks."""

from __future__ import annotations

import numpy as np
from scipy.stats import binom

from trivet.eval.parts import Parts, Promise
from trivet.eval.pick import pick
from trivet.eval.sweep import Row
from trivet.policies.calibration import Chain as ChainName

EVEN = Promise(0.02, 0.5)
BOTH: tuple[ChainName, ChainName] = ("verifier", "cosine")


def parts(count: int) -> Parts:
    """All pairs certify; none was spared."""
    return Parts((), tuple(range(count)), (), learned=False)


def scored(scores: np.ndarray, same: np.ndarray) -> list[Row]:
    return [Row(float(score), bool(one)) for score, one in zip(scores, same, strict=True)]


def data(count: int, seed: int, best: ChainName) -> dict[ChainName, list[Row]]:
    """Half of the pairs are the same; one chain ranks them well, the others hardly."""
    rng = np.random.default_rng(seed)
    same = rng.random(count) < 0.5
    well = 1 / (1 + np.exp(-(5.0 * same - 2.5 + rng.normal(size=count))))
    badly = 1 / (1 + np.exp(-(0.5 * same + rng.normal(size=count))))
    chains: tuple[ChainName, ...] = ("verifier", "rules", "cosine")
    return {name: scored(well if name == best else badly, same) for name in chains}


class TestByThoseThatNoThresholdServes:
    def test_they_pick_the_chain_that_ranks_them_better(self) -> None:
        for best in BOTH:
            for seed in range(10):
                found = pick(data(140, seed, best), parts(140), EVEN)
                assert found.chain == best
                assert "that no tested threshold serves" in found.note

    def test_of_two_that_rank_alike_it_is_the_cheapest(self) -> None:
        alike = data(140, 1, "cosine")["cosine"]
        assert pick({"verifier": alike, "cosine": alike}, parts(140), EVEN).chain == "cosine"

    def test_no_more_than_half_of_the_pairs_are_served(self) -> None:
        same = np.ones(140, dtype=bool)
        same[-20:] = False
        scores = np.linspace(0.99, 0.1, 140)
        found = pick(
            {"verifier": scored(scores, same), "cosine": scored(scores, same)}, parts(140), EVEN
        )
        assert found.certified is not None
        assert found.certified.hits <= 70

    def test_the_labels_of_served_pairs_have_no_part_in_it(self) -> None:
        for best in BOTH:
            some = data(140, 4, best)
            tops = {
                at
                for name in BOTH
                for at in sorted(range(140), key=lambda at: -(some[name][at].score or 0))[:50]
            }
            turned = {
                name: [Row(row.score, row.same or at in tops) for at, row in enumerate(rows)]
                for name, rows in some.items()
            }
            found = pick(turned, parts(140), EVEN)
            assert (found.chain, found.certified is None) == (best, False)

    def test_too_few_of_a_kind_pick_nothing(self) -> None:
        some = data(140, 5, "cosine")
        alike = {name: [Row(row.score, True) for row in rows] for name, rows in some.items()}
        assert pick(alike, parts(140), EVEN).chain == "verifier"

    def test_the_bound_is_broken_no_more_often_than_was_promised(self) -> None:
        """Both chains rank alike well, so that chance picks, and every threshold is near the
        target: the hardest case."""
        promise = Promise(0.1, 0.8)
        broken = certified = 0
        for seed in range(400):
            rng = np.random.default_rng(seed)
            one, other = rng.random(150), rng.random(150)
            false = np.where((one + other) / 2 > 0.35, 0.1, 0.6)
            same = rng.random(150) >= false
            found = pick(
                {"verifier": scored(one, same), "cosine": scored(other, same)}, parts(150), promise
            )
            if found.certified is None:
                continue
            certified += 1
            fresh = rng.random((2, 20_000))
            served = fresh[0] >= found.certified.threshold
            rate = np.where(fresh.mean(axis=0) > 0.35, 0.1, 0.6)[served].mean()
            broken += rate > 0.1
        assert certified > 20
        assert broken <= binom.ppf(0.999, 400, 0.2)


class TestFitted:
    def test_it_is_picked_where_it_tells_clearly_more_than_the_others(self) -> None:
        some = data(600, 6, "fitted")
        well = data(600, 6, "cosine")["cosine"]
        scores = {**some, "fitted": well}
        scores["cosine"] = scores.pop("cosine")
        split = Parts(tuple(range(120)), tuple(range(120, 600)), (), learned=False)
        assert pick(scores, split, EVEN).chain == "fitted"

    def test_it_is_not_where_the_cosine_tells_as_much(self) -> None:
        some = data(600, 8, "cosine")
        split = Parts(tuple(range(120)), tuple(range(120, 600)), (), learned=False)
        scores: dict[ChainName, list[Row]] = {
            "verifier": some["verifier"],
            "fitted": some["cosine"],
            "cosine": some["cosine"],
        }
        assert pick(scores, split, EVEN).chain == "cosine"

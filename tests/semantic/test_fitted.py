"""The layer over the verifier: what it adds, what it leaves, and what names it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trivet.errors import ConfigError
from trivet.policies.fitted import Fitted
from trivet.semantic.fitted import FittedVerifier, heaviest, number_groups, reader
from trivet.semantic.types import TextPair
from trivet.semantic.verifiers import open_chain
from trivet.semantic.verify import BAND, TrainedVerifier, squash

PAIRS = [
    TextPair("how do I polish my tractor", "how can I polish a tractor", 0.93),
    TextPair("how do I polish my tractor", "how do I polish my kettle", 0.81),
    TextPair("rent for 3 days", "rent for 9 days", 0.97),
    TextPair("is entry free", "is entry not free", 0.9),
    TextPair("cancel my tractor order", "can I cancel my tractor order", 0.95),
    TextPair("", "where is the office", 0.1),
]
COUNT = len(number_groups())


def layer(**given: Any) -> Fitted:
    """One that weighs all numbers and changes nothing, but for what is given."""
    size = len(given.get("weights", (0.0,) * COUNT))
    values: dict[str, Any] = {
        "features": "few" if size == 2 else "all",
        "pairs": 100,
        "intercept": 0.0,
        "trust": 1.0,
        "contradicted": -60.0,
        "weights": (0.0,) * size,
        "means": (0.0,) * size,
        "scales": (1.0,) * size,
    }
    return Fitted(**{**values, **given})


def test_without_weights_it_is_the_verifier_but_for_its_steps() -> None:
    ours, theirs = FittedVerifier(layer()).verify(PAIRS), TrainedVerifier().verify(PAIRS)
    assert [one.veto for one in ours] == [None, None, None, None, "act", None]
    assert [one.veto for one in theirs] == [None, None, "number", None, "act", None]
    assert ours[2].score < 1e-9
    for one, other in zip(ours[:2] + ours[3:], theirs[:2] + theirs[3:], strict=True):
        odds = math.log(one.score / (1 - one.score))
        assert squash(BAND * math.floor(odds / BAND)) == pytest.approx(other.score, abs=1e-9)


def test_a_command_against_a_question_stays_vetoed_whatever_the_weights() -> None:
    sure = FittedVerifier(layer(intercept=50.0)).verify(PAIRS)
    assert [one.veto for one in sure] == [None, None, None, None, "act", None]


def test_a_text_that_is_too_long_stays_vetoed() -> None:
    pair = TextPair("word " * 400, "word " * 401, 0.99)
    assert FittedVerifier(layer(intercept=50.0)).verify([pair])[0].veto == "length"


def test_a_contradicted_number_weighs_what_the_layer_says() -> None:
    shut, half, free = (
        FittedVerifier(layer(contradicted=value)).verify(PAIRS)[2].score
        for value in (-60.0, -2.0, 0.0)
    )
    assert shut < 1e-9
    difference = math.log(free / (1 - free)) - math.log(half / (1 - half))
    assert difference == pytest.approx(2.0, abs=1e-9)


def test_a_file_that_does_not_say_takes_contradicted_numbers_for_vetoed() -> None:
    told = layer().model_dump()
    del told["contradicted"]
    assert Fitted(**told).contradicted == -60.0


def test_the_first_two_numbers_are_the_objection_and_the_cosine() -> None:
    seen = reader().read(PAIRS)
    assert number_groups()[:2] == ("objections", "cosines")
    assert seen.numbers.shape == (len(PAIRS), COUNT)
    assert seen.numbers[:, 1] == pytest.approx([pair.cosine for pair in PAIRS])
    assert seen.numbers[0, 0] == 0.0
    assert seen.numbers[2, 0] == 1.0


def test_a_few_weights_move_the_score_by_what_they_weigh() -> None:
    plain = FittedVerifier(layer(weights=(0.0, 0.0))).verify(PAIRS)[0].score
    weighed = layer(weights=(0.0, 2.0), means=(0.0, 0.83), scales=(1.0, 0.1))
    moved = FittedVerifier(weighed).verify(PAIRS)[0].score
    difference = math.log(moved / (1 - moved)) - math.log(plain / (1 - plain))
    assert difference == pytest.approx(2.0, abs=1e-5)


@given(st.permutations(range(len(PAIRS))), st.floats(-2, 2), st.floats(-2, 2))
@settings(max_examples=30, deadline=None)
def test_a_score_depends_on_its_own_pair_alone(order: list[int], one: float, other: float) -> None:
    verifier = FittedVerifier(layer(weights=(one, other)))
    together = [found.score for found in verifier.verify([PAIRS[at] for at in order])]
    alone = [verifier.verify([PAIRS[at]])[0].score for at in order]
    assert together == pytest.approx(alone, abs=1e-12)


def test_a_number_far_from_the_mean_counts_as_five_scales() -> None:
    found = [
        FittedVerifier(layer(weights=(0.0, 1.0), means=(0.0, mean), trust=0.0)).verify(PAIRS)[0]
        for mean in (-9.0, -99.0, -4.0)
    ]
    assert [one.score for one in found[:2]] == [squash(5.0)] * 2
    assert found[2].score < squash(5.0)


def test_nothing_in_gives_nothing_out() -> None:
    assert FittedVerifier(layer()).verify([]) == []


def test_other_weights_have_another_fingerprint_and_equal_ones_the_same() -> None:
    one = FittedVerifier(layer()).fingerprint
    assert one == FittedVerifier(layer()).fingerprint
    assert one != FittedVerifier(layer(intercept=1e-6)).fingerprint
    assert one != TrainedVerifier().fingerprint


@pytest.mark.parametrize("features", ["few", "all"])
def test_weights_for_other_numbers_are_refused_by_name(features: str) -> None:
    with pytest.raises(ConfigError, match=r"fitted\.weights: 7 weights, and the verifier has"):
        FittedVerifier(layer(features=features, weights=(0.1,) * 7))


class Bland:
    """Finds all texts alike."""

    name, fingerprint, dimension = "bland", "b1", 2

    def embed(self, texts: Any) -> Any:
        return np.tile(np.array([1, 0], np.float32), (len(texts), 1))


def test_the_chain_is_opened_by_its_weights() -> None:
    chain = open_chain("fitted", Bland(), fitted=layer(intercept=1.0))
    assert chain.fingerprint.chain == "fitted"
    assert chain.fingerprint.verifier == FittedVerifier(layer(intercept=1.0)).fingerprint
    with pytest.raises(ConfigError, match="fitted: weights are needed"):
        open_chain("fitted", Bland())


def test_the_groups_that_weigh_most_come_first_and_idle_ones_not_at_all() -> None:
    weights = [0.0] * COUNT
    weights[1] = -3.0
    of_shape = [at for at, group in enumerate(number_groups()) if group == "shape"]
    weights[of_shape[0]], weights[of_shape[1]] = 3.0, 4.0
    assert heaviest(layer(weights=tuple(weights))) == [("shape", 5.0), ("cosines", 3.0)]

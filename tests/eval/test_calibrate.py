"""What is picked and certified, what the artefact says, and that `score` decides as the tier."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Any

import pytest
from chain_parts import Angles, Telling, WordGate, pairs

from trivet.eval.calibrate import Calibrated, Wanted, calibrate
from trivet.eval.compare import compare, coverage
from trivet.eval.pair_files import PairFile
from trivet.eval.pairs import Contexts, LabelledPair
from trivet.eval.score import judge_pairs, other_parts, totals
from trivet.policies.economics import Economics
from trivet.policies.intents import Intent
from trivet.semantic.chain import Chain

TODAY = date(2026, 11, 30)
ANGLES = Angles()
COSINE = Chain("cosine", ANGLES, gate=WordGate())
VERIFIER = Chain("verifier", ANGLES, Telling(), WordGate())
GOOD = pairs(300, True) + pairs(100, False, "far", 160.0)[50:]
TRAPS = pairs(150, True) + pairs(75, False, "trap", 20.0)


def made(
    some: Sequence[LabelledPair], *chains: Chain, target: float = 0.02, **wanted: Any
) -> Calibrated:
    want = Wanted(target, wanted.pop("confidence", 0.95), **wanted)
    return calibrate(chains or (COSINE,), PairFile(tuple(some)), want, TODAY)


class TestThreshold:
    def test_what_is_certified_is_measured_at_the_threshold(self) -> None:
        found = made(GOOD).calibration
        assert found.threshold is not None
        assert (found.measured.hits, found.measured.false_hits) == (260, 0)
        assert (found.measured.pairs, found.measured.same) == (350, 300)
        assert found.measured.upper_bound <= 0.02
        assert found.needed is None

    def test_too_few_pairs_say_how_many_hits_are_missing(self) -> None:
        found = made(pairs(100, True))
        assert found.calibration.threshold is None
        assert found.calibration.needed == 49
        assert found.shortfall is not None
        assert found.shortfall.pairs == 49
        assert found.calibration.measured.hits == 0

    def test_a_verifier_is_certified_where_the_cosine_is_not(self) -> None:
        assert made(TRAPS, COSINE, confidence=0.9).calibration.threshold is None
        assert made(TRAPS, VERIFIER, confidence=0.9).calibration.threshold is not None

    def test_an_objection_is_never_a_hit(self) -> None:
        some = pairs(200, True) + pairs(50, False, "never", 5.0)
        found = made(some, VERIFIER).calibration
        assert found.slices["never"].hits == 0
        assert found.measured.false_hits == 0


class TestAuto:
    def test_of_enough_pairs_those_set_aside_pick_the_chain(self) -> None:
        some = pairs(1050, True) + pairs(350, False, "trap", 20.0)
        found = made(some, VERIFIER, COSINE)
        assert found.calibration.fingerprint.chain == "verifier"
        assert found.chosen_on == 280
        assert set(found.prospects) == {"verifier", "cosine"}
        assert found.calibration.measured.pairs == 1120

    def test_of_equals_the_cheapest_is_picked(self) -> None:
        found = made(pairs(1400, True), VERIFIER, COSINE)
        assert found.calibration.fingerprint.chain == "cosine"

    def test_pairs_that_cannot_be_parted_test_every_chain_at_its_share(self) -> None:
        some = [
            LabelledPair(one.a, one.b, one.same, one.slice, group="all")
            for one in pairs(1050, True) + pairs(350, False, "trap", 20.0)
        ]
        found = made(some, VERIFIER, COSINE)
        assert found.calibration.fingerprint.chain == "verifier"
        assert found.chosen_on == 0
        assert found.calibration.measured.pairs == 1400
        assert any("each at 97.50% confidence" in note for note in found.notes)

    def test_of_too_few_the_first_is_tested_alone(self) -> None:
        found = made(TRAPS, VERIFIER, COSINE, confidence=0.9)
        assert found.calibration.fingerprint.chain == "verifier"
        assert found.calibration.threshold is not None
        assert any("only verifier was tested" in note for note in found.notes)

    def test_what_was_picked_by_all_labels_is_never_certified(self) -> None:
        class Blind(Telling):
            def verify(self, pairs: Any) -> Any:
                return Telling().verify(
                    [type(pair)(pair.stored, "trap", pair.cosine) for pair in reversed(pairs)]
                )

        blind = Chain("verifier", ANGLES, Blind(), WordGate())
        some = pairs(160, True) + pairs(80, False, "far", 160.0)[40:]
        assert made(some, COSINE).calibration.threshold is not None
        found = made(some, blind, COSINE).calibration
        assert (found.fingerprint.chain, found.threshold) == ("cosine", None)

    def test_every_text_is_embedded_once_for_all_chains(self) -> None:
        angles = Angles()
        chains = [Chain("verifier", angles, Telling()), Chain("cosine", angles)]
        made(TRAPS, *chains)
        assert len(angles.asked) == len(set(angles.asked))


class TestParts:
    def test_many_pairs_learn_where_to_start(self) -> None:
        top_is_bad = pairs(20, False, "top", 1.0) + [
            LabelledPair(one.a, f"{2 + float(one.b.split(':')[0]):.3f}:{one.b}", True)
            for one in pairs(6000, True, spread=30.0)
        ]
        found = made(top_is_bad).calibration
        assert found.threshold is not None
        assert found.measured.hits > 2000

    def test_what_is_held_out_has_no_part_and_is_measured(self) -> None:
        found = made(GOOD, holdout=0.2)
        assert found.held_out is not None
        assert found.held_out.pairs == 70
        assert found.calibration.measured.pairs == 280


class TestGate:
    def test_without_it_the_fingerprint_names_it_and_nothing_is_filtered(self) -> None:
        found = made(GOOD).calibration
        assert (found.gated, found.fingerprint.gate) == (None, "g1")

    def test_what_it_refuses_is_no_hit_and_the_slice_says_what_was_left(self) -> None:
        some = [*pairs(200, True), *pairs(50, True, "do")]
        found = made(some, admit=(Intent.INFORMATIONAL,)).calibration
        assert found.slices["gate"].pairs == 200
        assert found.slices["do"].hits == 0
        assert found.measured.pairs == 250

    def test_an_intent_that_can_be_certified_alone_has_a_threshold_of_its_own(self) -> None:
        some = [*pairs(400, True), *pairs(60, True, "when")]
        admit = (Intent.INFORMATIONAL, Intent.TIME)
        found = made(some, admit=admit).calibration
        assert set(found.intents) == {Intent.INFORMATIONAL}
        assert made(some).calibration.intents == {}


class TestArtefact:
    def test_scripts_need_20_pairs(self) -> None:
        some = [*pairs(200, True), *pairs(20, True, "да"), *pairs(19, True, "你")]
        assert made(some).calibration.scripts == ("cyrillic", "latin")

    def test_languages_need_20_pairs_that_tell_clearly(self) -> None:
        some = [
            *pairs(200, True),
            *pairs(20, True, "what is the"),
            *pairs(19, True, "wie ist das"),
        ]
        assert made(some).calibration.languages == ("en",)

    def test_a_score_of_0_or_less_is_no_threshold(self) -> None:
        some = pairs(300, True, spread=180.0)
        found = made(some).calibration
        assert found.threshold is not None
        assert found.threshold > 0
        assert found.curve[0].threshold < 0

    def test_worth_it_takes_the_bound_and_the_hit_rate(self) -> None:
        costs = Economics(call_cost=1.0, lookup_cost=0.0, false_hit_cost=40.0)
        dear = Economics(call_cost=1.0, lookup_cost=0.0, false_hit_cost=400.0)
        assert made(GOOD, hit_rate=0.3, costs=costs).calibration.worth_it is True
        assert made(GOOD, hit_rate=0.3, costs=dear).calibration.worth_it is False
        assert made(GOOD, hit_rate=0.3).calibration.worth_it is None

    def test_the_hit_rate_of_the_pairs_is_taken_only_when_asked(self) -> None:
        assert made(GOOD).calibration.hit_rate is None
        assert made(GOOD, hit_rate_from_pairs=True).calibration.hit_rate == 260 / 350

    def test_the_curve_counts_all_pairs(self) -> None:
        last = made(GOOD).calibration.curve[0]
        assert (last.hits, last.false_hits) == (350, 50)


class TestScore:
    def judged(self, some: Sequence[LabelledPair], admit: Any = None) -> Any:
        return judge_pairs(made(GOOD).calibration, COSINE, some, admit)

    def test_the_certifying_pairs_are_served_as_they_were_counted(self) -> None:
        found = made(TRAPS, VERIFIER, confidence=0.9).calibration
        counted = totals(judge_pairs(found, VERIFIER, TRAPS, None), 0.9)
        assert (counted.hits, counted.false_hits) == (
            found.measured.hits,
            found.measured.false_hits,
        )
        assert counted.upper_bound == found.measured.upper_bound
        assert counted.coverage == coverage(found)

    @pytest.mark.parametrize(
        ("pair", "served", "reason"),
        [
            (LabelledPair("0:q", "1:q", True), True, ""),
            (LabelledPair("0:q", "89:q", True), False, "below-threshold"),
            (LabelledPair("0:q", "0:r", True, context=Contexts("x", "y")), False, "context"),
            (LabelledPair("0:q", "0:do", True), False, "intent-action"),
            (LabelledPair("0:do", "0:q", True), False, "intent-action"),
        ],
    )
    def test_each_pair_has_the_reason_of_the_decision(
        self, pair: LabelledPair, served: bool, reason: str
    ) -> None:
        (one,) = self.judged([pair], (Intent.INFORMATIONAL,))
        assert (one.served, one.reason) == (served, reason)

    def test_an_objection_is_told_with_the_score(self) -> None:
        found = made(pairs(200, True), VERIFIER).calibration
        (one,) = judge_pairs(found, VERIFIER, [LabelledPair("0:q", "0:never", False)], None)
        assert (one.served, one.reason) == (False, "veto-never")
        assert one.score == pytest.approx(1.0)

    def test_without_a_threshold_nothing_is_served(self) -> None:
        found = made(pairs(10, True)).calibration
        assert {one.reason for one in judge_pairs(found, COSINE, GOOD, None)} == {"not-certified"}

    def test_another_chain_serves_nothing(self) -> None:
        other = Chain("cosine", Angles("e2"), gate=WordGate())
        found = made(GOOD).calibration
        assert other_parts(found, other) == ["embedder"]
        assert {one.reason for one in judge_pairs(found, other, GOOD, None)} == {"other-chain"}


class TestCompare:
    def test_a_calibration_is_not_worse_than_itself(self) -> None:
        found = made(GOOD).calibration
        compared = compare(found, found)
        assert (compared.same_chain, compared.worse) == (True, ())

    def test_what_is_certified_no_more_is_worse(self) -> None:
        old, new = made(GOOD).calibration, made(pairs(10, True)).calibration
        assert compare(old, new).worse == ("nothing is certified any more",)
        assert compare(new, old).worse == ()

    def test_fewer_same_pairs_of_one_data_set_are_worse(self) -> None:
        better = made(TRAPS, VERIFIER, target=0.2, confidence=0.5).calibration
        lower = made(TRAPS, COSINE, target=0.2, confidence=0.5).calibration
        assert lower.threshold is None or "same pairs" in compare(better, lower).worse[0]

    def test_a_looser_promise_is_worse(self) -> None:
        old, new = made(GOOD).calibration, made(GOOD, target=0.05, confidence=0.9).calibration
        assert len(compare(old, new).worse) == 2

    def test_pairs_that_change_sides_are_named_false_ones_first(self) -> None:
        old = made(TRAPS, VERIFIER, confidence=0.9).calibration
        new = old.model_copy(update={"threshold": 0.1})
        before, after = (judge_pairs(one, VERIFIER, TRAPS, None) for one in (old, new))
        found = compare(old, new, (before, after), after)
        assert (found.changed[0].same, found.changed[0].served) == (False, True)
        assert found.changed[0].reason == "below-threshold"
        assert any("wrongly" in reason for reason in found.worse)
        assert found.carried is not None

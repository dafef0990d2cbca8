"""What the counts of a tenant's intent say, and from when on."""

from __future__ import annotations

from typing import Any

from parts import calibration, policy

from trivet.policies.calibration import Measured
from trivet.policies.economics import Economics
from trivet.policies.semantic_model import SemanticPolicy
from trivet.semantic.confidence import audits_to_open, upper
from trivet.semantic.tally import Counts, Rules, closing, contradicted, digest_of

RULES = Rules()
ENOUGH = audits_to_open(0.02, RULES.alpha)


def measured(bound: float = 0.0198, **given: Any) -> SemanticPolicy:
    made = policy(**given)
    counts = Measured(pairs=400, same=200, hits=150, false_hits=0, upper_bound=bound)
    made.attach(calibration(measured=counts))
    return made


def costs(lookup: float = 0.0, false_hit: float = 1.0) -> Economics:
    return Economics(call_cost=0.01, lookup_cost=lookup, false_hit_cost=false_hit)


class TestContradicted:
    def test_nothing_speaks_against_a_tier_that_was_not_audited(self) -> None:
        assert not contradicted(Counts(), 0.02, RULES)

    def test_one_false_hit_is_no_proof(self) -> None:
        assert not contradicted(Counts(audits=1, false_hits=1), 0.02, RULES)

    def test_three_false_hits_of_three_are(self) -> None:
        assert contradicted(Counts(audits=3, false_hits=3), 0.02, RULES)

    def test_a_wide_upper_bound_is_no_proof_while_audits_are_few(self) -> None:
        few = Counts(audits=ENOUGH - 1, false_hits=1)
        assert upper(few.audits, few.false_hits, RULES.alpha) > 0.02
        assert not contradicted(few, 0.02, RULES)

    def test_an_upper_bound_above_the_target_counts_once_a_clean_run_would_be_certified(
        self,
    ) -> None:
        assert contradicted(Counts(audits=ENOUGH, false_hits=1), 0.02, RULES)
        assert not contradicted(Counts(audits=ENOUGH), 0.02, RULES)

    def test_patience_puts_that_off(self) -> None:
        patient = Rules(patience=4)
        assert not contradicted(Counts(audits=ENOUGH, false_hits=1), 0.02, patient)
        assert contradicted(Counts(audits=4 * ENOUGH, false_hits=9), 0.02, patient)


class TestClosing:
    def test_reports_close_once_they_are_surely_too_many_of_the_hits(self) -> None:
        assert closing(Counts(hits=20, reported=4), policy(), RULES) == "reports"

    def test_a_few_reports_among_many_hits_do_not(self) -> None:
        assert closing(Counts(hits=1000, reported=4), policy(), RULES) == ""

    def test_reports_do_not_count_before_there_were_twenty_hits(self) -> None:
        assert closing(Counts(hits=19, reported=19), policy(), RULES) == ""

    def test_more_reports_than_hits_are_as_many(self) -> None:
        assert closing(Counts(hits=20, reported=500), policy(), RULES) == "reports"

    def test_a_false_hit_that_costs_more_than_it_saves_closes_by_the_calibrations_bound(
        self,
    ) -> None:
        counts = Counts(lookups=100, hits=50)
        assert closing(counts, measured(economics=costs(false_hit=1.0)), RULES) == "economics"
        assert closing(counts, measured(economics=costs(false_hit=0.1)), RULES) == ""

    def test_the_running_bound_takes_over_once_there_were_enough_audits(self) -> None:
        given = measured(0.001, target_false_hits=0.1, economics=costs(false_hit=0.2))
        few, many = Counts(1, 0, 500, 250), Counts(600, 30, 5000, 2500)
        assert closing(few, given, RULES) == ""
        assert closing(many, given, RULES) == "economics"

    def test_economics_need_a_hundred_lookups(self) -> None:
        given = measured(economics=costs(false_hit=1.0))
        assert closing(Counts(lookups=99, hits=50), given, RULES) == ""

    def test_a_cache_that_is_still_empty_is_no_evidence_that_it_will_not_pay(self) -> None:
        given = measured(economics=costs(lookup=1e-5, false_hit=0.1))
        assert closing(Counts(lookups=100), given, RULES) == ""

    def test_lookups_that_surely_cost_more_than_the_hits_save_close(self) -> None:
        given = measured(economics=costs(lookup=1e-4, false_hit=0.1))
        assert closing(Counts(lookups=2000), given, RULES) == "economics"

    def test_nothing_is_weighed_without_costs_or_a_calibration(self) -> None:
        counts = Counts(lookups=5000, hits=1)
        assert closing(counts, measured(), RULES) == ""
        assert closing(counts, policy(economics=costs(lookup=0.1)), RULES) == ""

    def test_the_lower_bound_over_all_families_closes(self) -> None:
        assert closing(Counts(audits=10, false_hits=5), policy(), RULES) == "bound"


def test_the_digest_names_the_calibration() -> None:
    assert digest_of(calibration()) == digest_of(calibration())
    assert digest_of(calibration()) != digest_of(calibration(0.81))
    assert digest_of(None) == ""

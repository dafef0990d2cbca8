"""What is served, and the reason for everything that is not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from parts import FINGERPRINT, NOW, calibration, intention, neighbour, policy, standing

from trivet.policies.calibration import Fingerprint
from trivet.policies.intents import Intent
from trivet.semantic.decide import Decision, Standing, decide
from trivet.semantic.types import Verdict

SURE = Verdict(0.9)


def decided(verdict: Verdict = SURE, state: Standing | None = None, **settings: object) -> Decision:
    return decide(intention(), (neighbour(), verdict), state or standing(), policy(**settings), NOW)


def test_a_neighbour_above_the_threshold_is_served() -> None:
    found = decided()
    assert (found.kind, found.reason, found.score, found.threshold) == ("hit", "", 0.9, 0.8)


def test_a_score_at_the_threshold_is_served() -> None:
    assert decided(Verdict(0.8)).kind == "hit"


def test_a_score_below_the_threshold_is_a_miss() -> None:
    found = decided(Verdict(0.7999))
    assert (found.kind, found.reason) == ("miss", "below-threshold")


def test_assist_suggests_where_replace_serves() -> None:
    assert decided(mode="assist").kind == "assist"


@pytest.mark.parametrize("mode", ["off", "shadow"])
def test_other_modes_serve_nothing_and_say_what_they_would_have(mode: str) -> None:
    found = decided(mode=mode)
    assert (found.kind, found.reason, found.would_serve) == ("shadow", "mode", True)


@pytest.mark.parametrize("mode", ["assist", "replace"])
def test_without_a_calibration_nothing_is_served(mode: str) -> None:
    found = decided(state=Standing(FINGERPRINT, None), mode=mode)
    assert (found.kind, found.reason, found.would_serve) == ("shadow", "uncalibrated", False)


@pytest.mark.parametrize("field", ["chain", "embedder", "verifier", "gate"])
def test_a_calibration_of_another_chain_serves_nothing(field: str) -> None:
    other = Fingerprint(**{**FINGERPRINT.model_dump(), field: "cosine"})
    found = decided(state=standing(calibration(fingerprint=other)))
    assert (found.kind, found.reason) == ("shadow", "other-chain")


def test_a_calibration_that_certifies_nothing_serves_nothing() -> None:
    found = decided(state=standing(calibration(None)))
    assert (found.kind, found.reason) == ("shadow", "not-certified")


def test_a_score_or_a_threshold_that_is_no_number_serves_nothing() -> None:
    nothing = float("nan")
    assert decided(Verdict(nothing)).reason == "below-threshold"
    odd = calibration().model_copy(update={"threshold": nothing})
    assert decided(state=standing(odd)).reason == "below-threshold"


def test_an_intent_with_a_threshold_of_its_own_goes_by_that_one() -> None:
    own = calibration(intents={Intent.INFORMATIONAL: 0.95})
    assert decided(state=standing(own)).reason == "below-threshold"


@pytest.mark.parametrize("closed", ["bound", "economics"])
def test_what_the_running_measurement_closed_is_only_watched(closed: str) -> None:
    found = decided(state=standing(closed=closed))
    assert (found.kind, found.reason) == ("shadow", closed)


def test_a_veto_outweighs_any_score() -> None:
    found = decided(Verdict(1.0, "negation"))
    assert (found.kind, found.reason) == ("miss", "veto-negation")


def test_without_a_neighbour_it_is_a_miss() -> None:
    assert decide(intention(), None, standing(), policy(), NOW).reason == "no-neighbour"


def test_an_expired_neighbour_is_a_miss_from_its_last_second_on() -> None:
    near = neighbour(expires=NOW), SURE
    assert decide(intention(), near, standing(), policy(), NOW).reason == "expired"


def test_an_entry_in_quarantine_is_a_miss() -> None:
    near = neighbour(confirmed=False), SURE
    assert decide(intention(), near, standing(), policy(), NOW).reason == "quarantine"


@pytest.mark.parametrize("intent", [one for one in Intent if one is not Intent.INFORMATIONAL])
def test_only_what_the_policy_opens_is_looked_up(intent: Intent) -> None:
    near = neighbour(intent=intent), SURE
    closed = decide(intention(intent), near, standing(), policy(), NOW)
    assert (closed.kind, closed.reason) == ("miss", f"intent-{intent}")
    opened = decide(intention(intent), near, standing(), policy(intents=(intent,)), NOW)
    assert opened.kind == "hit"


def test_what_the_gate_is_not_sure_of_is_refused_in_an_open_intent_too() -> None:
    unsure = intention(admitted=False, reason="unsure")
    assert decide(unsure, (neighbour(), SURE), standing(), policy(), NOW).reason == "unsure"


def test_an_entry_stored_under_an_intent_that_was_closed_since_is_not_served() -> None:
    near = neighbour(intent=Intent.TIME), SURE
    assert decide(intention(), near, standing(), policy(), NOW).reason == "intent-time"


@given(
    score=st.floats(-1, 1),
    threshold=st.floats(0, 1, exclude_min=True) | st.none(),
    veto=st.sampled_from([None, "number"]),
    mode=st.sampled_from(["off", "shadow", "assist", "replace"]),
    closed=st.sampled_from(["", "bound"]),
    admitted=st.booleans(),
    confirmed=st.booleans(),
)
def test_an_answer_is_given_only_where_nothing_speaks_against_it(
    score: float,
    threshold: float | None,
    veto: str | None,
    mode: str,
    closed: str,
    admitted: bool,
    confirmed: bool,
) -> None:
    found = decide(
        intention(admitted=admitted),
        (neighbour(confirmed=confirmed), Verdict(score, veto)),
        standing(calibration(threshold), closed=closed),
        policy(mode=mode),
        NOW,
    )
    allowed = (
        admitted
        and confirmed
        and veto is None
        and threshold is not None
        and score >= threshold
        and not closed
        and mode in ("assist", "replace")
    )
    assert (found.kind in ("hit", "assist")) == allowed
    assert (found.reason == "") == allowed

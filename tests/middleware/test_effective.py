"""What a policy's semantic mode comes to, by what is known."""

from __future__ import annotations

from dataclasses import asdict

import pytest
from parts import calibration

from trivet.middleware.semantic_tier.effective import Effective, Running, effective
from trivet.policies.intents import Intent
from trivet.policies.semantic_model import Mode, SemanticPolicy

OPEN = (Intent.INFORMATIONAL, Intent.TIME)


def policy(
    mode: Mode = "replace", threshold: float | None = 0.9, cal: bool = True
) -> SemanticPolicy:
    made = SemanticPolicy(mode=mode, intents=OPEN)
    if cal:
        made.attach(calibration(threshold))
    return made


@pytest.mark.parametrize(
    ("settings", "running", "acts_as", "reason"),
    [
        (policy("off", cal=False), None, "off", ""),
        (policy("shadow"), None, "shadow", ""),
        (policy("shadow", cal=False), None, "shadow", "uncalibrated"),
        (policy(), None, "replace", ""),
        (policy("assist"), Running(), "assist", ""),
        (policy(cal=False), None, "shadow", "uncalibrated"),
        (policy(cal=False), Running("uncalibrated"), "shadow", "uncalibrated"),
        (policy(threshold=None), None, "shadow", "not-certified"),
        (policy(), Running("other-chain", "another embedder"), "shadow", "other-chain"),
        (policy(), Running("loading"), "off", "loading"),
        (policy("shadow"), Running("unavailable", "no numpy"), "off", "unavailable"),
        (policy(), Running(closed={"informational": "bound"}), "replace", ""),
        (
            policy(),
            Running(closed={"informational": "bound", "time": "reports"}),
            "shadow",
            "bound",
        ),
    ],
)
def test_the_mode_and_why(
    settings: SemanticPolicy, running: Running | None, acts_as: Mode, reason: str
) -> None:
    found = effective(settings, running)
    assert (found.mode, found.acts_as, found.reason) == (settings.mode, acts_as, reason)


@pytest.mark.parametrize(
    ("settings", "running", "told"),
    [
        (policy("shadow"), None, "shadow"),
        (policy(), Running(), "replace"),
        (policy(), None, "replace (if the models that run are those of the calibration)"),
        (
            policy(cal=False),
            None,
            "replace, but acts as shadow (uncalibrated): the policy names no calibration "
            "(trivet eval calibrate makes one)",
        ),
        (
            policy("assist"),
            Running("other-chain", "another embedder and gate"),
            "assist, but acts as shadow (other-chain): the calibration is of another chain than "
            "the one that runs: another embedder and gate",
        ),
        (
            policy(),
            Running(closed={"time": "economics"}),
            "replace (closed by measurement: time (economics))",
        ),
        (
            policy(),
            Running(closed={"informational": "bound", "time": "bound"}),
            "replace, but acts as shadow (bound): closed by measurement: informational (bound), "
            "time (bound)",
        ),
        (
            policy(),
            Running("embedder-missing", "no/such (cosine): not there"),
            "replace, but acts as off (embedder-missing): its models cannot be opened: "
            "no/such (cosine): not there",
        ),
    ],
)
def test_it_is_told_in_one_line(
    settings: SemanticPolicy, running: Running | None, told: str
) -> None:
    assert effective(settings, running).text == told


def test_both_travel_as_json() -> None:
    running = Running("other-chain", "another gate", {"time": "bound"})
    assert Running(**asdict(running)) == running
    found = effective(policy(), running)
    assert Effective(**asdict(found)) == found


def test_no_open_intent_is_nothing_that_a_measurement_closed() -> None:
    assert effective(SemanticPolicy(mode="shadow", intents=()), Running()).acts_as == "shadow"

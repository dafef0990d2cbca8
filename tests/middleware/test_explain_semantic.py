"""What explain says about the semantic tier, without loading a model."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from parts import calibration

from trivet.messages import Request
from trivet.middleware.dialects.chat import ChatDialect
from trivet.middleware.explain.semantic import SemanticView, semantic_view
from trivet.middleware.semantic_tier.effective import Running
from trivet.policies.directives import NONE
from trivet.policies.eligibility import eligibility
from trivet.policies.intents import Intent
from trivet.policies.model import ExactSettings, TenantPolicy
from trivet.policies.semantic_model import SemanticPolicy


def request(**more: Any) -> Request:
    messages = [{"role": "user", "content": "How do I reset it?"}]
    body = {"model": "m", "temperature": 0, "messages": messages, **more}
    return ChatDialect().decode(orjson.dumps(body), {})


def view(settings: SemanticPolicy, **more: Any) -> SemanticView:
    policy = TenantPolicy(tenant="t1")
    asked = request(**more)
    return semantic_view(asked, settings, eligibility(asked, policy, policy.exact, NONE, None))


def measured(threshold: float | None = 0.91) -> SemanticPolicy:
    settings = SemanticPolicy(mode="replace")
    settings.attach(calibration(threshold))
    return settings


TURNS = [
    {"role": "user", "content": "a"},
    {"role": "assistant", "content": "b"},
    {"role": "user", "content": "c"},
]


@pytest.mark.parametrize(
    ("reason", "settings", "more"),
    [
        ("off", SemanticPolicy(), {}),
        ("sampled", measured(), {"temperature": 1}),
        ("tools", measured(), {"tools": [{"type": "function", "function": {"name": "f"}}]}),
        ("turns", measured(), {"messages": TURNS}),
        ("multi-part", measured(), {"messages": [{"role": "user", "content": []}]}),
        ("not-a-question", measured(), {"messages": TURNS[:2]}),
    ],
)
def test_a_tier_that_takes_no_part_says_why(
    reason: str, settings: SemanticPolicy, more: dict[str, Any]
) -> None:
    found = view(settings, **more)
    assert (found.open, found.reason) == (False, reason)


@pytest.mark.parametrize(
    ("reason", "settings"),
    [
        ("shadow-mode", SemanticPolicy(mode="shadow")),
        ("shadow-uncalibrated", SemanticPolicy(mode="assist")),
        ("shadow-not-certified", measured(None)),
    ],
)
def test_a_tier_that_only_watches_says_why(reason: str, settings: SemanticPolicy) -> None:
    found = view(settings)
    assert (found.open, found.reason) == (True, reason)
    assert "serves nothing" in found.detail


@pytest.mark.parametrize(
    ("running", "wanted"),
    [
        (Running("other-chain", "another gate"), (True, "shadow-other-chain", "another gate")),
        (Running(closed={"informational": "bound"}), (True, "shadow-bound", "closed by")),
        (Running("loading"), (False, "loading", "being loaded")),
        (Running(), (True, "", "serves at a score")),
    ],
)
def test_what_a_running_tier_knows_is_told(running: Running, wanted: tuple[bool, str, str]) -> None:
    policy = TenantPolicy(tenant="t1")
    plan = eligibility(request(), policy, policy.exact, NONE, None)
    found = semantic_view(request(), measured(), plan, running)
    assert (found.open, found.reason) == wanted[:2]
    assert wanted[2] in found.detail


def test_of_several_intents_the_closed_ones_are_named() -> None:
    settings = measured().model_copy(update={"intents": (Intent.INFORMATIONAL, Intent.TIME)})
    settings.attach(calibration(0.91))
    plan = eligibility(request(), TenantPolicy(tenant="t1"), ExactSettings(), NONE, None)
    found = semantic_view(request(), settings, plan, Running(closed={"time": "bound"}))
    assert (found.open, found.reason) == (True, "")
    assert found.detail.endswith("closed by measurement: time (bound)")


def test_a_measured_tier_says_from_which_score_it_serves_and_with_which_bound() -> None:
    found = view(measured())
    assert (found.open, found.reason) == (True, "")
    assert "serves at a score of 0.9100 and more" in found.detail
    assert "at most 1.98% false at 95% confidence" in found.detail

"""What `trivet explain` says about the semantic tier: all that is known without its models."""

from __future__ import annotations

from typing import NamedTuple

from trivet.messages import Request
from trivet.middleware.semantic_tier.asking import asked_of
from trivet.middleware.semantic_tier.effective import Running, effective
from trivet.policies.eligibility import Bypass, Eligible
from trivet.policies.semantic_model import SemanticPolicy
from trivet.semantic.asked import Asked


class SemanticView(NamedTuple):
    """Whether the tier takes part, a reason as a metric label, and the same in words."""

    open: bool
    reason: str
    detail: str


_WHY = {
    "too-large": "the request is larger than 256 KiB",
    "tools": "the request offers tools (semantic.tools: allow)",
    "turns": "the conversation has more user messages than semantic.max_turns",
    "api": "this API has no user messages to compare",
    "unreadable": "the request cannot be read by an embedder",
    "not-a-question": "the conversation does not end with a user message",
    "multi-part": "the last user message is not one text",
    "empty": "the last user message is empty",
    "too-long": "the last user message is longer than an embedder reads (300 characters)",
}


def semantic_view(
    request: Request,
    policy: SemanticPolicy,
    plan: Eligible | Bypass,
    running: Running | None = None,
) -> SemanticView:
    """Decide what can be decided from the request, the policy, and what is known of the tier."""
    if policy.mode == "off":
        return SemanticView(False, "off", "the policy leaves the tier off (semantic.mode)")
    if isinstance(plan, Bypass):
        return SemanticView(False, plan.reason, "answers are the exact tier's, which is bypassed")
    if not plan.lookup or plan.pool:
        return SemanticView(False, "no-lookup", "the exact tier does not look up, or draws")
    asked = asked_of(request, policy)
    if not isinstance(asked, Asked):
        return SemanticView(False, asked, _WHY[asked])
    return _by_measurement(policy, running)


def _by_measurement(policy: SemanticPolicy, running: Running | None) -> SemanticView:
    opens = ", ".join(policy.intents)
    looks = f"looks up the last user message if the gate says {opens}"
    found, measured = effective(policy, running), policy.measured
    if found.acts_as == "off":
        return SemanticView(False, found.reason, found.detail)
    if policy.mode == "shadow":
        return SemanticView(True, "shadow-mode", f"{looks}; serves nothing (semantic.mode)")
    if found.acts_as == "shadow" or measured is None:
        told = f"serves nothing, though the policy says {policy.mode}: {found.detail}"
        return SemanticView(True, f"shadow-{found.reason}", f"{looks}; {told}")
    chain = f"{measured.fingerprint.chain} of {measured.made}"
    does = "serves" if policy.mode == "replace" else "suggests"
    closed = f"; {found.detail}" if running is not None and found.detail else ""
    return SemanticView(
        True,
        "",
        f"{looks}; {does} at a score of {measured.threshold:.4f} and more ({chain}, at most "
        f"{measured.measured.upper_bound:.2%} false at {measured.confidence:.0%} confidence)"
        f"{closed}",
    )

"""What the semantic tier does for a tenant, whatever mode its policy names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from trivet.policies.semantic_model import Mode, SemanticPolicy
from trivet.semantic.decide import unfit

_WHY = {
    "uncalibrated": "the policy names no calibration (trivet eval calibrate makes one)",
    "not-certified": "the calibration certifies no threshold, so nothing is served",
    "other-chain": "the calibration is of another chain than the one that runs",
    "loading": "its models are being loaded",
    "unavailable": "the tier serves nothing",
    "embedder-missing": "its models cannot be opened",
    "verifier-missing": "its verifier cannot be opened",
}
_AWAY = frozenset({"loading", "unavailable", "embedder-missing", "verifier-missing"})
"""The models do not run: nothing is looked up."""


@dataclass(frozen=True, slots=True)
class Running:
    """What only a running tier knows about a tenant. Travels between processes as JSON."""

    reason: str = ""
    """`loading`, `unavailable`, `embedder-missing`, `verifier-missing`, or one of `decide.unfit`;
    empty where the calibration is that of the chain."""
    detail: str = ""
    """More about the reason, for people."""
    closed: Mapping[str, str] = field(default_factory=dict)
    """Intents that the running measurement has closed, and why."""


@dataclass(frozen=True, slots=True)
class Effective:
    """A policy's mode and what it comes to. `reason` is a metric label, `detail` is for people."""

    mode: Mode
    acts_as: Mode
    reason: str = ""
    detail: str = ""

    @property
    def text(self) -> str:
        """One line."""
        if self.acts_as == self.mode:
            return f"{self.mode} ({self.detail})" if self.detail else self.mode
        return f"{self.mode}, but acts as {self.acts_as} ({self.reason}): {self.detail}"


def effective(policy: SemanticPolicy, running: Running | None = None) -> Effective:
    """Without `running`, what can be known of the files alone."""
    mode = policy.mode
    if mode == "off":
        return Effective(mode, mode)
    reason = _unfit(policy) if running is None or not running.reason else running.reason
    more = "" if running is None or not running.detail else f": {running.detail}"
    told = _WHY.get(reason, reason) + more
    if reason in _AWAY:
        return Effective(mode, "off", reason, told)
    if mode == "shadow":
        return Effective(mode, mode, reason, f"it measures nothing: {told}" if reason else "")
    if reason:
        return Effective(mode, "shadow", reason, told)
    return _serving(policy, running)


def _unfit(policy: SemanticPolicy) -> str:
    """As far as the calibration itself says so: which chain runs is not known here."""
    return "uncalibrated" if policy.measured is None else unfit(policy, policy.measured.fingerprint)


def _serving(policy: SemanticPolicy, running: Running | None) -> Effective:
    mode = policy.mode
    if running is None:
        return Effective(mode, mode, "", "if the models that run are those of the calibration")
    closed = {intent: running.closed.get(intent, "") for intent in policy.intents}
    named = [f"{intent} ({reason})" for intent, reason in closed.items() if reason]
    told = f"closed by measurement: {', '.join(named)}" if named else ""
    if all(closed.values()):
        return Effective(mode, "shadow", next(iter(closed.values()), "closed"), told)
    return Effective(mode, mode, "", told)

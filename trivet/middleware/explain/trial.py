"""What the semantic tier would decide about a request now: gate, nearest stored question, decision.

A lookup and nothing else: the embedder is asked, but nothing is served, learned or counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trivet.exact.key import exact_key
from trivet.middleware.explain.considered import Case
from trivet.middleware.semantic_tier.asking import asked_of
from trivet.policies.eligibility import Eligible
from trivet.policies.model import TenantPolicy
from trivet.semantic.asked import Asked

if TYPE_CHECKING:
    from trivet.semantic.tier import Asking, Looked


def asking_of(case: Case, policy: TenantPolicy) -> Asking | str:
    """What the tier is asked; a string is why it is not."""
    from trivet.semantic.tier import Asking

    if policy.semantic.mode == "off":
        return "off"
    if not isinstance(case.plan, Eligible) or not case.plan.lookup or case.plan.pool:
        return "no-lookup"
    asked = asked_of(case.request, policy.semantic)
    if not isinstance(asked, Asked):
        return asked
    scope = case.parts.scope
    return Asking(
        tenant=scope.tenant,
        scope=scope.tenant if scope.user is None else f"{scope.tenant}\n{scope.user}",
        policy=policy.semantic,
        text=asked.text,
        rest=exact_key(case.parts._replace(canonical=asked.rest)),
        principal="",
        may_write=False,
    )


def trial(looked: Looked, *, text: bool) -> dict[str, Any]:
    """What a lookup found, JSON-able. `text`: the policy lets texts be shown."""
    intention, decision = looked.intention, looked.decision
    near = decision.neighbour
    return {
        "asked": looked.asking.text,
        "gate": None
        if intention is None
        else {
            "intent": str(intention.intent),
            "admitted": intention.admitted,
            "reason": intention.reason,
            "score": intention.score,
        },
        "neighbour": None
        if near is None
        else {
            "id": near.record.id,
            "text": near.record.text if text else None,
            "cosine": near.cosine,
            "created": near.record.created,
            "expires": near.record.expires,
        },
        "kind": decision.kind,
        "reason": decision.reason,
        "score": decision.score,
        "threshold": decision.threshold,
    }

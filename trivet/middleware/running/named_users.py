"""A warning about policies that trust what a caller says of itself."""

from __future__ import annotations

from trivet.errors import Problem
from trivet.policies.model import TenantPolicy
from trivet.policies.tenants import PolicySet


def nameable_users(policies: PolicySet) -> list[Problem]:
    """Tenants whose `writers` or `quarantine` go by a user that the request's body names."""
    return [
        policies.problem(
            tenant,
            ("semantic", name),
            "goes by the end user that the body names, and a caller can name any: set "
            "exact.user_from to a header that only your gateway sets.",
        )
        for tenant, policy in sorted(policies.tenants.items())
        for name in ("writers", "quarantine")
        if getattr(policy.semantic, name) is not None and _from_body(policy)
    ]


def _from_body(policy: TenantPolicy) -> bool:
    exact = policy.exact
    return "body" in (exact.user_from, *(rule.user_from for rule in exact.rules))

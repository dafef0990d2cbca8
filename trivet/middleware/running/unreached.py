"""A warning about tenants that no caller can be."""

from __future__ import annotations

from trivet.errors import Problem
from trivet.policies.tenants import PolicySet


def unreached(policies: PolicySet, *, gateway: bool) -> list[Problem]:
    """Tenants without a credential that can be shown. `gateway`: one is declared, or may be."""
    none = "names none, so nobody can reach this tenant: add one (`trivet keygen`)."
    useless = (
        "name what a gateway sends, and the server config declares no gateway, so nobody can reach "
        "this tenant: declare one there, or add the sha256 of a key (`trivet keygen`)."
    )
    return [
        policies.problem(tenant, ("credentials",), useless if policy.credentials else none)
        for tenant, policy in sorted(policies.tenants.items())
        if not any(one.sha256 or (one.gateway and gateway) for one in policy.credentials)
    ]

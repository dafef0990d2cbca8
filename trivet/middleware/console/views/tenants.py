"""Tenants: what each one's policy is, what it used, and what a pasted policy would change."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from trivet.errors import RequestError
from trivet.middleware.console.pages import Asked
from trivet.middleware.console.views.overview import totals
from trivet.middleware.console.views.policy_diff import Change, difference, flat
from trivet.middleware.observe.figures import AT, NAMES
from trivet.policies.model import TenantPolicy

_SHARED: Final = frozenset({"sqlite", "redis"})
"""Stores that processes have in common: what one of them says holds for all."""
_MOST_IN_TEXT: Final = 1 << 20

Json = dict[str, Any]


async def show(asked: Asked) -> Json:
    """All tenants, with what was counted of each since the processes started."""
    told = await asked.control.tell("tenants")
    policies = asked.control.policies()
    return {
        "now": time.time(),
        "since": asked.history.began,
        "version": policies["version"],
        "declared": bool(policies["tenants"]),
        "tenants": lines(policies["tenants"], told),
    }


async def show_one(asked: Asked) -> Json:
    """One tenant: its policy and its use. Raises `RequestError` 404 for one that nobody knows."""
    tenant = asked.query.get("tenant", "")
    policies = asked.control.policies()
    sums = merged(await asked.control.tell("tenants"))
    policy = policies["tenants"].get(tenant)
    if policy is None and tenant not in sums:
        raise RequestError(404, f"No policy and no request names the tenant {tenant!r}.")
    usage = await asked.control.tell("usage", tenant)
    return {
        "now": time.time(),
        "since": asked.history.began,
        "tenant": tenant,
        "declared": policy is not None,
        "version": policies["version"],
        "versions": {} if policy is None else policy["versions"],
        "limits": {} if policy is None else policy["limits"],
        "total": sums_of(sums.get(tenant, {})),
        "stores": stores_of([one["store"] for one in usage]),
        "in_flight": sum(one["in_flight"] for one in usage),
        "settings": [] if policy is None else settings_of(policy),
    }


async def take_policy(asked: Asked) -> Json:
    """Check a pasted policy (`text`): findings, and how it differs from the one in use."""
    text = asked.body.get("text")
    if not isinstance(text, str) or not text.strip():
        raise RequestError(422, "Paste a policy file's text.", field="text")
    if len(text) > _MOST_IN_TEXT:
        raise RequestError(413, "A policy file has at most 1 MiB.", field="text")
    found = await asked.control.check_policy(text)
    before, policy = found.pop("before"), found.pop("policy")
    changes: list[Change] = []
    if policy is not None:
        base = before or defaults_of(policy["tenant"])
        changes = difference(shown(base), shown(policy))
    return {
        **found,
        "ok": not found["problems"],
        "replaces": before is not None,
        "changes": [change._asdict() for change in changes],
    }


def lines(policies: Mapping[str, Json], told: Sequence[Mapping[str, Any]]) -> list[Json]:
    """One line for each tenant that a policy declares or that asked something."""
    sums = merged(told)
    return [
        {
            "tenant": tenant,
            "declared": tenant in policies,
            "semantic": policies[tenant]["semantic"]["mode"] if tenant in policies else None,
            "total": sums_of(sums.get(tenant, {})),
        }
        for tenant in sorted({*policies, *sums})
    ]


def merged(told: Iterable[Mapping[str, Mapping[str, float]]]) -> dict[str, dict[str, float]]:
    """The sums of all processes."""
    sums: dict[str, dict[str, float]] = {}
    for process in told:
        for tenant, counted in process.items():
            of_tenant = sums.setdefault(tenant, {})
            for name, amount in counted.items():
                of_tenant[name] = of_tenant.get(name, 0.0) + amount
    return sums


def sums_of(counted: Mapping[str, float]) -> Json:
    """A tenant's sums as the overview tells them, without the times: those are not kept apart."""
    row = [0.0] * len(NAMES)
    for name, amount in counted.items():
        if name in AT:
            row[AT[name]] = amount
    told = totals(row)
    return {name: told[name] for name in told if name not in ("latency", "seconds")}


def stores_of(told: Sequence[Mapping[str, Any]]) -> list[Json]:
    """What a tenant holds by store. Stores that processes share are told once."""
    stores: dict[str, Json] = {}
    for one in told:
        known = stores.get(one["name"])
        if known is None or known.get("error"):
            stores[one["name"]] = dict(one)
        elif one["name"] not in _SHARED and not one.get("error"):
            for name in ("entries", "bytes"):
                both = (known[name], one[name])
                known[name] = None if None in both else sum(both)
    return list(stores.values())


def settings_of(policy: Json) -> list[Json]:
    """Every setting with its value, and whether it is the default."""
    usual = flat(shown(defaults_of(policy["tenant"])))
    return [
        {"name": name, "value": value, "default": name in usual and usual[name] == value}
        for name, value in flat(shown(policy)).items()
        if name not in ("tenant",)
    ]


def shown(policy: Json) -> Json:
    """A policy with each credential's kind in its place: its hash says too much."""
    kinds = ["gateway" if one.get("gateway") else "key" for one in policy["credentials"]]
    marks = [str(one.get("sha256") or one.get("gateway") or "") for one in policy["credentials"]]
    told = [f"{kind} {mark[:4]}..." for kind, mark in zip(kinds, marks, strict=True)]
    return {**policy, "credentials": told}


def defaults_of(tenant: str) -> Json:
    """The policy of a file that says nothing but its tenant."""
    return TenantPolicy(tenant=tenant).model_dump(mode="json")

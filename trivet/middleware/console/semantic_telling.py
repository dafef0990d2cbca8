"""What one process tells the console about similar answers: topics `semantic`, `semantic-tenant`,
`semantic-rows` and `semantic-verdict`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from trivet.errors import RequestError
from trivet.metric_names import SEMANTIC_LOOKUPS
from trivet.middleware.admin.operations import Operations, Teller
from trivet.middleware.semantic_tier.effective import effective
from trivet.policies.model import TenantPolicy

if TYPE_CHECKING:
    from trivet.middleware.semantic_tier.insight import Insight

_SLICE: Final = 50
"""Tenants that are looked at before other tasks get their turn."""


def semantic_tellers(operations: Operations) -> dict[str, Teller]:
    """`semantic`: every tenant that has the tier on. `semantic-tenant`: one of them, in full.
    `semantic-rows`: given tenant, kind (`hit_log.Kind`) and a time, the rows before it.
    `semantic-verdict`: given tenant, row and verdict, what came of it; None where this process does
    not have the row."""

    async def semantic(_: Any) -> dict[str, Any]:
        on = [one for one in operations.tenants.values() if one.semantic.mode != "off"]
        found: dict[str, Mapping[str, Any]] = {}
        for number, one in enumerate(on, 1):
            found[one.tenant] = _summary(operations, one)
            if number % _SLICE == 0:
                await asyncio.sleep(0)
        off = len(operations.tenants) - len(on)
        return {"worker": os.getpid(), "off": off, "tenants": found}

    async def tenant(asked: Any) -> dict[str, Any]:
        policy = _policy(operations, asked)
        measured, costs = policy.semantic.measured, policy.semantic.economics
        return {
            "worker": os.getpid(),
            **_summary(operations, policy),
            "calibration": None if measured is None else measured.model_dump(mode="json"),
            "economics": None if costs is None else costs.model_dump(mode="json"),
            "audit": policy.semantic.audit.model_dump(mode="json"),
            "store_text": policy.semantic.store_text,
            "lookups": _lookups(operations, policy.tenant),
        }

    async def rows(asked: Any) -> list[dict[str, Any]]:
        name, kind, before = asked
        policy, insight = _policy(operations, name), _insight(operations)
        return [] if insight is None else await insight.rows(policy, kind, before)

    async def verdict(asked: Any) -> dict[str, Any] | None:
        name, row, said = asked
        policy, insight = _policy(operations, name), _insight(operations)
        return None if insight is None else await insight.judge(policy, row, said)

    return {
        "semantic": semantic,
        "semantic-tenant": tenant,
        "semantic-rows": rows,
        "semantic-verdict": verdict,
    }


def _insight(operations: Operations) -> Insight | None:
    return None if operations.semantics is None else operations.semantics.insight


def _policy(operations: Operations, tenant: Any) -> TenantPolicy:
    policy = operations.tenants.get(tenant)
    if policy is None:
        raise RequestError(404, f"No policy declares the tenant {tenant!r}.", field="tenant")
    return policy


def _summary(operations: Operations, policy: TenantPolicy) -> Mapping[str, Any]:
    running, insight = operations.running(policy), _insight(operations)
    acts = effective(policy.semantic, running)
    counts = {"book": "", "cells": [], "rows": {}} if insight is None else insight.counts(policy)
    return {
        "mode": acts.mode,
        "acts_as": acts.acts_as,
        "reason": acts.reason,
        "detail": acts.detail,
        "embedder": policy.semantic.embedder,
        "intents": [str(one) for one in policy.semantic.intents],
        "target": policy.semantic.target_false_hits,
        "closed": {} if running is None else dict(running.closed),
        **counts,
    }


def _lookups(operations: Operations, tenant: str) -> list[list[Any]]:
    """Intent, kind, reason and count since this process began."""
    counted = operations.snapshot()["counters"].get(SEMANTIC_LOOKUPS.name, [])
    return [[*named[1:], int(count)] for named, count in counted if named[0] == tenant]

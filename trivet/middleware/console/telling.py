"""What one process tells the console, by topic. Cheap to import: every process has it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from trivet.errors import StoreError
from trivet.exact.store import ExactStore
from trivet.middleware.admin.operations import Operations, Teller
from trivet.middleware.explain.explaining import Explainer
from trivet.middleware.explain.trial import asking_of, trial
from trivet.middleware.observe.figures import row_of
from trivet.middleware.observe.metrics import PrometheusObserver
from trivet.middleware.observe.recent import RecentRequests
from trivet.middleware.observe.tenant_sums import Sums, tenant_sums


def tellers_of(
    metrics: PrometheusObserver,
    flood: Callable[[], Mapping[str, Any] | None],
    recent: RecentRequests,
) -> dict[str, Teller]:
    """`figures`: this process's number and row. `flood`: what the guard knows. `recent`: the last
    requests, newest first, as `Recent` in the order of its fields; asked with `count` and, for one
    tenant's only, `tenant`. `failures`: of those requests,
    which upstream failed why, and how often. `tenants`: sums by tenant."""

    async def figures(_: Any) -> list[Any]:
        return [os.getpid(), row_of(metrics)]

    async def flooding(_: Any) -> Mapping[str, Any] | None:
        return flood()

    async def newest(asked: Any) -> list[list[Any]]:
        found = recent.newest(int(asked["count"]), asked.get("tenant"))
        return [list(one) for one in found]

    async def failures(_: Any) -> dict[str, Any]:
        rows = [[*named, number] for named, number in recent.failures().items()]
        return {"of": len(recent), "rows": rows}

    async def tenants(_: Any) -> Sums:
        return tenant_sums(metrics)

    return {
        "figures": figures,
        "flood": flooding,
        "recent": newest,
        "failures": failures,
        "tenants": tenants,
    }


def usage_teller(store: ExactStore, in_flight: Callable[[str], int]) -> Teller:
    """`usage`: what one tenant holds of this process's store, and its requests in flight."""

    async def usage(tenant: Any) -> dict[str, Any]:
        try:
            stored: dict[str, Any] = asdict(await store.usage(tenant))
        except StoreError as error:
            stored = {"name": store.name, "error": error.reason}
        return {"store": stored, "in_flight": in_flight(tenant)}

    return usage


def look_teller(operations: Operations, explainer: Explainer) -> Teller:
    """`look`: asked with `path`, `headers`, `body` and `tenant` of a request, what the semantic
    tier of this process would decide about it; a `reason` alone where it is not asked."""

    async def look(asked: Any) -> dict[str, Any]:
        of_request = (asked["path"], asked["headers"], asked["body"].encode())
        directory = operations.directory
        found = explainer.considered(directory, *of_request, tenant=asked["tenant"])
        if found is None:
            return {"reason": "nobody"}
        case, policy = found
        asking = asking_of(case, policy)
        if isinstance(asking, str):
            return {"reason": asking}
        semantics = operations.semantics
        looked = None if semantics is None else await semantics.look(asking)
        if looked is None:
            return {"reason": "loading"}
        return trial(looked, text=policy.semantic.store_text)

    return look

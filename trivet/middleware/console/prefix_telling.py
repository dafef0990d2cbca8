"""What one process tells the console about prefix caches: topics `prefix`, `prefix-replicas` and
`prefix-route`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

from trivet.metric_names import PREFIX_BREAKS, PREFIX_LOST, REPLICA_REQUESTS, REPLICA_TOKENS
from trivet.middleware.admin.operations import Operations, Teller
from trivet.middleware.fleets.replicas import ReplicaSet
from trivet.middleware.prefix_tier.route_log import RouteLog

_OF_REPLICAS: Final = (REPLICA_REQUESTS.name, REPLICA_TOKENS.name)
_OF_ROUTES: Final = (PREFIX_BREAKS.name, PREFIX_LOST.name)


def prefix_tellers(
    log: RouteLog, replicas: Mapping[str, ReplicaSet], operations: Operations
) -> dict[str, Teller]:
    """`prefix`: the routes. `prefix-replicas`: the replicas. `prefix-route`: one route, given its
    tenant and its name; None where this process has not seen it."""

    def settle() -> None:
        tenants = operations.tenants.items()
        log.forget_texts([name for name, one in tenants if one.prefix.keep_text])

    def counted(names: tuple[str, ...]) -> dict[str, Any]:
        counters = operations.snapshot()["counters"]
        return {name: counters.get(name, []) for name in names}

    async def prefix(_: Any) -> dict[str, Any]:
        settle()
        return {"worker": os.getpid(), "routes": log.routes()}

    async def servers(_: Any) -> dict[str, Any]:
        upstreams = {name: one.told_of() for name, one in replicas.items()}
        return {"worker": os.getpid(), "replicas": upstreams, "counted": counted(_OF_REPLICAS)}

    async def route(asked: Any) -> dict[str, Any] | None:
        settle()
        tenant, name = asked
        found = log.route(tenant, name)
        if found is None:
            return None
        policy = operations.tenants.get(tenant)
        return {
            "worker": os.getpid(),
            "keep_text": policy is not None and policy.prefix.keep_text,
            "counted": {
                metric: [[*named[2:], count] for named, count in rows if named[:2] == asked]
                for metric, rows in counted(_OF_ROUTES).items()
            },
            **found,
        }

    return {"prefix": prefix, "prefix-replicas": servers, "prefix-route": route}

"""The client that a fleet over Redis uses: one with publish and subscribe.

Imports redis-py, which the extra `redis` installs: import this module where it is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from redis.asyncio import Redis, RedisCluster
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff

from trivet.exact.store_url import Address

_TIMEOUT_S = 1.0
_CONNECT_S = 0.25


def fleet_client(address: Address) -> Callable[[], Any]:
    """A factory of clients for `RedisFleet`. Never retries; does no I/O itself."""
    common: dict[str, Any] = {
        "socket_timeout": _TIMEOUT_S,
        "socket_connect_timeout": _CONNECT_S,
        "retry": Retry(NoBackoff(), 0),
        **address.options,
    }
    if address.kind == "cluster":
        nodes = [ClusterNode(host, port) for host, port in address.nodes]
        return lambda: RedisCluster(startup_nodes=nodes, **common)
    if address.kind == "standalone":
        host, port = address.nodes[0]
        return lambda: Redis(host=host, port=port, **common)

    def of_sentinel() -> Any:
        make: Any = Sentinel
        tls = {name: value for name, value in address.options.items() if name.startswith("ssl")}
        short = {"socket_timeout": _TIMEOUT_S, "socket_connect_timeout": _CONNECT_S}
        watch = {**short, **tls, **address.sentinel_options}
        return make(list(address.nodes), sentinel_kwargs=watch).master_for(
            address.service, **common
        )

    return of_sentinel

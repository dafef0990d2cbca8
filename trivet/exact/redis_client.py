"""How a Redis or Valkey is reached: clients, and what its errors mean.

Imports redis-py, which the extra `redis` installs: import this module where it is needed.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

from redis import exceptions as errors
from redis.asyncio import Redis, RedisCluster
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import MasterNotFoundError, Sentinel
from redis.backoff import NoBackoff

from trivet.errors import StoreError
from trivet.exact.store_url import Address


@dataclass(frozen=True, slots=True)
class Link:
    """A client that never retries by itself: `execute(command, *arguments)`, and what closes it."""

    execute: Callable[..., Awaitable[Any]]
    aclose: Callable[[], Awaitable[Any]]

    async def close(self) -> None:
        """Close the connections; the server may be gone."""
        with suppress(errors.RedisError, errors.RedisClusterException, OSError):
            await self.aclose()


def connect(address: Address, *, timeout_s: float, connect_s: float, connections: int) -> Link:
    """A link to the address. Does no I/O yet. Its `execute` raises what redis-py raises."""
    common: dict[str, Any] = {
        "socket_timeout": timeout_s,
        "socket_connect_timeout": connect_s,
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
        "driver_info": None,
        "max_connections": connections,
    }
    if address.kind == "cluster":
        return _cluster(address, common)
    if address.kind == "standalone":
        host, port = address.nodes[0]
        single = Redis(host=host, port=port, **common, **address.options)
        return Link(single.execute_command, single.aclose)
    return _master(address, common)


def _cluster(address: Address, common: dict[str, Any]) -> Link:
    nodes = [ClusterNode(host, port) for host, port in address.nodes]
    # Learning the cluster anew closes connections that others are reading from: a MOVED corrects
    # its own slot, and that will do.
    cluster = RedisCluster(startup_nodes=nodes, reinitialize_steps=0, **common, **address.options)

    async def execute(*command: Any) -> Any:
        # Without it, commands sent before the slots are known go to any node.
        await cluster.initialize()
        return await cluster.execute_command(*command)

    return Link(execute, cluster.aclose)


def _master(address: Address, common: dict[str, Any]) -> Link:
    tls = {name: value for name, value in address.options.items() if name.startswith("ssl")}
    make_sentinel: Any = Sentinel
    sentinel = make_sentinel(
        list(address.nodes), sentinel_kwargs={**common, **tls, **address.sentinel_options}
    )
    master = sentinel.master_for(address.service, **common, **address.options)

    async def close() -> None:
        await master.aclose()
        await master.connection_pool.disconnect()
        for watcher in sentinel.sentinels:
            await watcher.aclose()

    return Link(master.execute_command, close)


@asynccontextmanager
async def translated() -> AsyncIterator[None]:
    """Foreign exceptions become `StoreError` with a short reason."""
    try:
        yield
    except (errors.RedisError, errors.RedisClusterException, OSError) as error:
        reason = reason_of(error)
        raise StoreError(reason, f"{reason}: {type(error).__name__}: {str(error)[:200]}") from error


_REASONS: tuple[tuple[tuple[type[BaseException], ...], str], ...] = (
    ((errors.AuthenticationError, errors.AuthorizationError), "auth"),
    ((errors.NoPermissionError, errors.AuthenticationWrongNumberOfArgsError), "auth"),
    ((errors.ReadOnlyError,), "readonly"),
    ((errors.OutOfMemoryError,), "full"),
    ((errors.BusyLoadingError,), "loading"),
    ((errors.MasterDownError, MasterNotFoundError), "no-master"),
    ((errors.ClusterDownError, errors.SlotNotCoveredError), "cluster-down"),
    ((errors.AskError, errors.TryAgainError, errors.ClusterCrossSlotError), "cluster"),
    ((errors.TimeoutError, TimeoutError), "timeout"),
    ((ConnectionRefusedError,), "refused"),
    ((ssl.SSLError,), "tls"),
)
_TEXTS = (
    ("NOAUTH", "auth"),
    ("WRONGPASS", "auth"),
    ("previous master is now a slave", "readonly"),
    ("CERTIFICATE", "tls"),
    ("SSL", "tls"),
    ("refused", "refused"),
    ("Connect call failed", "refused"),
    ("MISCONF", "misconf"),
    ("NOREPLICAS", "no-replicas"),
)


def reason_of(error: BaseException) -> str:
    """A short metric label for what redis-py raised."""
    seen: BaseException | None = error
    while seen is not None:
        for types, reason in _REASONS:
            if isinstance(seen, types):
                return reason
        for mark, reason in _TEXTS:
            if mark.lower() in str(seen).lower():
                return reason
        seen = seen.__cause__ or seen.__context__
    if isinstance(error, errors.RedisClusterException):
        return "cluster"
    if isinstance(error, errors.ConnectionError | OSError):
        return "connection"
    return "response"

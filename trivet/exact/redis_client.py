"""How a Redis or Valkey is reached: URLs, clients, and what its errors mean.

    redis://[USER:PASSWORD@]HOST[:PORT][/DB]
    redis+sentinel://[USER:PASSWORD@]HOST[:PORT],...[/SERVICE[/DB]]
    redis+cluster://[USER:PASSWORD@]HOST[:PORT],...

`rediss` in place of `redis` is TLS; `valkey` and `valkeys` are other names for the two.

Options after `?`: ssl_ca_certs, ssl_certfile, ssl_keyfile, ssl_cert_reqs, ssl_check_hostname,
sentinel_username, sentinel_password.

Imports redis-py, which the extra `redis` installs: import this module where it is needed.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote

from redis import exceptions as errors
from redis.asyncio import Redis, RedisCluster
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import MasterNotFoundError, Sentinel
from redis.backoff import NoBackoff

from trivet.errors import ConfigError, Problem, StoreError

_TLS = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs", "ssl_check_hostname")
_SENTINEL = ("sentinel_username", "sentinel_password")
_PORTS = {"standalone": 6379, "sentinel": 26379, "cluster": 6379}


@dataclass(frozen=True, slots=True)
class Address:
    """Where a Redis is and how to log in; `repr` leaves secrets out."""

    kind: str
    """`standalone`, `sentinel` or `cluster`."""
    nodes: tuple[tuple[str, int], ...]
    service: str = "mymaster"
    options: dict[str, Any] = field(default_factory=dict, repr=False)
    sentinel_options: dict[str, Any] = field(default_factory=dict, repr=False)


def parse_url(url: str) -> Address:
    """Read a URL as above. Raises `ConfigError`, without the URL's password in it."""
    scheme, _, rest = url.partition("://")
    name, _, kind = scheme.partition("+")
    kind = kind or "standalone"
    if name not in ("redis", "rediss", "valkey", "valkeys") or kind not in _PORTS:
        raise _refuse(f"{scheme}:// is not redis, rediss, or one of them with +sentinel, +cluster")
    rest, _, query = rest.partition("?")
    place, _, path = rest.partition("/")
    login, _, hosts = place.rpartition("@")
    options: dict[str, Any] = {"ssl": True} if name in ("rediss", "valkeys") else {}
    user, _, password = login.partition(":")
    if user:
        options["username"] = unquote(user)
    if password:
        options["password"] = unquote(password)
    sentinel_options = _read_options(query, options)
    service = "mymaster"
    if kind == "sentinel":
        named, _, path = path.partition("/")
        service = unquote(named) or service
    if path:
        if not path.isdecimal() or kind == "cluster":
            raise _refuse(f"/{path} is not a database number of a {kind} Redis")
        options["db"] = int(path)
    nodes = tuple(_node(host, _PORTS[kind]) for host in hosts.split(","))
    if kind == "standalone" and len(nodes) > 1:
        raise _refuse("several hosts are redis+sentinel:// or redis+cluster://")
    return Address(kind, nodes, service, options, sentinel_options)


def _read_options(query: str, options: dict[str, Any]) -> dict[str, Any]:
    sentinel_options: dict[str, Any] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name in _SENTINEL:
            sentinel_options[name.removeprefix("sentinel_")] = value
        elif name == "ssl_check_hostname":
            options[name] = value.lower() in ("1", "true", "yes")
        elif name in _TLS:
            options[name] = value
        else:
            raise _refuse(f"{name!r} is not an option; there are {', '.join(_TLS + _SENTINEL)}")
    return sentinel_options


def _node(text: str, default_port: int) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(default_port)
    host = host.strip("[]")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise _refuse(f"{text!r} is not HOST or HOST:PORT")
    return host, int(port)


def _refuse(message: str) -> ConfigError:
    return ConfigError(Problem("--store", 0, 0, "redis", message))


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

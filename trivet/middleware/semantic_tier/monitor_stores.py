"""Where the running counts of the semantic tier are kept: beside the store that a config names."""

from __future__ import annotations

from pathlib import Path

from trivet.exact.seal import Seal
from trivet.middleware.running.config import StoreConfig
from trivet.middleware.running.stores import store_url
from trivet.semantic.monitor_store import MonitorStore
from trivet.telemetry import Observer, ignore

_TIMEOUT_S = 1.0
_CONNECT_S = 0.5
_CONNECTIONS = 2


def monitor_store_of(
    config: StoreConfig, seal: Seal, observer: Observer = ignore
) -> MonitorStore | None:
    """The store; None where the counts end with the process. It connects when it is first used.

    Beside a SQLite store the file has its name with `-monitor` at the end. Raises `ConfigError` for
    a Redis URL that cannot be read.
    """
    url = store_url(config)
    scheme, _, path = url.partition(":")
    if scheme == "sqlite":
        from trivet.semantic.sqlite_monitor import SqliteMonitorStore

        return SqliteMonitorStore(Path(f"{path}-monitor"), seal, observer)
    if not scheme.startswith(("redis", "valkey")):
        return None
    from trivet.exact.redis_client import connect
    from trivet.exact.store_url import parse_url
    from trivet.semantic.redis_monitor import RedisMonitorStore

    link = connect(
        parse_url(url), timeout_s=_TIMEOUT_S, connect_s=_CONNECT_S, connections=_CONNECTIONS
    )
    return RedisMonitorStore(link, seal, observer)

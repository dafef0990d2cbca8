"""`trivet serve`: from flags to a running proxy."""

from __future__ import annotations

import gc
import hashlib
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trivet.middleware.config import ServerConfig, server_config
from trivet.middleware.logs import configure

_COLLECT_AFTER = 5_000
"""Containers made, less those freed, until the youngest generation is collected. More would hold
more of what closed connections leave behind."""


def serve(file: Path | None, upstreams: tuple[str, ...], flags: Mapping[str, Any]) -> None:
    """Run until SIGTERM or Ctrl-C. Raises `ConfigError` before anything is started."""
    overrides = dict(flags)
    if upstreams:
        overrides["upstreams"] = [
            {"name": "upstream" if at == 0 else f"upstream-{at + 1}", "base_url": url}
            for at, url in enumerate(upstreams)
        ]
    admin_key = os.environ.get("TRIVET_ADMIN_KEY")
    if admin_key:
        overrides["admin_key_sha256"] = hashlib.sha256(admin_key.encode()).hexdigest()
    run(server_config(file, overrides))


def run(config: ServerConfig) -> None:
    """Serve under `config`."""
    import uvloop

    from trivet.middleware.server import listen, run_single
    from trivet.middleware.service import server_secret

    configure(config.log_level, config.log_format)
    secret = server_secret(config)
    data = listen(config.host, config.port, "--port")
    admin = listen(config.admin_host, _admin_port(config, data), "--admin-port")
    if config.workers == 1:
        ease_collector()
        uvloop.run(run_single(config, secret, data, admin))
        return
    from trivet.middleware.supervisor import Supervisor

    uvloop.run(Supervisor(config, secret).run(data, admin))


def ease_collector() -> None:
    """Collect garbage less often, and none among what is there now: modules and classes.

    A full collection that goes through those too is a pause for every request in flight.
    """
    gc.freeze()
    gc.set_threshold(_COLLECT_AFTER)


def _admin_port(config: ServerConfig, data: socket.socket) -> int:
    if config.admin_port is not None:
        return config.admin_port
    port: int = data.getsockname()[1]
    return 0 if config.port == 0 or port == 65535 else port + 1

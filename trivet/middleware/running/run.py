"""`trivet serve`: from flags to a running proxy."""

from __future__ import annotations

import gc
import hashlib
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trivet.middleware.observe.logs import configure
from trivet.middleware.running.config import ServerConfig, server_config
from trivet.middleware.running.engine_process import EngineCommand, EngineProcess, upstream_of

_COLLECT_AFTER = 5_000
"""Containers made, less those freed, until the youngest generation is collected. More would hold
more of what closed connections leave behind."""


def serve(
    file: Path | None,
    upstreams: tuple[str, ...],
    flags: Mapping[str, Any],
    engine: EngineCommand | None = None,
) -> None:
    """Run until SIGTERM or Ctrl-C, with an engine beside the proxy where one is given.

    Raises `ConfigError` before anything is started, and where the engine cannot start.
    """
    overrides = dict(flags)
    if upstreams:
        overrides["upstreams"] = [
            {"name": "upstream" if at == 0 else f"upstream-{at + 1}", "base_url": url}
            for at, url in enumerate(upstreams)
        ]
    admin_key = os.environ.get("TRIVET_ADMIN_KEY")
    if admin_key:
        overrides["admin_key_sha256"] = hashlib.sha256(admin_key.encode()).hexdigest()
    own = None if engine is None else upstream_of(engine)
    run(server_config(file, overrides, own), engine)


def run(config: ServerConfig, command: EngineCommand | None = None) -> None:
    """Serve under `config`, with the engine that `command` tells of."""
    import uvloop

    from trivet.listening import listen
    from trivet.middleware.running.server import run_single
    from trivet.middleware.running.service import server_secret

    configure(config.log_level, config.log_format)
    secret = server_secret(config)
    data = listen(config.host, config.port, "--port")
    admin = listen(config.admin_host, _admin_port(config, data), "--admin-port")
    engine = None
    if command is not None:
        port = command.port or _engine_port(config, data, admin)
        engine = EngineProcess(command, port, config.log_format)
        config = engine.reached(config)
    ask = None if engine is None else engine.component
    if config.workers == 1:
        ease_collector()
        serving = run_single(config, secret, data, admin, ask)
    else:
        from trivet.middleware.running.supervisor import Supervisor

        serving = Supervisor(config, secret, ask).run(data, admin)
    uvloop.run(serving if engine is None else engine.beside(serving))


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


def _engine_port(config: ServerConfig, data: socket.socket, admin: socket.socket) -> int:
    """The same one each time, where the proxy's is: the engine's address is in the exact keys.

    0, any that is free, where the proxy's is not.
    """
    if config.port == 0:
        return 0
    taken = {made.getsockname()[1] for made in (data, admin)}
    after, before = range(config.port + 2, 65536), range(config.port - 1, 1023, -1)
    return next((port for port in (*after, *before) if port not in taken), 0)

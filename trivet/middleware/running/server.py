"""Running the proxy: sockets, uvicorn, signals. One process, or a supervisor with workers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import sys
from collections.abc import Iterator
from typing import Any

import structlog
import uvicorn

from trivet.listening import BACKLOG, url_of
from trivet.middleware.admin.control import Ask
from trivet.middleware.admin.port import AdminApp
from trivet.middleware.arrival.routing import keyless_upstreams
from trivet.middleware.console.history import History, kept
from trivet.middleware.running.apart import apart
from trivet.middleware.running.config import ServerConfig
from trivet.middleware.running.guarded_protocol import Lane, guarded
from trivet.middleware.running.hangup import reload_on_hangup
from trivet.middleware.running.named_users import nameable_users
from trivet.middleware.running.service import open_service
from trivet.middleware.running.unreached import unreached
from trivet.policies.tenants import PolicySet
from trivet.telemetry import Observer, ignore
from trivet.terminal import plain

KEEP_ALIVE_S = 75
_log = structlog.get_logger("trivet")


class _Server(uvicorn.Server):
    """uvicorn without its signal handling: one process here runs two servers."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _NotAnError(logging.Filter):
    """Drops uvicorn's complaint about responses left unfinished: breaking off is deliberate."""

    def filter(self, record: logging.LogRecord) -> bool:
        return "without completing response" not in record.getMessage()


def uvicorn_server(
    app: Any, config: ServerConfig, lane: Lane | None = None, observer: Observer = ignore
) -> uvicorn.Server:
    """A server for `app`, and for the requests that `lane` answers before it.

    `observer` is told of heads that are refused.

    Its sockets are given to `serve`.
    """
    logging.getLogger("uvicorn.error").addFilter(_NotAnError())
    return _Server(
        uvicorn.Config(
            app,
            http=guarded(config.header_timeout, lane, observer),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=int(config.drain) or 1,
            backlog=BACKLOG,
        )
    )


async def run_single(
    config: ServerConfig,
    secret: bytes,
    data: socket.socket,
    admin: socket.socket,
    engine: Ask | None = None,
) -> None:
    """Serve in this process until SIGTERM or SIGINT; open answers are given time to end."""
    service = await open_service(config, secret)
    service.operations.engine = engine
    announce(config, data, admin)
    warn(config, service.operations.in_use)
    history = History()
    servers = (
        uvicorn_server(service.app, config, service.quick.answer, service.observer),
        uvicorn_server(AdminApp(service.operations, config.admin_key_sha256, history), config),
    )
    try:
        async with reload_on_hangup(service.operations), kept(history, service.operations):
            await serve_until_signal(servers, (data, admin), service.operations)
    finally:
        await service.close()


async def serve_until_signal(
    servers: tuple[uvicorn.Server, ...], sockets: tuple[socket.socket, ...], control: Any
) -> None:
    """Run the servers; the first signal drains them, a second one ends them at once."""
    loop = asyncio.get_running_loop()

    def stop() -> None:
        for server in servers:
            server.force_exit = server.should_exit
            server.should_exit = True
        control.draining = True

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    await asyncio.gather(
        *(server.serve(sockets=[made]) for server, made in zip(servers, sockets, strict=True))
    )


def announce(config: ServerConfig, data: socket.socket, admin: socket.socket) -> None:
    """Say on standard error where everything is: a line of the log where that is JSON."""
    from trivet.middleware.running.stores import shown_url

    if config.log_format == "json":
        _log.info(
            "serving",
            proxy=url_of(data),
            openai_base_url=f"{url_of(data)}/v1",
            admin=url_of(admin),
            upstreams={one.name: one.base_url for one in config.upstreams},
            store=shown_url(config.store),
            policies=None if config.policies is None else str(config.policies),
        )
        return
    upstreams = ", ".join(f"{one.name} ({one.base_url})" for one in config.upstreams)
    policies = config.policies or "none: each credential is its own tenant"
    lines = (
        f"trivet proxy  {url_of(data)}  (base URL for OpenAI SDKs: {url_of(data)}/v1)",
        f"admin         {url_of(admin)}  (/trivet/ui /healthz /readyz /metrics /trivet/docs)",
        f"upstreams     {upstreams}",
        f"store         {shown_url(config.store)}",
        f"policies      {policies}",
    )
    print("\n".join(map(plain, lines)), file=sys.stderr, flush=True)


def warn(config: ServerConfig, policies: PolicySet) -> None:
    """Say on standard error what may not work as meant, though it can be served."""
    found = (
        *apart(config),
        *keyless_upstreams(policies.tenants, config.upstreams),
        *nameable_users(policies),
        *unreached(policies, gateway=config.gateway is not None),
    )
    for problem in found:
        if config.log_format == "json":
            _log.warning("config-warning", detail=str(problem))
        else:
            print(f"warning: {problem}", file=sys.stderr, flush=True)

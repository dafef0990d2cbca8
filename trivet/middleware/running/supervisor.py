"""Several workers behind one port: the supervisor starts them, restarts them, and drains them."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import structlog

from trivet.exact.hub import HubServer
from trivet.middleware.admin.control import Ask
from trivet.middleware.admin.fleet_operations import FleetOperations
from trivet.middleware.admin.operations import follow_policies, stop
from trivet.middleware.admin.port import AdminApp
from trivet.middleware.arrival.routing import Routing
from trivet.middleware.console.history import History, kept
from trivet.middleware.explain.explaining import Explainer
from trivet.middleware.observe.logs import LogObserver, configure
from trivet.middleware.running.config import ServerConfig
from trivet.middleware.running.hangup import reload_on_hangup
from trivet.middleware.running.run import ease_collector
from trivet.middleware.running.server import announce, serve_until_signal, uvicorn_server, warn
from trivet.middleware.running.service import open_service, policy_source

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 10.0
_WORKER = """
import signal
signal.signal(signal.SIGHUP, signal.SIG_IGN)
from trivet.middleware.running.supervisor import worker_main
worker_main()
"""
"""SIGHUP is ignored from the first: one to the whole group is the supervisor's to act on."""
_log = structlog.get_logger("trivet")


class Supervisor:
    """Owns the hub, the admin port and the worker processes."""

    def __init__(self, config: ServerConfig, secret: bytes, engine: Ask | None = None) -> None:
        self._config = config
        self._secret = secret
        self._engine = engine
        self._stopping = False
        self._processes: set[asyncio.subprocess.Process] = set()

    async def run(self, data: socket.socket, admin: socket.socket) -> None:
        """Serve until SIGTERM or SIGINT, then drain every worker."""
        config = self._config
        source = policy_source(config, self._secret)
        observer = LogObserver()
        with tempfile.TemporaryDirectory(prefix="trivet-") as folder:
            hub = HubServer(Path(folder) / "hub" / "socket")
            await hub.start()
            explainer = Explainer(Routing(config.upstreams), self._secret)
            control = FleetOperations(hub, source, config.workers, observer, explainer)
            control.engine = self._engine
            following = asyncio.create_task(follow_policies(source, observer))
            keepers = [
                asyncio.create_task(self._keep(number, data, Path(folder) / "hub" / "socket"))
                for number in range(config.workers)
            ]
            history = History()
            server = uvicorn_server(AdminApp(control, config.admin_key_sha256, history), config)
            announce(config, data, admin)
            warn(config, source.current)
            try:
                async with reload_on_hangup(control), kept(history, control):
                    await serve_until_signal((server,), (admin,), control)
            finally:
                self._stopping = True
                await self._drain(keepers)
                await stop(following)
                await hub.close()

    async def _keep(self, number: int, data: socket.socket, hub: Path) -> None:
        pause = _FIRST_PAUSE_S
        while not self._stopping:
            began = time.monotonic()
            try:
                process = await self._spawn(number, data, hub)
            except OSError as error:
                # No process or no memory is left now: that may pass.
                _log.error("worker-not-started", worker=number, reason=error.strerror)
            else:
                await self._run_out(number, process, pause)
            if self._stopping:
                return
            lived = time.monotonic() - began
            await asyncio.sleep(pause)
            pause = _FIRST_PAUSE_S if lived > _LONGEST_PAUSE_S else min(2 * pause, _LONGEST_PAUSE_S)

    async def _run_out(
        self, number: int, process: asyncio.subprocess.Process, pause: float
    ) -> None:
        self._processes.add(process)
        if self._stopping:
            # It was started while the others were told to drain.
            process.terminate()
        code = await process.wait()
        self._processes.discard(process)
        if not self._stopping:
            _log.error("worker-ended", worker=number, ended_by=_end(code), restart_in_s=pause)

    async def _spawn(
        self, number: int, data: socket.socket, hub: Path
    ) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            _WORKER,
            str(number),
            str(data.fileno()),
            str(hub),
            stdin=asyncio.subprocess.PIPE,
            pass_fds=(data.fileno(),),
        )
        assert process.stdin is not None
        process.stdin.write(self._secret.hex().encode() + b"\n")
        process.stdin.write(self._config.model_dump_json().encode() + b"\n")
        process.stdin.close()
        return process

    async def _drain(self, keepers: list[asyncio.Task[None]]) -> None:
        self._tell_all(signal.SIGTERM)
        _, late = await asyncio.wait(keepers, timeout=self._config.drain + 5)
        self._tell_all(signal.SIGKILL)
        if late:
            await asyncio.wait(late, timeout=5)

    def _tell_all(self, number: signal.Signals) -> None:
        for process in tuple(self._processes):
            # One that has ended is not out of the set before its keeper goes on.
            with suppress(ProcessLookupError):
                process.send_signal(number)


def _end(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    return signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"


def worker_main() -> None:
    """Entry of a worker process: arguments name its number, socket and hub; stdin its config."""
    import uvloop

    number, fd, hub = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    secret = bytes.fromhex(sys.stdin.readline().strip())
    config = ServerConfig.model_validate_json(sys.stdin.readline())
    configure(config.log_level, config.log_format, worker=number)
    # The terminal's Ctrl-C reaches the whole group: only the supervisor decides when to drain.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ease_collector()
    uvloop.run(_work(config, secret, socket.socket(fileno=fd), hub))


async def _work(config: ServerConfig, secret: bytes, data: socket.socket, hub: Path) -> None:
    service = await open_service(config, secret, hub)
    parent = os.getppid()
    server = uvicorn_server(service.app, config, service.quick.answer, service.observer)
    loop = asyncio.get_running_loop()

    def drain() -> None:
        service.operations.draining = True
        server.should_exit = True

    def follow_parent() -> None:
        if os.getppid() != parent:
            drain()
        else:
            loop.call_later(1, follow_parent)

    loop.add_signal_handler(signal.SIGTERM, drain)
    follow_parent()
    try:
        await server.serve(sockets=[data])
    finally:
        await service.close()

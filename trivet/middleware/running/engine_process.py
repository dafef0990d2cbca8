"""`trivet serve --engine`: the engine as a child process of the proxy.

It is started with the proxy and ends with it, after the last answer. One that cannot start ends the
proxy too, with its own message; one that was ready and ended is started again, after pauses that
grow. Meanwhile the proxy answers what it has stored, and the rest waits for the engine.

The proxy listens at the engine's port from the start to the end, and the engine inherits the
socket: nobody else on the machine can take the port while the engine loads or is restarted. The
engine proves in each health answer that it has the secret; without that it is not ready.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import secrets
import signal
import sys
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from trivet.errors import ConfigError, Problem
from trivet.listening import listen
from trivet.middleware.admin.control import Component
from trivet.middleware.observe.logs import Format
from trivet.middleware.running.config import ServerConfig, UpstreamConfig
from trivet.prefix.engine.tenants import NONCE, PROOF, SECRET_ENV, proof
from trivet.terminal import plain

NAME = "engine"
_HOST = "127.0.0.1"
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 10.0
_POLL_S = 0.2
_ASK_S = 0.5
_UNPROVEN = 0
"""In place of a status: what answered does not have the secret."""
_END_S = 15.0
"""How long the engine has to end by itself; the proxy has drained by then."""


@dataclass(frozen=True, slots=True)
class EngineCommand:
    """What to run: the engine's model, its port (0: one near the proxy's), further options."""

    model: str
    port: int = 0
    options: tuple[str, ...] = ()


def upstream_of(command: EngineCommand) -> UpstreamConfig:
    """The engine as an upstream, whose address is put in by `EngineProcess.reached`."""
    # Both ends read the secret from the environment, workers of the proxy included.
    os.environ.setdefault(SECRET_ENV, secrets.token_hex(32))
    path = Path(command.model)
    models = dict.fromkeys((command.model, path.name, path.stem))
    return UpstreamConfig(
        name=NAME, base_url=f"http://{_HOST}", models=tuple(models), engine_secret_env=SECRET_ENV
    )


class EngineProcess:
    """Keeps one engine running, at a port of this machine (0: any that is free).

    Raises `ConfigError` where the port cannot be had.
    """

    def __init__(self, command: EngineCommand, port: int, log_format: Format = "console") -> None:
        self._command = command
        self._log_format = log_format
        """Of the engine's lines, which are shown among the proxy's own."""
        self._listener = listen(_HOST, port, "--engine-port")
        self._port: int = self._listener.getsockname()[1]
        self._secret = os.environ.get(SECRET_ENV, "").strip().encode("utf-8", "surrogateescape")
        self._process: asyncio.subprocess.Process | None = None
        self._was_ready = False
        self._stopping = False
        self.failure = ""
        """Why it could not start, once that is so."""

    def reached(self, config: ServerConfig) -> ServerConfig:
        """The config with the engine's address in its upstream."""
        url = {"base_url": f"http://{_HOST}:{self._port}"}
        upstreams = tuple(
            one.model_copy(update=url) if one.name == NAME else one for one in config.upstreams
        )
        return config.model_copy(update={"upstreams": upstreams})

    async def beside(self, serving: Coroutine[Any, Any, None]) -> None:
        """Run the engine for as long as `serving` runs.

        Raises `ConfigError` if the engine cannot start: then `serving` was told to end, by SIGTERM.
        """
        served = asyncio.create_task(serving)
        keeping = asyncio.create_task(self._keep())
        try:
            await asyncio.wait({served, keeping}, return_when=asyncio.FIRST_COMPLETED)
            if not served.done():
                os.kill(os.getpid(), signal.SIGTERM)
            await served
        finally:
            self._stopping = True
            await self._stop()
            await asyncio.gather(keeping, return_exceptions=True)
            self._listener.close()
        if self.failure:
            raise ConfigError(Problem("trivet serve", 0, 0, "--engine", self.failure))

    async def component(self) -> Component:
        """How the engine is, asked for now."""
        if self._process is None or self._process.returncode is not None:
            return Component(NAME, False, "down", "the engine ended and is started again")
        status = await self._health()
        if status == 200:
            self._was_ready = True
            return Component(NAME, True, "up", self._command.model)
        if status == _UNPROVEN:
            return Component(NAME, False, "down", "what answers there has not the engine's secret")
        if not self._was_ready and status is None:
            return Component(NAME, False, "loading", self._command.model)
        state = "loading" if status is None else "down"
        return Component(NAME, False, state, "the engine does not answer")

    async def _keep(self) -> None:
        pause = _FIRST_PAUSE_S
        while not self._stopping:
            began = time.monotonic()
            code = await self._run()
            if self._stopping:
                return
            if not self._was_ready:
                self.failure = f"the engine did not start (exit code {code}); its lines say why"
                return
            self._say_ended(code, pause)
            await asyncio.sleep(pause)
            lived = time.monotonic() - began
            pause = _FIRST_PAUSE_S if lived > 60 else min(2 * pause, _LONGEST_PAUSE_S)

    async def _run(self) -> int:
        listening = self._listener.fileno()
        process = self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "trivet.cli", "engine", "serve"),
            *("--model", self._command.model, "--host", _HOST, "--port", str(self._port)),
            *("--fd", str(listening), "--signed-only", "--log-format", self._log_format),
            *("--parent", str(os.getpid()), *self._command.options),
            pass_fds=(listening,),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            # The terminal's Ctrl-C is the proxy's to act on: the engine ends after it has drained.
            start_new_session=True,
        )
        if self._stopping:
            process.terminate()
        watching = asyncio.create_task(self._await_ready())
        assert process.stdout is not None
        await _relay(process.stdout, self._show)
        code = await process.wait()
        watching.cancel()
        return code

    def _show(self, line: str) -> None:
        """One of the engine's lines; JSON of its own as it is."""
        if self._log_format == "console":
            _say(line.removeprefix("trivet engine: "))
        elif line.startswith("{"):
            print(line, file=sys.stderr, flush=True)
        else:
            structlog.get_logger("trivet").warning("engine-line", line=line)

    def _say_ended(self, code: int, pause: float) -> None:
        if self._log_format == "console":
            _say(f"ended (exit code {code}); starting again in {pause:g} s")
        else:
            log = structlog.get_logger("trivet")
            log.warning("engine-ended", exit_code=code, restart_s=pause)

    async def _await_ready(self) -> None:
        while not self._was_ready:
            self._was_ready = await self._health() == 200
            await asyncio.sleep(_POLL_S)

    async def _health(self) -> int | None:
        return await health(self._port, self._secret)

    async def _stop(self) -> None:
        process = self._process
        if process is None or process.returncode is not None:
            return
        with suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(_END_S):
                await process.wait()
        except TimeoutError:
            with suppress(ProcessLookupError):
                process.kill()


async def _relay(lines: asyncio.StreamReader, show: Callable[[str], None]) -> None:
    """Show the engine's lines among the proxy's own."""
    while True:
        try:
            line = await lines.readline()
        except ValueError:
            continue  # longer than the reader's limit: it was dropped
        if not line:
            return
        show(line.decode("utf-8", "replace").rstrip())


def _say(line: str) -> None:
    print(f"engine        {plain(line)}", file=sys.stderr, flush=True)


async def health(port: int, secret: bytes) -> int | None:
    """The status that the engine's health route answers.

    None if nothing answers in time, 0 if what answers does not prove that it has the secret.
    """
    nonce = secrets.token_hex(16)
    ask = f"GET /health HTTP/1.1\r\nHost: engine\r\n{NONCE}: {nonce}\r\nConnection: close\r\n\r\n"
    writer = None
    try:
        async with asyncio.timeout(_ASK_S):
            reader, writer = await asyncio.open_connection(_HOST, port)
            writer.write(ask.encode())
            head = await reader.readuntil(b"\r\n\r\n")
    except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        return None
    finally:
        if writer is not None:
            writer.close()
    first, *fields = head.split(b"\r\n")
    told = b"".join(line for line in fields if line.lower().startswith(f"{PROOF}:".encode()))
    wanted = proof(secret, nonce, port).encode()
    if not hmac.compare_digest(told.partition(b":")[2].strip(), wanted):
        return _UNPROVEN
    status = first.split()[1:2]
    return int(status[0]) if status and status[0].isdigit() else None

"""`trivet engine serve`: from options to a running engine."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from trivet.errors import CacheError, ConfigError, Problem
from trivet.listening import listen, url_of
from trivet.prefix.engine.amounts import Bounds, Pool, bounds
from trivet.prefix.engine.log_lines import Format, configure, say
from trivet.prefix.engine.tenants import MIN_SECRET, SECRET_ENV

if TYPE_CHECKING:
    import uvicorn

    from trivet.prefix.engine.engine import Engine
    from trivet.prefix.engine.engine_stats import EngineStats
    from trivet.prefix.engine.loaded_model import LoadedModel
    from trivet.prefix.engine.prompts import Prompts
    from trivet.prefix.engine.settings import EngineSettings

_MOST_CONNECTIONS = 2048
_LOOK_S = 0.5


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """What `trivet engine serve` is told. Sizes are bytes, times seconds."""

    model: str
    host: str = "127.0.0.1"
    port: int = 9100
    names: tuple[str, ...] = ()
    """Further names of the model."""
    kv_memory: int = 2 << 30
    block_size: int = 16
    host_memory: int = 0
    disk_memory: int = 0
    disk_folder: Path | None = None
    determinism: Literal["", "bitwise"] = ""
    max_running: int = 32
    max_waiting: int = 1024
    max_waiting_per_tenant: int = 256
    threads: int = 2
    dtype: str = "auto"
    device: str = "auto"
    deadline: float | None = None
    drain: float = 30.0
    secret_file: Path | None = None
    signed_only: bool = False
    """Whether only requests that the proxy signed are served."""
    tenant_quotas: tuple[str, ...] = ()
    tenant_floors: tuple[str, ...] = ()
    """Both as `amounts.bounds` takes them."""
    platform_files: tuple[Path, ...] = ()
    log_format: Format = "console"
    fd: int | None = None
    """A socket that listens already, inherited of the parent."""
    parent: int | None = None
    """Process whose end ends the engine too."""


def shared_secret(file: Path | None, env: Mapping[str, str] = os.environ) -> bytes | None:
    """The secret that proxy and engine share: of the file, else TRIVET_ENGINE_SECRET, else none.

    Raises `ConfigError` for one that is unreadable or short.
    """
    where, text = SECRET_ENV, env.get(SECRET_ENV, "")
    if file is not None:
        where = str(file)
        try:
            text = file.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(Problem(where, 0, 0, "--secret-file", str(error))) from None
    text = text.strip()
    if not text and file is None:
        return None
    return checked_secret(text, where)


def checked_secret(text: str, where: str) -> bytes:
    """The bytes of a secret. Raises `ConfigError` for a short one."""
    if len(text) < MIN_SECRET:
        message = f"the secret has fewer than {MIN_SECRET} characters"
        raise ConfigError(Problem(where, 0, 0, "secret", message))
    return text.encode("utf-8", "surrogateescape")


def run(options: ServeOptions) -> None:
    """Load the model and serve it until SIGINT or SIGTERM.

    Raises `ConfigError` when the port cannot be had or the model cannot be loaded.
    """
    if options.parent is not None:
        _follow(options.parent)
    configure(options.log_format)
    secret = shared_secret(options.secret_file)
    asked = bounds(options.tenant_quotas, options.tenant_floors)
    if options.signed_only and secret is None:
        message = f"needs the secret that the proxy signs with ({SECRET_ENV} or --secret-file)"
        raise ConfigError(Problem("trivet engine", 0, 0, "--signed-only", message))
    with _listening(options) as listener:
        say("engine-loading", f"loading {options.model}", model=options.model)
        began = time.monotonic()
        loaded = _load(options)
        seconds = round(time.monotonic() - began, 1)
        say("engine-loaded", f"loaded in {seconds} s", model=loaded.facts.name, seconds=seconds)
        import uvloop

        with contextlib.suppress(KeyboardInterrupt):
            uvloop.run(_serve(options, loaded, secret, listener, asked))
    say("engine-stopped", "stopped")


def _load(options: ServeOptions) -> LoadedModel:
    try:
        from transformers.utils import logging as theirs

        from trivet.prefix.engine.loading import load
    except ImportError as error:
        message = (
            f"{error.name} is not installed; `pip install 'trivet[engine]'` brings it,"
            " and `make demo` sets up everything"
        )
        raise ConfigError(Problem("trivet engine", 0, 0, "--model", message)) from None
    # Its lines among ours, in the same form.
    theirs.disable_default_handler()
    theirs.enable_propagation()
    return load(options.model, dtype=options.dtype, device=options.device, threads=options.threads)


def _settings(
    options: ServeOptions, asked: Bounds, loaded: LoadedModel, prompts: Prompts
) -> EngineSettings:
    from trivet.prefix.engine.kv_memory import blocks_for, bytes_per_token
    from trivet.prefix.engine.platform_prefixes import platform_prefixes
    from trivet.prefix.engine.scheduler import Limits
    from trivet.prefix.engine.settings import PREFILL_TOKENS, EngineSettings

    size, layers, dtype = options.block_size, loaded.layers, loaded.dtype
    blocks = blocks_for(options.kv_memory, layers, size, dtype)
    return EngineSettings(
        kv_memory=options.kv_memory,
        block_size=size,
        host_memory=options.host_memory,
        disk_memory=options.disk_memory,
        disk_folder=options.disk_folder,
        determinism=options.determinism,
        limits=Limits(
            prefill_tokens=PREFILL_TOKENS,
            max_running=options.max_running,
            max_waiting=options.max_waiting,
            max_waiting_per_tenant=options.max_waiting_per_tenant,
        ),
        shares=asked.shares(Pool(blocks, size * bytes_per_token(layers, dtype))),
        platform=platform_prefixes(options.platform_files, prompts, size),
    )


async def _serve(
    options: ServeOptions,
    loaded: LoadedModel,
    secret: bytes | None,
    listener: socket.socket,
    asked: Bounds,
) -> None:
    import uvicorn

    from trivet.prefix.engine.engine import Engine
    from trivet.prefix.engine.prompts import Prompts
    from trivet.prefix.engine.server import EngineApp, Serving
    from trivet.prefix.engine.stall_guard import StallGuard

    facts = loaded.facts
    prompts = Prompts(loaded.tokenizer, facts.context, facts.vocabulary)
    settings = _settings(options, asked, loaded, prompts)
    engine = Engine(loaded, settings)
    serving = Serving(
        engine,
        prompts,
        tuple(dict.fromkeys((facts.name, *options.names))),
        frozenset({options.model}),
        options.block_size,
        secret,
        options.signed_only,
        options.deadline,
    )

    class Server(uvicorn.Server):
        """uvicorn whose signals drain the engine, and do not end the process by themselves."""

        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, self._stop)
            yield

        def _stop(self) -> None:
            self.force_exit = self.should_exit
            self.should_exit = serving.draining = True

    logging.getLogger("uvicorn.error").addFilter(_not_an_error)
    config = uvicorn.Config(
        EngineApp(serving),
        http=StallGuard,
        limit_concurrency=_MOST_CONNECTIONS,
        lifespan="off",
        ws="none",
        log_config=None,
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=max(1, int(options.drain)),
    )
    server = Server(config)
    engine.start()
    _end_with(engine, server)
    try:
        _say_ready(serving.names, url_of(listener), engine.stats(), secret)
        stats = engine.stats()
        if told := settings.shortage(facts.context, engine.pool.capacity, stats.block_bytes):
            longest = settings.longest(engine.pool.capacity)
            say("engine-short-prompts", told, level=logging.WARNING, longest=longest, effect=told)
        await server.serve(sockets=[listener])
        if not engine.alive:
            raise CacheError("the engine's thread ended by a defect; its log says where")
    finally:
        await engine.close()


def _end_with(engine: Engine, server: uvicorn.Server) -> None:
    """End the server when the engine's thread has: whoever started it may start it again."""
    if engine.alive:
        asyncio.get_running_loop().call_later(_LOOK_S, _end_with, engine, server)
    else:
        server.should_exit = True


def _say_ready(names: tuple[str, ...], url: str, stats: EngineStats, secret: bytes | None) -> None:
    tokens = stats.kv_bytes // stats.block_bytes * stats.block_size
    callers = "tenants are told signed" if secret else "no secret: all callers are unsigned"
    sentence = f"{', '.join(names)} at {url}/v1 (KV for {tokens:,} tokens; {callers})"
    signed = secret is not None
    say("engine-ready", sentence, models=names, url=url, kv_tokens=tokens, signed=signed)


def _not_an_error(record: logging.LogRecord) -> bool:
    """Whether uvicorn's line is news: it complains of replies that are broken off on purpose."""
    return "without completing response" not in record.getMessage()


def _listening(options: ServeOptions) -> socket.socket:
    """A socket that listens from the start: callers wait for the model."""
    if options.fd is not None:
        return socket.socket(fileno=options.fd)
    return listen(options.host, options.port, "--port", "trivet engine")


def _follow(parent: int) -> None:
    """End this process when `parent` is no longer its parent."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_LOOK_S)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True, name="trivet-parent").start()

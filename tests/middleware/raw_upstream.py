"""Upstreams made of raw sockets, and the two event loops that a client has to work on."""

from __future__ import annotations

import asyncio
import functools
import gc
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import uvloop

from trivet.middleware.running.config import UpstreamConfig
from trivet.middleware.upstream import UpstreamClient

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Loop = Callable[[], asyncio.AbstractEventLoop]

LOOPS: dict[str, Loop] = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


def run_on(loop: str, coroutine: Coroutine[Any, Any, Any]) -> None:
    """Run a test to its end; it may leave no task, and no warning for what it did not close."""

    async def watched() -> None:
        await coroutine
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, f"tasks left behind: {left}"

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(watched())
    gc.collect()


def both_loops(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an async test once on asyncio's own loop and once on uvloop's."""
    signature = inspect.signature(test)

    @functools.wraps(test)
    def run(loop: str, **arguments: Any) -> None:
        run_on(loop, test(**arguments))

    del run.__wrapped__
    own = inspect.Parameter("loop", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    run.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[own, *signature.parameters.values()]
    )
    marked: Callable[..., None] = pytest.mark.parametrize("loop", list(LOOPS))(run)
    return marked


@dataclass
class Upstream:
    """A server on a port of its own. `requests` are (head, body) as they were read."""

    port: int = 0
    host: str = "127.0.0.1"
    connections: int = 0
    requests: list[tuple[bytes, bytes]] = field(default_factory=list)
    writers: list[asyncio.StreamWriter] = field(default_factory=list)

    def config(self, path: str = "", **options: Any) -> UpstreamConfig:
        """As the proxy's config names it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        url = f"http://{host}:{self.port}{path}"
        return UpstreamConfig.model_validate({"name": "raw", "base_url": url, **options})

    async def read(self, reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
        """Read one request, and note it."""
        head = await reader.readuntil(b"\r\n\r\n")
        lower = head.lower()
        body = b""
        if b"\r\ntransfer-encoding: chunked" in lower:
            while size := int(await reader.readuntil(b"\r\n"), 16):
                body += (await reader.readexactly(size + 2))[:-2]
            await reader.readexactly(2)
        elif b"\r\ncontent-length: " in lower:
            start = lower.index(b"\r\ncontent-length: ") + 18
            body = await reader.readexactly(int(lower[start : lower.index(b"\r", start)]))
        self.requests.append((head, body))
        return head, body


@asynccontextmanager
async def serving(
    handler: Callable[[Upstream, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
    host: str = "127.0.0.1",
    **options: Any,
) -> AsyncIterator[Upstream]:
    """Run `handler` for each connection; what is still open at the end is broken off."""
    made = Upstream(host=host)
    tasks: set[asyncio.Task[Any]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        made.connections += 1
        made.writers.append(writer)
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await handler(made, reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            tasks.discard(task)
            writer.transport.abort()

    server = await asyncio.start_server(handle, host, 0, **options)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
        for task in tuple(tasks):
            task.cancel()
        if tasks:
            await asyncio.wait(tuple(tasks))
        await server.wait_closed()
        await asyncio.sleep(0.01)


def answering(
    *pieces: bytes, pause: float = 0.0, close: bool = True
) -> Callable[[Upstream, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    """A handler that sends these bytes to each request, piece by piece, then closes or goes on."""

    async def handler(
        upstream: Upstream, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while True:
            await upstream.read(reader)
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(pause)
            if close:
                writer.close()
                return

    return handler


@asynccontextmanager
async def opened() -> AsyncIterator[UpstreamClient]:
    """A client; closing it leaves no connection."""
    client = UpstreamClient()
    try:
        yield client
    finally:
        await client.close()
        assert client._client.pool.size == 0
        assert client._client.pool.idle == 0


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that other tasks bring about."""
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.002)

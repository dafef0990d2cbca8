"""Requests as bytes on one connection, for what is answered before a task is made."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from proxy import Proxy, chat_body
from proxy import request as ask_admin
from raw_http import Answer, connect, head, read_answer


def whole(proxy: Proxy, text: str, *, key: str = "sk-test", **headers: str) -> bytes:
    """A chat request, head and body. Keyword arguments are headers; `stream` is told by `text`."""
    body = json.dumps(chat_body(text, stream="stream" in text)).encode()
    return head(proxy.url, body, authorization=f"Bearer {key}", **headers) + body


class Line:
    """One connection on which requests are sent as bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def ask(self, *pieces: bytes) -> Answer:
        """Send one request in so many packets, and read its answer."""
        for piece in pieces:
            self.writer.write(piece)
            await self.writer.drain()
            if len(pieces) > 1:
                await asyncio.sleep(0.02)
        return await self.read()

    async def read(self) -> Answer:
        """The next answer."""
        async with asyncio.timeout(20):
            return await read_answer(self.reader)

    async def ended(self) -> bool:
        """The server has closed the connection."""
        async with asyncio.timeout(20):
            return await self.reader.read() == b""


def talk(proxy: Proxy, talking: Callable[[Line], Any]) -> Any:
    """Run a conversation on one connection."""

    async def run() -> Any:
        reader, writer = await connect(proxy.url)
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            return await talking(Line(reader, writer))
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    return asyncio.run(run())


def status(answer: Answer) -> str:
    """`hit`, or why not, as `Cache-Status` says it."""
    told = answer.headers["cache-status"]
    return "hit" if "; hit" in told else told.partition("; ")[2].partition(";")[0]


def split(request: bytes) -> tuple[bytes, bytes]:
    """The request in two packets."""
    return request[:-7], request[-7:]


def teach(proxy: Proxy, *requests: bytes) -> None:
    """Ask each until the usual path has given a hit on it."""
    for request in requests:

        async def twice(line: Line, request: bytes = request) -> None:
            await line.ask(request)
            assert status(await line.ask(*split(request))) == "hit"

        talk(proxy, twice)


def until(found: Callable[[], bool]) -> None:
    """Wait for something to hold."""
    deadline = time.monotonic() + 15
    while not found():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def access_lines(proxy: Proxy) -> list[dict[str, Any]]:
    """The access log."""
    found = [json.loads(line) for line in proxy.lines() if line.startswith("{")]
    return [line for line in found if line.get("event") == "request"]


def tenant_of(proxy: Proxy) -> str:
    """The tenant of the last request."""
    return str(access_lines(proxy)[-1]["tenant"])


def purge(proxy: Proxy, tenant: str, **which: str) -> None:
    """Have a tenant's entries forgotten, all or those that `which` names."""
    body = json.dumps({"tenant": tenant, **which}).encode()
    headers = {"content-type": "application/json"}
    assert ask_admin("POST", proxy.admin + "/trivet/purge", body, headers, 10).status == 200

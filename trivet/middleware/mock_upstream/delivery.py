"""Sends a `Reply` to its caller, with the delays and failures that its commands ask for."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from trivet.middleware.mock_upstream.routes import Reply

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

GARBAGE = b'data: {"choices": [\xff\n\n'
GARBAGE_BODY = b"<html>This is no JSON, as told.</html>"
_WATCHED = 0.2
"""A pause of more seconds than this ends as soon as the caller is gone."""


class ClientGone(Exception):  # noqa: N818 - the caller's right, not our error
    """The caller closed its connection before the answer was sent."""


class Caller:
    """The other end of one request."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self._watch: asyncio.Task[None] | None = None

    async def read(self) -> bytes:
        """The request's body. Raises `ClientGone`."""
        parts: list[bytes] = []
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            parts.append(message.get("body", b""))
            if not message.get("more_body"):
                return parts[0] if len(parts) == 1 else b"".join(parts)

    async def pause(self, seconds: float | None) -> None:
        """Wait; for ever when None. Raises `ClientGone` when the caller left meanwhile."""
        if self._watch is None:
            self._watch = asyncio.create_task(self._until_gone())
        if seconds is not None and seconds <= _WATCHED:
            await asyncio.sleep(seconds)
        else:
            await asyncio.wait([self._watch], timeout=seconds)
        if self._watch.done():
            raise ClientGone

    async def _until_gone(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def start(self, status: int, headers: list[tuple[str, str]]) -> None:
        """Send the answer's head."""
        pairs = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
        await self._send({"type": "http.response.start", "status": status, "headers": pairs})

    async def write(self, data: bytes, more: bool) -> None:
        """Send a part of the body."""
        await self._send({"type": "http.response.body", "body": data, "more_body": more})

    def close(self) -> None:
        """Stop watching."""
        if self._watch is not None:
            self._watch.cancel()


async def deliver(caller: Caller, reply: Reply, delay: float) -> None:
    """Send `reply`, `delay` milliseconds late at least. Raises `ClientGone`.

    An answer that is cut returns early: the server then closes the socket.
    """
    late = max(delay, reply.commands.delay)
    if late:
        await caller.pause(late / 1000)
    if reply.commands.hang == 0:
        await caller.pause(None)
    headers = [*reply.headers, ("x-trivet-mock", "not-a-model"), *reply.commands.header]
    if reply.commands.gzip:
        headers.append(("content-encoding", "gzip"))
    if reply.events is None:
        await _deliver_json(caller, reply, headers)
    else:
        await _deliver_stream(caller, reply, headers)


async def _deliver_json(caller: Caller, reply: Reply, headers: list[tuple[str, str]]) -> None:
    commands = reply.commands
    body = reply.body if commands.garbage is None else GARBAGE_BODY
    if commands.gzip:
        body = _Gzip().all(body)
    await caller.start(reply.status, [*headers, ("content-length", str(len(body)))])
    if commands.cut is not None:
        await caller.write(body[: len(body) // 2], more=True)
        return
    await caller.write(body, more=False)


async def _deliver_stream(caller: Caller, reply: Reply, headers: list[tuple[str, str]]) -> None:
    commands, events = reply.commands, reply.events
    assert events is not None
    packed = _Gzip() if commands.gzip else None
    slow = commands.slow_chunks / 1000
    await caller.start(reply.status, headers)
    for number, event in enumerate(events):
        if number == commands.cut:
            return
        if number == commands.end:
            break
        if number == commands.hang:
            await caller.pause(None)
        if number == commands.error_event:
            sent = reply.error_event("The mock upstream was told to fail here.")
        elif commands.garbage is not None and number >= commands.garbage:
            sent = GARBAGE
        else:
            sent = event
        if slow and number:
            await caller.pause(slow)
        await caller.write(packed.part(sent) if packed else sent, more=True)
        if number == commands.error_event:
            break
    await caller.write(packed.end() if packed else b"", more=False)


class _Gzip:
    """A gzip stream (RFC 1952) that can be read up to each part's end."""

    def __init__(self) -> None:
        self._state = zlib.compressobj(6, zlib.DEFLATED, 31)

    def part(self, data: bytes) -> bytes:
        return self._state.compress(data) + self._state.flush(zlib.Z_SYNC_FLUSH)

    def end(self) -> bytes:
        return self._state.flush()

    def all(self, data: bytes) -> bytes:
        return self._state.compress(data) + self._state.flush()

"""One request through an ASGI application, from the side of who asks.

The application runs as a task of its own; its answer is taken as it comes. The application waits
where too much of it is not taken.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any, Final

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

_HELD: Final = 256 << 10
"""Body bytes that may wait before the application does."""

_running: Final[set[asyncio.Task[None]]] = set()
_log = logging.getLogger("trivet")


class BrokenOffError(Exception):
    """The application ended before its answer did. `__cause__` is what it raised, if it did."""


class Exchange:
    """Begins when it is made; `leave` ends it, whatever was read of it.

    `head` comes first, then `some` until it is empty. Both raise `BrokenOffError`, and
    `TimeoutError` where nothing comes for `silence` seconds (None: however long it takes).
    """

    def __init__(self, app: App, scope: Scope, body: bytes | AsyncIterator[bytes]) -> None:
        self._body: bytes | AsyncIterator[bytes] | None = body
        self._head: tuple[int, Headers] | None = None
        self._parts: list[bytes] = []
        self._held = 0
        self._news = asyncio.Event()
        self._space = asyncio.Event()
        self._gone = asyncio.Event()
        self.ended = False
        """All of the answer has come; some of it may wait to be taken."""
        self.task = asyncio.create_task(_run(app, scope, self._receive, self._send))
        # Loops hold their tasks weakly, and an answer may be taken before its task is over.
        _running.add(self.task)
        self.task.add_done_callback(self._over)

    def _over(self, task: asyncio.Task[None]) -> None:
        _running.discard(task)
        self._news.set()
        failure = _failure(task)
        if failure is not None and self._head is not None:
            # Before the head, who asked is told.
            _log.error("the app failed after its answer had begun", exc_info=failure)

    async def head(self, silence: float | None = None) -> tuple[int, Headers]:
        """Status and headers."""
        while self._head is None:
            await self._wait(silence)
        return self._head

    async def some(self, silence: float | None = None) -> bytes:
        """What has come of the body; empty at its end."""
        while not self._parts and not self.ended:
            await self._wait(silence)
        return self.taken()

    def taken(self) -> bytes:
        """What has come of the body since it was last asked for, without waiting."""
        taken = b"".join(self._parts)
        self._parts.clear()
        self._held = 0
        self._space.set()
        return taken

    def leave(self) -> None:
        """Nobody reads on: the application is told that its caller has gone. Idempotent."""
        if not self.ended:
            self._gone.set()
            self._space.set()

    async def _wait(self, silence: float | None) -> None:
        if self.task.done():
            raise BrokenOffError from _failure(self.task)
        self._news.clear()
        async with asyncio.timeout(silence):
            await self._news.wait()

    # What the application calls.

    async def _receive(self) -> Message:
        body, more = self._body, False
        if isinstance(body, bytes):
            self._body = None
            return _request(body, more)
        if body is not None:
            part = await anext(body, None)
            more = part is not None
            if not more:
                self._body = None
            return _request(part or b"", more)
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if self._gone.is_set():
            return  # As servers do: the application finds out by its next `receive`.
        if message["type"] == "http.response.start":
            self._head = message["status"], list(message.get("headers", ()))
        elif message["type"] == "http.response.body":
            self._take(message.get("body", b""))
            self.ended = not message.get("more_body", False)
        self._news.set()
        while self._held > _HELD and not self.ended and not self._gone.is_set():
            self._space.clear()
            await self._space.wait()

    def _take(self, body: bytes) -> None:
        if body:
            self._parts.append(bytes(body))
            self._held += len(body)


async def _run(app: App, scope: Scope, receive: Receive, send: Send) -> None:
    await app(scope, receive, send)


def _request(body: bytes, more: bool) -> Message:
    return {"type": "http.request", "body": body, "more_body": more}


def _failure(task: asyncio.Task[None]) -> BaseException | None:
    return None if task.cancelled() else task.exception()

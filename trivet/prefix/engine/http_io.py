"""Reading requests and sending replies over ASGI."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from trivet.errors import RequestError

ASGIMessage = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[ASGIMessage]]
Send = Callable[[ASGIMessage], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

MOST_BODY = 16 * 1024 * 1024
MOST_BODIES = 256 * 1024 * 1024
"""Bytes of all bodies that are still coming."""
BODY_S = 60.0
"""How long a body may take to come."""
STALL_S = 120.0
"""How long a caller may read nothing while there is something for it."""

JSON: Headers = [(b"content-type", b"application/json")]
EVENTS: Headers = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
]


class ClientGone(Exception):  # noqa: N818 - an event, not an error of ours
    """The caller has left, or reads no more."""


def header(scope: ASGIMessage, name: str) -> str | None:
    """A request header, None where it is absent; one that was sent twice is joined to a list."""
    wanted = name.encode()
    found = [value for key, value in scope["headers"] if key == wanted]
    return b", ".join(found).decode("latin-1") if found else None


class Bodies:
    """Reads bodies, and bounds what those that are not complete take together."""

    def __init__(self, most: int = MOST_BODY, together: int = MOST_BODIES) -> None:
        self._most = most
        self._together = together
        self._coming = 0

    async def read(self, receive: Receive) -> bytes:
        """The whole body. Raises `ClientGone`, and `RequestError`.

        413 for one that is too large, 408 for one that is too slow, 503 beside too many others.
        """
        body = bytearray()
        try:
            async with asyncio.timeout(BODY_S):
                while await self._more(receive, body):
                    pass
            return bytes(body)
        except TimeoutError:
            message = f"The body took longer than {BODY_S:g} seconds."
            raise RequestError(408, message, code="request_timeout") from None
        finally:
            self._coming -= len(body)

    async def _more(self, receive: Receive, body: bytearray) -> bool:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        piece = message.get("body", b"")
        body += piece
        self._coming += len(piece)
        if len(body) > self._most:
            raise RequestError(
                413, f"The body is larger than {self._most} bytes.", code="body_too_large"
            )
        if self._coming > self._together:
            raise RequestError(503, "Too many bodies are coming at a time.", code="overloaded")
        return bool(message.get("more_body"))


async def gone(receive: Receive) -> None:
    """Return when the caller has left. To be awaited after the body was read."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def start(send: Send, status: int, headers: Headers) -> None:
    """Send a reply's head. Raises `ClientGone` as `piece` does."""
    await _in_time(send({"type": "http.response.start", "status": status, "headers": headers}))


async def piece(send: Send, body: bytes, *, more: bool) -> None:
    """Send a part of the body. Raises `ClientGone` for a caller that reads nothing for too long."""
    await _in_time(send({"type": "http.response.body", "body": body, "more_body": more}))


async def reply(send: Send, status: int, body: bytes, headers: Headers) -> None:
    """Send a whole reply."""
    await start(send, status, [*headers, (b"content-length", str(len(body)).encode())])
    await piece(send, body, more=False)


async def _in_time(sending: Awaitable[None]) -> None:
    try:
        async with asyncio.timeout(STALL_S):
            await sending
    except TimeoutError:
        raise ClientGone from None

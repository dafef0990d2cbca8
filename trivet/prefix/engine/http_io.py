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


async def read_body(receive: Receive, most: int = MOST_BODY) -> bytes:
    """The whole body. Raises `RequestError` 413 for one that is too large, and `ClientGone`."""
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > most:
            raise RequestError(413, f"The body is larger than {most} bytes.")
        if not message.get("more_body"):
            return b"".join(parts)


async def gone(receive: Receive) -> None:
    """Return when the caller has left. To be awaited after the body was read."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def start(send: Send, status: int, headers: Headers) -> None:
    """Send a reply's head."""
    await send({"type": "http.response.start", "status": status, "headers": headers})


async def piece(send: Send, body: bytes, *, more: bool) -> None:
    """Send a part of the body. Raises `ClientGone` for a caller that reads nothing for too long."""
    try:
        async with asyncio.timeout(STALL_S):
            await send({"type": "http.response.body", "body": body, "more_body": more})
    except TimeoutError:
        raise ClientGone from None


async def reply(send: Send, status: int, body: bytes, headers: Headers) -> None:
    """Send a whole reply."""
    await start(send, status, [*headers, (b"content-length", str(len(body)).encode())])
    await piece(send, body, more=False)

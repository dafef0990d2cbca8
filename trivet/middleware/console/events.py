"""Server-sent events: the overview's JSON, again and again, while somebody looks.

The format is that of the HTML standard, section 9.2 (server-sent events).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import orjson

from trivet.errors import CacheError, RequestError
from trivet.middleware.admin.control import Control
from trivet.middleware.console.history import History
from trivet.middleware.console.pages import Asked
from trivet.middleware.console.registry import SHOWN
from trivet.middleware.console.replies import (
    PROTECTION,
    Message,
    Receive,
    Send,
    error_reply,
    query_of,
    send_reply,
)

PERIOD_S: Final = 5.0
_LOOK_S: Final = 0.5
"""How soon a feed ends when the process is told to."""
_FEEDS: Final = 16
_PAGE: Final = "overview"


class Feed:
    """Feeds of events; at most `_FEEDS` at once."""

    def __init__(
        self, control: Control, history: History, refused: Callable[[Message], object | None]
    ) -> None:
        """`refused` says, again before each event, whether the caller may not be told."""
        self._control = control
        self._history = history
        self._refused = refused
        self._open = 0

    async def serve(self, scope: Message, receive: Receive, send: Send) -> None:
        """Send events until the caller goes or the process is to end."""
        if self._open >= _FEEDS:
            full = RequestError(503, f"{_FEEDS} consoles are fed already.", code="busy")
            await send_reply(scope, send, error_reply(full))
            return
        self._open += 1
        gone = asyncio.ensure_future(_gone(receive))
        try:
            await self._feed(scope, send, gone)
        finally:
            self._open -= 1
            gone.cancel()
            with suppress(asyncio.CancelledError):
                await gone

    async def _feed(self, scope: Message, send: Send, gone: asyncio.Future[None]) -> None:
        headers = [
            *PROTECTION,
            (b"content-type", b"text/event-stream"),
            (b"cache-control", b"no-store"),
            (b"x-accel-buffering", b"no"),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        asked = Asked(self._control, self._history, query_of(scope))
        while not (gone.done() or self._control.draining or self._refused(scope)):
            body = await _event(asked)
            await send({"type": "http.response.body", "body": body, "more_body": True})
            await self._pause(gone)
        await send({"type": "http.response.body", "body": b""})

    async def _pause(self, gone: asyncio.Future[None]) -> None:
        for _ in range(int(PERIOD_S / _LOOK_S)):
            await asyncio.wait((gone,), timeout=_LOOK_S)
            if gone.done() or self._control.draining:
                return


async def _event(asked: Asked) -> bytes:
    try:
        told = orjson.dumps(await SHOWN[_PAGE](asked))
    except CacheError as error:
        problem = {"error": {"message": str(error)}}
        return b"event: problem\ndata: " + orjson.dumps(problem) + b"\n\n"
    return b"event: overview\ndata: " + told + b"\n\n"


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass

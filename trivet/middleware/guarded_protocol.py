"""uvicorn's HTTP protocol with a guard on request heads: late ones and endless ones are closed."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_MOST_HEAD = 1 << 16
"""Bytes of a request's head; proxies in front usually allow less."""


class GuardedProtocol(HttpToolsProtocol):
    """Closes a connection whose request head does not arrive in time, or does not end.

    A connection that is kept between requests is uvicorn's own matter (`timeout_keep_alive`).
    """

    header_timeout = 20.0
    _head_alarm: asyncio.TimerHandle | None = None
    _head_size = 0

    def connection_made(self, transport: Any) -> None:
        """Part of `asyncio.Protocol`."""
        super().connection_made(transport)
        self._arm()

    def data_received(self, data: bytes) -> None:
        """Part of `asyncio.Protocol`."""
        super().data_received(data)
        if self._head_alarm is not None:
            self._head_size += len(data)
            if self._head_size > _MOST_HEAD:
                self.transport.close()

    def on_message_begin(self) -> None:
        """Part of httptools' protocol."""
        super().on_message_begin()
        if self._head_alarm is None:
            self._arm()

    def on_headers_complete(self) -> None:
        """Part of httptools' protocol."""
        self._disarm()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Part of `asyncio.Protocol`."""
        self._disarm()
        super().connection_lost(exc)

    def _arm(self) -> None:
        self._head_alarm = self.loop.call_later(self.header_timeout, self.transport.close)

    def _disarm(self) -> None:
        self._head_size = 0
        if self._head_alarm is not None:
            self._head_alarm.cancel()
            self._head_alarm = None


def guarded(header_timeout: float) -> type[GuardedProtocol]:
    """The protocol with a time limit in seconds."""
    return type("Protocol", (GuardedProtocol,), {"header_timeout": header_timeout})

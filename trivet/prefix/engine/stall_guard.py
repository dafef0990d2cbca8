"""uvicorn's HTTP protocol, with checked heads and bounds on callers that neither write nor read."""

from __future__ import annotations

import asyncio
from typing import Any

from trivet.prefix.engine.http_io import STALL_S
from trivet.request_heads import CheckedHeads

HEAD_S = 20.0
"""How long a request's head may take to come; between requests `timeout_keep_alive` counts."""


class StallGuard(CheckedHeads):
    """Drops a connection whose first request, or head of a further one, does not come in time.

    And one that leaves what it was sent unread for `STALL_S`: uvicorn hands the end of a reply to
    the transport without waiting, so the application cannot bound that.
    """

    _unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Part of `asyncio.Protocol`."""
        super().connection_made(transport)
        self._head_alarm = self.loop.call_later(HEAD_S, transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        """Part of `asyncio.Protocol`."""
        self.disarm_head()
        self._disarm_unread()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        """Part of httptools' protocol."""
        super().on_message_begin()
        if self._head_alarm is None:
            self._head_alarm = self.loop.call_later(HEAD_S, self.transport.abort)

    def pause_writing(self) -> None:
        """Part of `asyncio.Protocol`: the caller does not read as fast as it is sent."""
        super().pause_writing()
        if self._unread is None:
            self._unread = self.loop.call_later(STALL_S, self.transport.abort)

    def resume_writing(self) -> None:
        """Part of `asyncio.Protocol`."""
        super().resume_writing()
        self._disarm_unread()

    def _disarm_unread(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

"""Notices that the caller has gone while an upstream is waited for."""

from __future__ import annotations

import asyncio
from typing import Any

from trivet.middleware.arrival.direct import Direct
from trivet.middleware.arrival.intake import Receive


class Watch:
    """Cancels the task that made it when the caller disconnects.

    Armed once the body was read; it may cost a task, so it starts only when the reply has to wait.
    """

    __slots__ = ("_armed", "_direct", "_owner", "_receive", "_task", "gone")

    def __init__(self, receive: Receive, direct: Direct | None = None) -> None:
        """Where there is a `direct`, it tells; else `receive` is waited for."""
        self._receive = receive
        self._direct = direct
        self._armed = False
        self._owner: asyncio.Task[Any] | None = asyncio.current_task()
        self._task: asyncio.Task[None] | None = None
        self.gone = False

    def arm(self) -> None:
        """The body was read: what `receive` brings next is the caller's disconnect."""
        self._armed = True

    def start(self) -> None:
        """Begin to watch, if the body was read."""
        if not self._armed:
            return
        if self._direct is not None:
            self._direct.watch(self._end)
        elif self._task is None:
            self._task = asyncio.create_task(self._wait())

    async def _wait(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._end()

    def _end(self) -> None:
        self.gone = True
        if self._owner is not None:
            self._owner.cancel()

    def begin(self) -> None:
        """`arm` and `start`."""
        self.arm()
        self.start()

    def stop(self) -> None:
        """End the watch, and the request's hold on its connection."""
        if self._direct is not None:
            self._direct.end()
        if self._task is not None:
            self._task.cancel()

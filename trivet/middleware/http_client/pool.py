"""Kept connections: the one used last is used first, the idle ones are let go of."""

from __future__ import annotations

import asyncio
from typing import Final

from trivet.middleware.http_client.connection import Connection
from trivet.middleware.http_client.request import Origin

IDLE_S: Final = 30.0
CLOSE_S: Final = 2.0


class Pool:
    """All connections of one client. Their number has no bound; callers have bounds."""

    def __init__(self, idle_s: float = IDLE_S) -> None:
        self._idle_s = idle_s
        self._idle: dict[Origin, dict[Connection, float]] = {}
        """By origin, in the order in which they came to rest, with the time of that."""
        self._all: set[Connection] = set()
        self._alarm: asyncio.TimerHandle | None = None
        self._closed = False
        self._empty: asyncio.Future[None] | None = None

    @property
    def idle(self) -> int:
        """How many connections wait for use."""
        return sum(map(len, self._idle.values()))

    @property
    def size(self) -> int:
        """How many connections there are."""
        return len(self._all)

    def take(self, origin: Origin) -> Connection | None:
        """The idle connection that was used last."""
        resting = self._idle.get(origin)
        while resting:
            connection, _ = resting.popitem()
            if connection.open:
                return connection
        return None

    def keep(self, connection: Connection) -> None:
        """Take a connection back that may carry another exchange."""
        if self._closed:
            connection.abort()
            return
        connection.rest()
        loop = asyncio.get_running_loop()
        self._idle.setdefault(connection.origin, {})[connection] = loop.time()
        if self._alarm is None:
            self._alarm = loop.call_later(self._idle_s, self._sweep)

    def opened(self, connection: Connection, /) -> None:
        """A connection exists."""
        self._all.add(connection)
        if self._closed:
            connection.abort()

    def lost(self, connection: Connection, /) -> None:
        """A connection is over."""
        self._all.discard(connection)
        resting = self._idle.get(connection.origin)
        if resting is not None:
            resting.pop(connection, None)
            if not resting:
                del self._idle[connection.origin]
        if not self._all and self._empty is not None and not self._empty.done():
            self._empty.set_result(None)

    async def close(self) -> None:
        """Close every connection, those in use too. Idempotent."""
        self._closed = True
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        for connection in tuple(self._all):
            connection.abort()
        if self._all:
            self._empty = asyncio.get_running_loop().create_future()
            # A bound, so that a transport that is never reported lost does not hold the shutdown.
            await asyncio.wait([self._empty], timeout=CLOSE_S)

    def _sweep(self) -> None:
        """Close what has rested too long, and look again when the next one will have."""
        self._alarm = None
        loop = asyncio.get_running_loop()
        oldest = loop.time() - self._idle_s
        waiting: list[float] = []
        for resting in tuple(self._idle.values()):
            for connection, since in tuple(resting.items()):
                if since > oldest:
                    waiting.append(since)
                    break
                del resting[connection]
                connection.abort()
        if waiting:
            self._alarm = loop.call_later(max(min(waiting) - oldest, 0.01), self._sweep)

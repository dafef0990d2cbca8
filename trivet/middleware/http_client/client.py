"""Requests out, responses in: the pool, the dialling and the one replay put together."""

from __future__ import annotations

from typing import NamedTuple

from trivet.middleware.http_client.connection import Connection
from trivet.middleware.http_client.dial import dial
from trivet.middleware.http_client.errors import Lost
from trivet.middleware.http_client.pool import IDLE_S, Pool
from trivet.middleware.http_client.request import Fields, Origin, Request
from trivet.middleware.http_client.response import Incoming
from trivet.middleware.http_client.tls import LazyContext


class Limits(NamedTuple):
    """Seconds; 0 is no limit. `silence` counts while it is the peer's turn."""

    connect: float
    silence: float


class Response:
    """A response whose head has arrived. `close` must be called; twice is fine."""

    __slots__ = ("_connection", "_incoming", "_pool", "headers", "status")

    def __init__(self, connection: Connection, incoming: Incoming, pool: Pool) -> None:
        self.status: int = incoming.status
        self.headers: Fields = incoming.headers
        self._incoming = incoming
        self._pool = pool
        self._connection: Connection | None = connection
        if incoming.complete and not incoming.held:
            self.close()

    async def read_some(self) -> bytes:
        """What has come of the body, as soon as something has; empty at its end.

        Raises `HttpError` where the body breaks off, and at every call after `close` that did
        not follow the end.
        """
        incoming, connection = self._incoming, self._connection
        while connection is not None:
            if data := connection.take():
                return data
            if incoming.complete:
                self.close()
                break
            try:
                await connection.more()
            except BaseException:
                self.close()
                raise
        if not incoming.complete:
            raise Lost(begun=True)
        return incoming.take()

    def close(self) -> None:
        """Keep the connection if the whole response has arrived, else close it."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        if connection.reusable:
            self._pool.keep(connection)
        else:
            connection.abort()


class HttpClient:
    """A client for one event loop."""

    def __init__(self, idle_s: float = IDLE_S, tls: LazyContext | None = None) -> None:
        self.pool = Pool(idle_s)
        self._tls = tls or LazyContext()

    async def send(self, origin: Origin, request: Request, limits: Limits) -> Response:
        """Send a request and wait for the head of its response. Raises `HttpError`.

        A kept connection that closes before any byte of a response was closed by its idle peer:
        the request is sent once more, on a new one, if its body can be.
        """
        connection = self.pool.take(origin)
        if connection is not None:
            try:
                incoming = await connection.ask(request, limits.silence)
                return Response(connection, incoming, self.pool)
            except Lost as lost:
                if lost.begun or not isinstance(request.body, bytes):
                    raise
        connection = await dial(origin, self.pool, self._tls, limits.connect)
        incoming = await connection.ask(request, limits.silence)
        return Response(connection, incoming, self.pool)

    async def close(self) -> None:
        """Close every connection."""
        await self.pool.close()

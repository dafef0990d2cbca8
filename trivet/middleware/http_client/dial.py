"""Opening connections: names are resolved each time, addresses raced (RFC 8305), TLS on top.

The race is run here because uvloop's `create_connection` has none.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Iterable
from itertools import chain, zip_longest
from typing import Any, Final

from trivet.middleware.http_client.connection import Connection, Owner
from trivet.middleware.http_client.errors import ConnectFailed, ConnectTimeout
from trivet.middleware.http_client.request import Origin
from trivet.middleware.http_client.tls import LazyContext

ATTEMPT_DELAY_S: Final = 0.25
"""Head start of each address over the next one (RFC 8305 section 5)."""

Address = tuple[int, Any]
"""Family and socket address."""


async def dial(origin: Origin, owner: Owner, tls: LazyContext, seconds: float) -> Connection:
    """A new connection, within `seconds` (0: however long it takes).

    Raises `ConnectTimeout` and `ConnectFailed`.
    """
    try:
        # Made once, here: reading the trust store is not the peer's time.
        context = await tls.get() if origin.tls else None
        async with asyncio.timeout(seconds or None):
            return await _dial(origin, owner, context)
    except TimeoutError as error:
        if error.errno is not None:
            raise ConnectFailed(_text(error)) from None
        raise ConnectTimeout("no connection in time") from None
    except ssl.SSLCertVerificationError as error:
        raise ConnectFailed(f"its certificate is not valid ({error.verify_message})") from None
    except ssl.SSLError as error:
        raise ConnectFailed(f"TLS failed ({error.reason or error})") from None
    except OSError as error:
        raise ConnectFailed(_text(error)) from None


async def _dial(origin: Origin, owner: Owner, context: ssl.SSLContext | None) -> Connection:
    loop = asyncio.get_running_loop()
    connected = await first_connected(await resolve(origin.host, origin.port))
    connection = Connection(origin, owner)
    try:
        # From here on the socket is the transport's: both loops close it if this fails.
        await loop.create_connection(
            lambda: connection,
            sock=connected,
            ssl=context,
            server_hostname=origin.host if origin.tls else None,
        )
    except BaseException:
        # Cancelled after `connection_made`, uvloop closes without a `connection_lost`.
        owner.lost(connection)
        raise
    return connection


async def resolve(host: str, port: int) -> list[Address]:
    """The addresses of a host, families alternating, the preferred one first."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
        except OSError:
            continue
        return [(family, (host, port))]
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = [(int(family), address) for family, _, _, _, address in found]
    if not addresses:
        raise OSError("the name has no address")
    first = addresses[0][0]
    preferred = [item for item in addresses if item[0] == first]
    others = [item for item in addresses if item[0] != first]
    return [item for item in chain(*zip_longest(preferred, others)) if item is not None]


async def first_connected(addresses: list[Address]) -> socket.socket:
    """The socket that connects first; an address is tried when the one before it fails or is slow.

    Raises the first address's `OSError` if none connects.
    """
    if len(addresses) == 1:
        return await _connect(addresses[0])
    loop = asyncio.get_running_loop()
    started: list[asyncio.Task[socket.socket]] = []
    winner: asyncio.Task[socket.socket] | None = None
    try:
        for address in addresses:
            started.append(loop.create_task(_connect(address)))
            winner = await _await_winner(started, ATTEMPT_DELAY_S)
            if winner is not None:
                return winner.result()
        winner = await _await_winner(started, None)
        if winner is not None:
            return winner.result()
        raise started[0].exception() or OSError("no address could be reached")
    finally:
        await _end([task for task in started if task is not winner])


async def _await_winner(
    started: list[asyncio.Task[socket.socket]], seconds: float | None
) -> asyncio.Task[socket.socket] | None:
    """Wait for a success; without a time limit until all have failed, with one until one has."""
    while pending := [task for task in started if not task.done()]:
        done, _ = await asyncio.wait(pending, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            if task.exception() is None:
                return task
        if seconds is not None:
            return None
    return None


async def _end(tasks: Iterable[asyncio.Task[socket.socket]]) -> None:
    losers = list(tasks)
    for task in losers:
        task.cancel()
    if losers:
        await asyncio.wait(losers)
    for task in losers:
        if not task.cancelled() and task.exception() is None:
            task.result().close()


async def _connect(address: Address) -> socket.socket:
    family, place = address
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setblocking(False)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().sock_connect(made, place)
    except BaseException:
        made.close()
        raise
    return made


def _text(error: OSError) -> str:
    if error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    return error.strerror or str(error) or type(error).__name__

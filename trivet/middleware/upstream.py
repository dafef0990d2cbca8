"""The one HTTP client of the data plane: asks an upstream, hands its answer over as it arrives.

aiohttp by measurement: httpx costs about twelve times as much CPU per request under concurrency.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import aiohttp
from yarl import URL

from trivet.errors import UpstreamError
from trivet.middleware.config import UpstreamConfig
from trivet.middleware.headers import RawHeaders

_SLICE = 1 << 18
"""Bodies beyond this are written in slices, so that one large body does not hold the loop."""

Body = bytes | AsyncIterator[bytes]


@dataclass(slots=True)
class UpstreamResponse:
    """An answer whose head has arrived. `close` must be called; twice is fine."""

    status: int
    headers: RawHeaders
    _response: aiohttp.ClientResponse

    @property
    def media_type(self) -> str:
        """The content type without parameters, in lower case."""
        for name, value in self.headers:
            if name.lower() == b"content-type":
                return value.split(b";", 1)[0].strip().lower().decode("latin-1")
        return ""

    @property
    def coded(self) -> bool:
        """Whether the body is compressed although no coding was asked for."""
        return any(
            name.lower() == b"content-encoding" and value.lower() not in (b"", b"identity")
            for name, value in self.headers
        )

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """The body as it arrives. Raises `UpstreamError` if it breaks off."""
        try:
            async for chunk in self._response.content.iter_any():
                yield chunk
        except TimeoutError:
            raise UpstreamError(
                "upstream-timeout", "The upstream went silent in the middle of its answer.", 504
            ) from None
        except (aiohttp.ClientError, OSError) as error:
            raise UpstreamError(
                "upstream-cut", f"The upstream broke its answer off ({type(error).__name__})."
            ) from None

    async def read(self) -> bytes:
        """The whole body."""
        return b"".join([chunk async for chunk in self.chunks()])

    def close(self) -> None:
        """Give the connection back if the body was read to its end, else close it."""
        self._response.close() if not self._response.content.at_eof() else self._response.release()


class UpstreamClient:
    """Connections to all upstreams. Must be opened inside the event loop."""

    def __init__(self) -> None:
        trace = aiohttp.TraceConfig()
        trace.on_connection_reuseconn.append(_note_reuse)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ttl_dns_cache=60, keepalive_timeout=30),
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
            trace_configs=[trace],
            read_bufsize=1 << 16,
        )

    async def send(
        self,
        upstream: UpstreamConfig,
        method: str,
        target: str,
        headers: RawHeaders,
        body: Body,
    ) -> UpstreamResponse:
        """Send one request and wait for the answer's head.

        `target` is the path with its query, as it came. Raises `UpstreamError`. A kept connection
        that the upstream closed before it answered is replaced once: that request was not read.
        """
        once_more = isinstance(body, bytes)
        while True:
            reused = SimpleNamespace(connection=False)
            try:
                return await self._send(upstream, method, target, (headers, body), reused)
            except (aiohttp.ServerDisconnectedError, ConnectionResetError) as error:
                if not (once_more and reused.connection):
                    raise _translated(upstream, error) from None
                once_more = False
            except (TimeoutError, aiohttp.ClientError, OSError, ssl.SSLError) as error:
                raise _translated(upstream, error) from None

    async def _send(
        self,
        upstream: UpstreamConfig,
        method: str,
        target: str,
        message: tuple[RawHeaders, Body],
        reused: SimpleNamespace,
    ) -> UpstreamResponse:
        headers, body = message
        fields = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers]
        data: Any = body or None
        if isinstance(body, bytes) and len(body) > _SLICE:
            fields.append(("content-length", str(len(body))))
            data = _sliced(body)
        response = await self._session.request(
            method,
            URL(upstream.root + target, encoded=True),
            headers=fields,
            data=data,
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(
                total=None, sock_connect=upstream.connect_timeout, sock_read=upstream.read_timeout
            ),
            trace_request_ctx=reused,
        )
        return UpstreamResponse(response.status, list(response.raw_headers), response)

    async def close(self) -> None:
        """Close every connection."""
        await self._session.close()


async def _note_reuse(_session: Any, context: Any, _params: Any) -> None:
    context.trace_request_ctx.connection = True


async def _sliced(body: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(body), _SLICE):
        yield body[start : start + _SLICE]


def _translated(upstream: UpstreamConfig, error: Exception) -> UpstreamError:
    name = upstream.name
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return UpstreamError(
            "upstream-connect", f"The upstream {name!r} did not accept a connection in time.", 504
        )
    if isinstance(error, asyncio.TimeoutError):
        return UpstreamError(
            "upstream-timeout", f"The upstream {name!r} did not answer in time.", 504
        )
    if isinstance(error, aiohttp.ClientConnectorError):
        return UpstreamError(
            "upstream-refused",
            f"The upstream {name!r} cannot be reached: {error.os_error.strerror}.",
        )
    if isinstance(error, aiohttp.ServerDisconnectedError | ConnectionResetError):
        return UpstreamError(
            "upstream-cut", f"The upstream {name!r} closed the connection without an answer."
        )
    return UpstreamError(
        "upstream-garbage", f"The upstream {name!r} sent no valid HTTP ({type(error).__name__})."
    )

"""The one HTTP client of the data plane: asks an upstream, hands its answer over as it arrives.

Built on `trivet.middleware.http_client`, by measurement: aiohttp costs more of a request's CPU
and of the process's memory than the rest of the miss path can spare, and httpx far more of both.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass

from trivet.errors import UpstreamError
from trivet.middleware.config import UpstreamConfig
from trivet.middleware.headers import RawHeaders
from trivet.middleware.http_client.client import HttpClient, Limits, Response
from trivet.middleware.http_client.errors import (
    ConnectFailed,
    ConnectTimeout,
    Garbage,
    HttpError,
    Silent,
    Unsendable,
)
from trivet.middleware.http_client.request import Body, root_of, write_request
from trivet.middleware.signed_tenant import TenantSigner


def media_type_of(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """The content type without parameters, in lower case; empty if there is none."""
    for name, value in headers:
        if name.lower() == b"content-type":
            return value.split(b";", 1)[0].strip().lower().decode("latin-1")
    return ""


@dataclass(slots=True)
class UpstreamResponse:
    """An answer whose head has arrived. `close` must be called; twice is fine."""

    status: int
    headers: RawHeaders
    _response: Response

    @property
    def media_type(self) -> str:
        """The content type without parameters, in lower case."""
        return media_type_of(self.headers)

    @property
    def coded(self) -> bool:
        """Whether the body is compressed although no coding was asked for."""
        given = [value for name, value in self.headers if name.lower() == b"content-encoding"]
        return any(value.lower() not in (b"", b"identity") for value in given)

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """The body as it arrives. Raises `UpstreamError` if it breaks off."""
        read_some = self._response.read_some
        try:
            while chunk := await read_some():
                yield chunk
        except HttpError as error:
            raise _broken_off(error) from None

    async def read(self) -> bytes:
        """The whole body. Raises `UpstreamError` if it breaks off."""
        return b"".join([chunk async for chunk in self.chunks()])

    def close(self) -> None:
        """Give the connection back if the whole answer has arrived, else close it."""
        self._response.close()


class UpstreamClient:
    """Connections to all upstreams, for one event loop."""

    def __init__(self, signer: TenantSigner | None = None) -> None:
        self._client = HttpClient()
        self._signer = signer

    async def send(
        self,
        upstream: UpstreamConfig,
        method: str,
        target: str,
        headers: RawHeaders,
        body: Body,
    ) -> UpstreamResponse:
        """Send one request and wait for the answer's head.

        `target` is the path with its query, as it came. Raises `UpstreamError`, and whatever an
        iterated body raises. A kept connection that the upstream closed before it answered is
        replaced once: that request was not read.
        """
        if self._signer is not None:
            headers = self._signer.signed(upstream, headers, body)
        limits = Limits(upstream.connect_timeout, upstream.read_timeout)
        try:
            root = root_of(upstream.root)
            request = write_request(root, method, target, headers, body)
            response = await self._client.send(root.origin, request, limits)
        except HttpError as error:
            raise _no_answer(upstream.name, error) from None
        return UpstreamResponse(response.status, response.headers, response)

    async def close(self) -> None:
        """Close every connection."""
        await self._client.close()


def _no_answer(name: str, error: HttpError) -> UpstreamError:
    match error:
        case ConnectTimeout():
            reason, what, status = "upstream-connect", "did not accept a connection in time", 504
        case Silent():
            reason, what, status = "upstream-timeout", "did not answer in time", 504
        case ConnectFailed():
            reason, what, status = "upstream-refused", f"cannot be reached: {error}", 502
        case Garbage():
            reason, what, status = "upstream-garbage", f"sent no valid HTTP ({error})", 502
        case Unsendable():
            reason, what, status = "upstream-unsendable", f"cannot be sent this: {error}", 400
        case _:
            reason, what, status = "upstream-cut", "closed the connection without an answer", 502
    return UpstreamError(reason, f"The upstream {name!r} {what}.", status)


def _broken_off(error: HttpError) -> UpstreamError:
    match error:
        case Silent():
            what = "The upstream went silent in the middle of its answer."
            return UpstreamError("upstream-timeout", what, 504)
        case Garbage():
            what = f"The upstream's answer is not valid HTTP from some byte on ({error})."
            return UpstreamError("upstream-garbage", what)
        case _:
            return UpstreamError("upstream-cut", "The upstream broke its answer off.")

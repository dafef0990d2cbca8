"""The one HTTP client of the data plane: asks an upstream, hands its answer over as it arrives.

Built on `trivet.middleware.http_client`, by measurement: aiohttp costs more of a request's CPU
and of the process's memory than the rest of the miss path can spare, and httpx far more of both.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from trivet.errors import UpstreamError
from trivet.messages import Usage
from trivet.middleware.arrival.headers import RawHeaders
from trivet.middleware.http_client.client import HttpClient, Limits
from trivet.middleware.http_client.errors import (
    ConnectFailed,
    ConnectTimeout,
    Garbage,
    HttpError,
    Silent,
    Unsendable,
)
from trivet.middleware.http_client.request import Body, root_of, write_request
from trivet.middleware.prefix_tier.signed_tenant import TenantSigner
from trivet.middleware.prefix_tier.usage_tap import NOTHING, Told
from trivet.middleware.running.config import UpstreamConfig

if TYPE_CHECKING:
    from trivet.middleware.call import Call
    from trivet.middleware.fleets.fleets import Fleets
    from trivet.middleware.fleets.way import Way
    from trivet.middleware.prefix_tier.metering import Meter


def media_type_of(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """The content type without parameters, in lower case; empty if there is none."""
    for name, value in headers:
        if name.lower() == b"content-type":
            return value.split(b";", 1)[0].strip().lower().decode("latin-1")
    return ""


class Arriving(Protocol):
    """A response whose head has arrived. `close` must be called; twice is fine."""

    async def read_some(self) -> bytes:
        """What has come of the body; empty at its end. Raises `HttpError` where it breaks off."""
        ...

    def close(self) -> None:
        """Let go of it."""
        ...


@dataclass(slots=True)
class UpstreamResponse:
    """An answer whose head has arrived. `close` must be called; twice is fine."""

    status: int
    headers: RawHeaders
    _response: Arriving
    meter: Meter | None = None
    """Reads what the answer cost; None where nobody asks."""
    left: Callable[[], None] | None = None
    """To be called once, when the answer is closed."""
    media_type: str = field(init=False)
    """The content type without parameters, in lower case."""

    def __post_init__(self) -> None:
        self.media_type = media_type_of(self.headers)

    @property
    def coded(self) -> bool:
        """Whether the body is compressed although no coding was asked for."""
        for name, value in self.headers:
            if name.lower() == b"content-encoding" and value.lower() not in (b"", b"identity"):
                return True
        return False

    async def read_some(self) -> bytes:
        """What has come of the body, as soon as something has; empty at its end.

        Raises `UpstreamError` if it breaks off.
        """
        try:
            chunk = await self._response.read_some()
        except HttpError as error:
            raise _broken_off(error) from None
        if chunk and self.meter is not None:
            self.meter.take(chunk)
        return chunk

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """The body as it arrives. Raises `UpstreamError` if it breaks off."""
        while chunk := await self.read_some():
            yield chunk

    async def read(self) -> bytes:
        """The whole body. Raises `UpstreamError` if it breaks off."""
        return b"".join([chunk async for chunk in self.chunks()])

    def settle(self, usage: Usage | None, model: str) -> None:
        """Whoever read the whole answer says what it cost: it is not looked at again."""
        if self.meter is not None:
            self.meter.settle(usage, model)

    def told(self) -> Told:
        """What the answer cost, as far as it was read."""
        return NOTHING if self.meter is None else self.meter.told()

    def close(self) -> None:
        """Give the connection back if the whole answer has arrived, else close it."""
        self._response.close()
        if self.meter is not None:
            self.meter.end()
        if self.left is not None:
            left, self.left = self.left, None
            left()


class Sender(Protocol):
    """Who sends requests to upstreams."""

    def ask(self, call: Call, body: bytes) -> Awaitable[UpstreamResponse]:
        """Send a call's `body`. The awaitable raises `UpstreamError`."""
        ...

    def send(
        self, upstream: UpstreamConfig, method: str, target: str, headers: RawHeaders, body: bytes
    ) -> Awaitable[UpstreamResponse]:
        """Send a chat request of the proxy's own. The awaitable raises `UpstreamError`."""
        ...


class UpstreamClient:
    """Connections to all upstreams, for one event loop."""

    def __init__(self, signer: TenantSigner | None = None, fleets: Fleets | None = None) -> None:
        self._client = HttpClient()
        self._signer = signer
        self._fleets = fleets

    def ask(self, call: Call, body: bytes) -> Awaitable[UpstreamResponse]:
        """Send a call's `body` as it is. The awaitable raises `UpstreamError`."""
        return self.send(call.upstream, "POST", call.target, call.headers, body)

    def send(
        self,
        upstream: UpstreamConfig,
        method: str,
        target: str,
        headers: RawHeaders,
        body: Body,
        way: Way | None = None,
    ) -> Awaitable[UpstreamResponse]:
        """Send one request and wait for the answer's head.

        `target` is the path with its query, as it came; `way` is for an upstream with replicas. The
        awaitable raises `UpstreamError`, and whatever an iterated body raises. A kept connection
        that the upstream closed before it answered is replaced once: that request was not read.
        """
        if self._signer is not None:
            headers = self._signer.signed(upstream, headers, body)
        if upstream.replicas and self._fleets is not None:
            sent = (method, target, headers, body)
            return self._fleets.send(
                upstream, sent, way, lambda root: self.send_to(upstream, root, *sent)
            )
        return self.send_to(upstream, upstream.root, method, target, headers, body)

    async def send_to(
        self,
        upstream: UpstreamConfig,
        base: str,
        method: str,
        target: str,
        headers: RawHeaders,
        body: Body,
    ) -> UpstreamResponse:
        """Send one request to the server at `base`, signed as it is. Raises `UpstreamError`."""
        limits = Limits(upstream.connect_timeout, upstream.read_timeout)
        try:
            root = root_of(base)
            request = write_request(root, method, target, headers, body)
            response = await self._client.send(root.origin, request, limits)
        except HttpError as error:
            raise _no_answer(upstream.name, error) from None
        return UpstreamResponse(response.status, response.headers, response)

    def told(self, upstream: UpstreamConfig, way: Way | None, cached: int) -> None:
        """An answer said how many tokens of its prompt were cached; `way` is its request's."""
        if way is not None and self._fleets is not None:
            self._fleets.told(upstream, way, cached)

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

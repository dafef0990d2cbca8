"""An ASGI application as the upstream: what a middleware's service asks in place of a server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from trivet.errors import UpstreamError
from trivet.library.exchange import App, BrokenOffError, Exchange, Scope
from trivet.middleware.arrival.headers import RawHeaders
from trivet.middleware.fleets.fleets import Fleets
from trivet.middleware.http_client.errors import Lost, Silent
from trivet.middleware.prefix_tier.signed_tenant import TenantSigner
from trivet.middleware.running.config import UpstreamConfig
from trivet.middleware.upstream import UpstreamClient, UpstreamResponse

ASKED_AT: Final = b"x-trivet-asked-host"
"""Carries the request's own `Host` through the service, so that it is in the key."""


@dataclass
class Arrived:
    """The request that the middleware is answering, for the calls that are made on its behalf."""

    scope: Scope
    failure: list[BaseException] = field(default_factory=list)
    """What the application raised meanwhile."""


arrived: ContextVar[Arrived | None] = ContextVar("trivet_arrived", default=None)


class AppClient(UpstreamClient):
    """Asks `app` for whatever would go over the network."""

    def __init__(self, app: App, signer: TenantSigner, fleets: Fleets) -> None:
        super().__init__(signer, fleets)
        self._app = app

    async def send_to(
        self,
        upstream: UpstreamConfig,
        base: str,
        method: str,
        target: str,
        headers: RawHeaders,
        body: bytes | AsyncIterator[bytes],
    ) -> UpstreamResponse:
        """Ask the application. Raises `UpstreamError` where it fails before its answer begins."""
        origin = arrived.get()
        scope = _scope(origin, base, (method, target), headers, body)
        exchange = Exchange(self._app, scope, body)
        silence = upstream.read_timeout or None
        try:
            status, found = await exchange.head(silence)
        except BrokenOffError as error:
            if origin is not None and error.__cause__ is not None:
                origin.failure.append(error.__cause__)
            raise UpstreamError("upstream-cut", "The app failed on this request.") from None
        except TimeoutError:
            exchange.leave()
            raise UpstreamError(
                "upstream-timeout", "The app did not answer in time.", 504
            ) from None
        except BaseException:
            exchange.leave()
            raise
        return UpstreamResponse(status, _lowered(found), _Body(exchange, silence))


class _Body:
    """The application's answer, as the service reads it."""

    def __init__(self, exchange: Exchange, silence: float | None) -> None:
        self._exchange = exchange
        self._silence = silence

    async def read_some(self) -> bytes:
        """See `Arriving`."""
        try:
            return await self._exchange.some(self._silence)
        except BrokenOffError:
            raise Lost(begun=True) from None
        except TimeoutError:
            raise Silent("nothing came") from None

    def close(self) -> None:
        """See `Arriving`."""
        self._exchange.leave()


def _scope(
    origin: Arrived | None,
    base: str,
    line: tuple[str, str],
    headers: RawHeaders,
    body: bytes | AsyncIterator[bytes],
) -> Scope:
    """The request as the server told of it, with what goes upstream in place of what came.

    A call of the service's own, on no request's behalf, has a scope with no more than it needs.
    """
    method, target = line
    scope: dict[str, Any] = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.5"},
        "http_version": "1.1",
        "scheme": "http",
        "root_path": "",
        "client": None,
        "server": None,
    }
    if origin is not None:
        scope.update(origin.scope)
    path, _, query = target.partition("?")
    raw = f"{scope['root_path']}{urlsplit(base).path}{path}"
    named = [value for name, value in headers if name == ASKED_AT]
    kept = [item for item in headers if item[0] not in (ASKED_AT, b"host", b"content-length")]
    kept.insert(0, (b"host", named[-1] if named else b"localhost"))
    if isinstance(body, bytes):
        kept.append((b"content-length", b"%d" % len(body)))
    return scope | {
        "method": method,
        "path": unquote(raw),
        "raw_path": raw.encode("latin-1"),
        "query_string": query.encode("latin-1"),
        "headers": kept,
    }


def _lowered(headers: RawHeaders) -> RawHeaders:
    return [(name.lower(), value) for name, value in headers]

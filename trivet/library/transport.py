"""Transports for httpx2 clients: the tiers inside the app's process.

    OpenAI(http_client=DefaultHttpxClient(transport=TrivetTransport()))

A request goes where it was addressed, by way of the service that `trivet serve` runs. The async
transport runs it in the caller's event loop, the sync one in a thread with a loop of its own.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

try:
    import httpx2
except ModuleNotFoundError:
    raise ImportError("the transport needs httpx2: pip install 'trivet[library]'") from None

from trivet.library.background import Background, background
from trivet.library.exchange import BrokenOffError, Exchange, Headers, Scope
from trivet.library.host import Host, Hosts
from trivet.library.settings import HERE, TENANT, named, plan_of

Tenant = str | Callable[[], str] | None
"""Whose requests these are: one tenant's, or whose the function says, called in the context of
each request. None: each credential is its own tenant, or the policies' as they say."""
_EXTENSIONS = {"http_version": b"HTTP/1.1"}
_UNKEPT = httpx2.Limits(max_keepalive_connections=0)
"""For requests that go without tiers: a kept connection would belong to one event loop, or to the
process before a fork."""


class AsyncTrivetTransport(httpx2.AsyncBaseTransport):
    """For `httpx2.AsyncClient`. May be used in any number of event loops, each with its own tiers.

    `config` is a server config file; `store` and `policies` are as the flags of `trivet serve`.
    Where the file declares upstreams, requests to their base URLs pass the tiers; else all do.
    Raises `ConfigError`.
    """

    def __init__(
        self,
        *,
        tenant: Tenant = None,
        store: str | None = None,
        policies: str | Path | None = None,
        config: str | Path | None = None,
    ) -> None:
        self._tenant = tenant
        self._hosts = Hosts(plan_of(config, store, policies, named=tenant is not None))
        self._plain: httpx2.AsyncHTTPTransport | None = None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """The response, its body as it comes. Raises `httpx2.TransportError`."""
        host = self._hosts.here
        way = await host.way(_origin(request.url), _path(request.url))
        if way is None:
            self._plain = self._plain or httpx2.AsyncHTTPTransport(limits=_UNKEPT)
            return await self._plain.handle_async_request(request)
        scope = _scope(request, way.path, _named(self._tenant))
        silence = _silence(request)
        exchange = host.ask(way.app, scope, _async_body(request))
        status, headers = await _head(exchange, silence, request)
        body = _AsyncBody(exchange, silence, request)
        return httpx2.Response(status, headers=headers, stream=body, extensions=_EXTENSIONS)

    async def aclose(self) -> None:
        """Close what is open in this event loop. Others close theirs when they end."""
        await self._hosts.close()
        if self._plain is not None:
            await self._plain.aclose()


class TrivetTransport(httpx2.BaseTransport):
    """For `httpx2.Client`, from any thread. Settings are those of `AsyncTrivetTransport`."""

    def __init__(
        self,
        *,
        tenant: Tenant = None,
        store: str | None = None,
        policies: str | Path | None = None,
        config: str | Path | None = None,
    ) -> None:
        self._tenant = tenant
        self._plan = plan_of(config, store, policies, named=tenant is not None)
        self._hosts: dict[Background, Host] = {}
        self._plain: httpx2.HTTPTransport | None = None

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """The response, its body as it comes. Raises `httpx2.TransportError`."""
        behind, host = self._place()
        tenant = _named(self._tenant)
        found = behind.run(_answer(host, request, tenant), _left)
        if found is None:
            self._plain = self._plain or httpx2.HTTPTransport(limits=_UNKEPT)
            return self._plain.handle_request(request)
        status, headers, exchange, first = found
        if exchange is None:
            return httpx2.Response(
                status, headers=headers, stream=httpx2.ByteStream(first), extensions=_EXTENSIONS
            )
        body = _SyncBody(behind, exchange, first, request)
        return httpx2.Response(status, headers=headers, stream=body, extensions=_EXTENSIONS)

    def close(self) -> None:
        """Let go of connections and stores."""
        behind = background()
        host = self._hosts.pop(behind, None)
        if host is not None:
            behind.run(host.close())
        if self._plain is not None:
            self._plain.close()

    def _place(self) -> tuple[Background, Host]:
        """The thread of this process, and what this transport runs there."""
        behind = background()
        host = self._hosts.get(behind)
        if host is None:
            made = Host(self._plan)
            # Of several threads that come first, one makes the host of all.
            host = self._hosts.setdefault(behind, made)
            if host is made:
                weakref.finalize(self, _close_later, behind, host).atexit = False
        return behind, host


class _Answer(NamedTuple):
    """An answer whose head has come. `exchange` is None where `first` is the whole body."""

    status: int
    headers: Headers
    exchange: Exchange | None
    first: bytes


async def _answer(host: Host, request: httpx2.Request, tenant: bytes | None) -> _Answer | None:
    way = await host.way(_origin(request.url), _path(request.url))
    if way is None:
        return None
    exchange = host.ask(way.app, _scope(request, way.path, tenant), _sync_body(request))
    status, headers = await _head(exchange, _silence(request), request)
    first = exchange.taken()
    return _Answer(status, headers, None if exchange.ended else exchange, first)


def _left(answer: _Answer | None) -> None:
    if answer is not None and answer.exchange is not None:
        answer.exchange.leave()


def _close_later(behind: Background, host: Host) -> None:
    behind.call(lambda: asyncio.ensure_future(host.close()))


async def _head(
    exchange: Exchange, silence: float | None, request: httpx2.Request
) -> tuple[int, Headers]:
    with _telling(exchange, request):
        return await exchange.head(silence)


async def _some(exchange: Exchange, silence: float | None, request: httpx2.Request) -> bytes:
    with _telling(exchange, request):
        return await exchange.some(silence)


@contextmanager
def _telling(exchange: Exchange, request: httpx2.Request) -> Iterator[None]:
    """Whatever goes wrong ends the exchange, and is told in httpx's words."""
    try:
        yield
    except TimeoutError:
        exchange.leave()
        raise httpx2.ReadTimeout("nothing came in time", request=request) from None
    except BrokenOffError as error:
        told = "the answer broke off"
        raise httpx2.RemoteProtocolError(told, request=request) from error.__cause__
    except BaseException:
        exchange.leave()
        raise


class _AsyncBody(httpx2.AsyncByteStream):
    def __init__(self, exchange: Exchange, silence: float | None, request: httpx2.Request) -> None:
        self._exchange = exchange
        self._silence = silence
        self._request = request

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while part := await _some(self._exchange, self._silence, self._request):
            yield part

    async def aclose(self) -> None:
        self._exchange.leave()


class _SyncBody(httpx2.SyncByteStream):
    def __init__(
        self, behind: Background, exchange: Exchange, first: bytes, request: httpx2.Request
    ) -> None:
        self._behind = behind
        self._exchange = exchange
        self._first = first
        self._request = request

    def __iter__(self) -> Iterator[bytes]:
        if self._first:
            yield self._first
        silence = _silence(self._request)
        while part := self._behind.run(_some(self._exchange, silence, self._request)):
            yield part

    def close(self) -> None:
        self._behind.call(self._exchange.leave)


def _named(tenant: Tenant) -> bytes | None:
    name = tenant() if callable(tenant) else tenant
    return None if name is None else named(name)


def _origin(url: httpx2.URL) -> str:
    return f"{url.scheme}://{url.netloc.decode('ascii')}"


def _path(url: httpx2.URL) -> str:
    return url.raw_path.partition(b"?")[0].decode("latin-1")


def _scope(request: httpx2.Request, path: str, tenant: bytes | None) -> Scope:
    """The request as an ASGI server would tell of it. Only this names a tenant."""
    headers = [(name.lower(), value) for name, value in request.headers.raw]
    headers = [item for item in headers if item[0] != TENANT]
    if tenant is not None:
        headers.append((TENANT, tenant))
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.5"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": request.url.scheme,
        "path": path,
        "raw_path": path.encode("latin-1"),
        "query_string": request.url.query,
        "root_path": "",
        "headers": headers,
        "client": HERE,
        "server": (request.url.host, request.url.port),
    }


def _silence(request: httpx2.Request) -> float | None:
    """How many seconds nothing may come: httpx's read timeout."""
    timeouts: dict[str, Any] = request.extensions.get("timeout") or {}
    seconds: float | None = timeouts.get("read")
    return seconds


def _async_body(request: httpx2.Request) -> bytes | AsyncIterator[bytes]:
    try:
        return request.content
    except httpx2.RequestNotRead:
        assert isinstance(request.stream, httpx2.AsyncByteStream)
        return aiter(request.stream)


def _sync_body(request: httpx2.Request) -> bytes | AsyncIterator[bytes]:
    try:
        return request.content
    except httpx2.RequestNotRead:
        assert isinstance(request.stream, httpx2.SyncByteStream)
        return _in_threads(iter(request.stream))


async def _in_threads(parts: Iterator[bytes]) -> AsyncIterator[bytes]:
    while (part := await asyncio.to_thread(next, parts, None)) is not None:
        yield part

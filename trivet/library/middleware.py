"""An ASGI middleware: the tiers in front of an app that serves LLM APIs itself.

    app.add_middleware(TrivetMiddleware)

The app is the upstream. What a tier answers does not reach it; what none answers does, as it came.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, cast

from trivet.library.app_upstream import ASKED_AT, AppClient, Arrived, arrived
from trivet.library.exchange import App, Message, Receive, Scope, Send
from trivet.library.host import Hosts, Way
from trivet.library.settings import HERE, TENANT, named, place_of, plan_of
from trivet.middleware.dialects.registry import route_of
from trivet.middleware.running.config import UpstreamConfig
from trivet.middleware.running.service import Within

_ORIGIN: Final = "http://app.invalid"
"""Stands for the app in keys. Nothing is sent there."""


class TrivetMiddleware:
    """Wraps an ASGI 3.0 app.

    A hit does not reach the app, so what decides who may ask belongs around this middleware.
    `tenant` tells from a request's scope whose it is; where it says None, the request goes to the
    app without tiers. Without a `tenant` each credential (`Authorization`, cookies, ...) is its
    own. `under` are the paths in front of the APIs' own (`/v1/chat/completions`, ...); `store`,
    `policies` and `config` are those of `AsyncTrivetTransport`, but for the config's upstreams:
    the app is the only one. Raises `ConfigError`.
    """

    def __init__(
        self,
        app: App,
        *,
        tenant: Callable[[Scope], str | None] | None = None,
        under: tuple[str, ...] = ("",),
        store: str | None = None,
        policies: str | Path | None = None,
        config: str | Path | None = None,
    ) -> None:
        self._app = app
        self._tenant = tenant
        # The longest comes first: `/api` must not take what is under `/api/llm`.
        self._places = {
            path.rstrip("/"): place_of(_upstream(path))
            for path in sorted(under, key=len, reverse=True)
        }
        only = tuple(_upstream(path) for path in self._places)
        plan = plan_of(config, store, policies, named=tenant is not None, only=only)
        within = Within(client=partial(AppClient, app), helper=False)
        self._hosts = Hosts(plan, within)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI 3.0."""
        if scope["type"] == "lifespan":
            await self._live(scope, receive, send)
            return
        way = await self._way(scope)
        tenant = None if way is None or self._tenant is None else self._tenant(scope)
        if way is None or (self._tenant is not None and tenant is None):
            await self._app(scope, receive, send)
            return
        holder = Arrived(scope)
        token = arrived.set(holder)
        try:
            await way.app(_asked(scope, way.path, tenant), receive, _telling(holder, send))
        finally:
            arrived.reset(token)

    async def _live(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._app(scope, receive, send)
        finally:
            await self._hosts.close()

    async def _way(self, scope: Scope) -> Way | None:
        """The service, where the request is to one of the APIs."""
        if scope["type"] != "http" or scope["method"] != "POST":
            return None
        path = _path(scope)
        for under, place in self._places.items():
            rest = path[len(under) :]
            if path.startswith(under) and route_of(rest) is not None:
                service = await self._hosts.here.service()
                return None if service is None else Way(cast(App, service.app), place + rest)
        return None


def _upstream(path: str) -> UpstreamConfig:
    """The app as an upstream: what it is sent is what came, nothing asked for on top."""
    path = path.rstrip("/")
    return UpstreamConfig(
        name="app" + path.replace("/", "."),
        base_url=_ORIGIN + path,
        cache="none",
        stream_usage="leave",
    )


def _path(scope: Scope) -> str:
    """The path as it was sent, below where the app is mounted."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    return raw.decode("latin-1").removeprefix(scope.get("root_path", ""))


def _asked(scope: Scope, path: str, tenant: str | None) -> Scope:
    """The request as the service is told of it."""
    headers = [item for item in scope["headers"] if item[0] not in (TENANT, ASKED_AT)]
    headers += [(ASKED_AT, value) for name, value in scope["headers"] if name == b"host"]
    if tenant is not None:
        headers.append((TENANT, named(tenant)))
    # An extension of the server's is between it and the app.
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.5"},
        "http_version": scope.get("http_version", "1.1"),
        "method": scope["method"],
        "scheme": scope.get("scheme", "http"),
        "path": path,
        "raw_path": path.encode("latin-1"),
        "query_string": scope["query_string"],
        "root_path": "",
        "headers": headers,
        "client": HERE,
        "server": None,
    }


def _telling(holder: Arrived, send: Send) -> Send:
    """`send`, but what the app raised is raised here in place of a reply that says so."""
    begun = False

    async def told(message: Message) -> None:
        nonlocal begun
        if not begun and holder.failure and message.get("status") == 502:
            raise holder.failure[-1]
        begun = True
        await send(message)

    return told

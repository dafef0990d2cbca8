"""The services that one event loop runs for a transport or a middleware."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress
from typing import Final, NamedTuple, cast

from trivet.errors import ConfigError, Problem
from trivet.library.address import Address, address_of, declared_at
from trivet.library.exchange import App, Exchange, Scope
from trivet.library.log_lines import tell_through_logging
from trivet.library.settings import Plan, place_of
from trivet.middleware.running.service import Service, Within, open_service

MOST: Final = 16
"""Base URLs with tiers, where they are found out by the requests: each has a service of its own."""
_LEAVING_S: Final = 1.0
_MOST_TOLD: Final = 64
_DECLARED: Final = ""
IN_AN_APP: Final = Within(helper=False)
_log = logging.getLogger("trivet")


class Way(NamedTuple):
    """A service, and the path under which it knows what was asked for."""

    app: App
    path: str


class Host:
    """Opens services when they are first needed, and closes them with the loop at the latest.

    All methods are for the event loop in which the first of them was called.
    """

    def __init__(self, plan: Plan, within: Within = IN_AN_APP) -> None:
        self._plan = plan
        self._within = within
        self._opening: dict[str, asyncio.Task[Service]] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._told: set[str] = set()
        # An event loop that ends closes the generators that were begun in it, so what is open is
        # closed there even where nobody calls `close`.
        self._life = self._lifetime()
        self._began = False

    async def way(self, origin: str, path: str) -> Way | None:
        """Who answers a request to `origin + path`; None: nobody here, it goes without tiers.

        `path` is as it is sent, escapes and all. Raises `ConfigError` where policies forbid that.
        """
        if self._plan.declared:
            found = declared_at(Address(origin, path), self._plan.declared)
            if found is None:
                self._pass_by(f"{origin} is no upstream of the config")
                return None
            service = await self.service(_DECLARED)
            rest = place_of(found[0]) + found[1]
        else:
            root, rest = address_of(origin, path)
            service = await self.service(root)
        return None if service is None else Way(cast(App, service.app), rest)

    async def service(self, root: str = _DECLARED) -> Service | None:
        """The service of a base URL, or of the declared upstreams; None where it cannot be had.

        Raises `ConfigError` where there are policies: nothing goes past them.
        """
        await self._begin()
        opening = self._opening.get(root)
        if opening is None:
            if len(self._opening) >= MOST:
                self._pass_by(f"{MOST} base URLs have tiers already")
                return None
            opening = self._opening[root] = asyncio.create_task(self._open(root))
        try:
            # Who asked first may be cancelled; the others wait on.
            return await asyncio.shield(opening)
        except (OSError, RuntimeError, ValueError, ConfigError) as error:
            if self._opening.get(root) is opening:
                del self._opening[root]
            self._pass_by(f"the tiers could not be opened: {error}")
            return None

    def ask(self, app: App, scope: Scope, body: bytes | AsyncIterator[bytes]) -> Exchange:
        """Begin a request."""
        exchange = Exchange(app, scope, body)
        self._running.add(exchange.task)
        exchange.task.add_done_callback(self._running.discard)
        return exchange

    async def close(self) -> None:
        """Let go of everything. Idempotent; what is asked afterwards opens it again."""
        life, self._life, self._began = self._life, self._lifetime(), False
        await life.aclose()

    def _pass_by(self, why: str) -> None:
        if self._plan.guarded:
            raise ConfigError(Problem("trivet", 0, 0, "", f"policies are in use, and {why}"))
        if why not in self._told and len(self._told) < _MOST_TOLD:
            self._told.add(why)
            _log.warning("requests go without tiers: %s", why)

    async def _begin(self) -> None:
        if not self._began:
            self._began = True
            await anext(self._life)

    async def _lifetime(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            await self._close()

    async def _open(self, root: str) -> Service:
        """Raises `ValueError` for a base URL that no upstream may have."""
        tell_through_logging()
        config = self._plan.of_root(root) if root else self._plan.of_declared()
        return await open_service(config, self._plan.secret, within=self._within)

    async def _close(self) -> None:
        if self._running:
            for task in self._running:
                task.cancel()
            await asyncio.wait(set(self._running), timeout=_LEAVING_S)
        opened = list(self._opening.values())
        self._opening.clear()
        for opening in opened:
            if opening.cancelled():
                continue
            # A boundary: one service that fails to close must not keep another open.
            with suppress(Exception):
                service = await opening
                await service.close()


class Hosts:
    """One host for each event loop that asks."""

    def __init__(self, plan: Plan, within: Within = IN_AN_APP) -> None:
        self._plan = plan
        self._within = within
        self._by_loop: dict[tuple[int, asyncio.AbstractEventLoop], Host] = {}

    @property
    def here(self) -> Host:
        """The host of the running loop."""
        here = _here()
        host = self._by_loop.get(here)
        if host is None:
            for pid, loop in list(self._by_loop):
                # Of a process that was forked nothing is let go of: it is that process's.
                if pid == here[0] and loop.is_closed():
                    self._by_loop.pop((pid, loop), None)
            host = self._by_loop[here] = Host(self._plan, self._within)
        return host

    async def close(self) -> None:
        """Close the host of the running loop. Other loops close theirs when they end."""
        host = self._by_loop.pop(_here(), None)
        if host is not None:
            await host.close()


def _here() -> tuple[int, asyncio.AbstractEventLoop]:
    return os.getpid(), asyncio.get_running_loop()

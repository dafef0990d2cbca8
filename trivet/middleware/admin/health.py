"""How the stores are, for whoever asks whether this process is ready."""

from __future__ import annotations

import asyncio
from typing import Final

from trivet.errors import StoreError
from trivet.exact.redis_secret import STORE as SECRET
from trivet.exact.store import ExactStore
from trivet.middleware.admin.control import Component
from trivet.telemetry import Event, StoreState

_ASK_S = 0.5
"""A store that takes longer is down: whoever probes readiness gives up after a second."""
_FLEET = "fleet"
_MEANWHILE = "answers come from this process's memory, where it holds them, or from the upstream"


class StoreHealth:
    """An observer that remembers the last state which each store told.

    Its components are always ok: a store in trouble costs hits, not answers.
    """

    hears: Final = frozenset({StoreState})

    def __init__(self) -> None:
        self._told: dict[str, StoreState] = {}

    def __call__(self, event: Event, /) -> None:
        """Take a `StoreState`; others are no matter."""
        if isinstance(event, StoreState):
            self._told[event.store] = event

    async def components(self, store: ExactStore) -> tuple[Component, ...]:
        """The store, asked for now, the fleet over it where there is one, and trouble with the
        secret."""
        return *await self._parts(store), *self._secret()

    def _secret(self) -> tuple[Component, ...]:
        told = self._told.get(SECRET)
        if told is None or told.state == "up":
            return ()
        return (Component(SECRET, True, told.state, told.reason),)

    async def _parts(self, store: ExactStore) -> tuple[Component, ...]:
        found = await self._ask(store)
        fleet = self._told.get(_FLEET)
        if fleet is None:
            return (found,)
        detail = (
            ""
            if fleet.state == "up"
            else f"{fleet.reason}: requests of several machines are not collapsed"
        )
        return found, Component(_FLEET, True, fleet.state, detail)

    async def _ask(self, store: ExactStore) -> Component:
        name, told = f"store:{store.name}", self._told.get(store.name)
        try:
            async with asyncio.timeout(_ASK_S):
                await store.ready()
        except StoreError as error:
            return _down(name, error.reason)
        except TimeoutError:
            known = told.reason if told is not None and told.state == "down" else ""
            return _down(name, known or "timeout")
        if told is not None and told.state == "degraded":
            detail = f"{told.reason}: stored answers are served, new ones are not stored"
            return Component(name, True, "degraded", detail)
        return Component(name, True, "up")


def _down(name: str, reason: str) -> Component:
    return Component(name, True, "down", f"{reason}: {_MEANWHILE}")

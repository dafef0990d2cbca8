"""What the admin API asks of the running proxy."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from trivet.telemetry import PolicyReload

Verdict = Literal["wrong", "right"]


@dataclass(frozen=True, slots=True)
class Component:
    """One part of the proxy: `state` is a short word (`up`, `down`, `loading`), `detail` a
    sentence. `ok` says whether the proxy can do its work with the part in that state."""

    name: str
    ok: bool
    state: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether requests should be sent here, and what that rests on."""

    ok: bool
    components: tuple[Component, ...] = ()


Ask = Callable[[], Awaitable[Component]]
"""Asks a part beside the proxy how it is, now."""


class Control(Protocol):
    """The running proxy, from the operator's side. Called on the event loop.

    `RequestError` says what is wrong with an argument; `StoreError` that a store is in trouble.
    """

    async def ready(self) -> Readiness:
        """The state of each component, asked for now."""
        ...

    async def stats(self) -> dict[str, Any]:
        """Figures for people, JSON-able: stores, requests by outcome, saved tokens and money."""
        ...

    async def purge(
        self, tenant: str, *, tag: str | None, version: str | None, key: str | None
    ) -> int:
        """Forget the tenant's entries with that tag, `name=value` version, or key in hex; all
        where none is given. Returns how many were deleted."""
        ...

    async def feedback(self, tenant: str, hit: str, verdict: Verdict) -> dict[str, Any]:
        """The operator says of a similar answer of the tenant's that it was wrong or right. A wrong
        one is taken out. Returns `id`, `verdict` and `removed`."""
        ...

    async def reload(self) -> PolicyReload:
        """Read the policy directory again. A bad file keeps the old set."""
        ...

    async def explain(self, path: str, headers: Mapping[str, str], body: bytes) -> dict[str, Any]:
        """What would happen to that request, and why. Nothing is sent or stored."""
        ...

    async def metrics(self) -> bytes:
        """All processes' figures in Prometheus' text format 0.0.4."""
        ...

    def policies(self) -> dict[str, Any]:
        """`{"version": str, "tenants": {name: effective policy}}`, JSON-able."""
        ...

"""What the admin API asks of the running proxy."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

from trivet.telemetry import PolicyReload

Verdict = Literal["wrong", "right"]
Outcome = Literal["counted", "repeated", "expired", "recalibrated", "unknown"]
"""What became of a person's verdict. `repeated`: it was counted before; `recalibrated`: the hit was
served under another calibration than the tenant has by now; `unknown`: this deployment drew no such
hit of this tenant, or what it had counted is lost."""


class Said(NamedTuple):
    """What a person said of a hit that was drawn: `id` is the queue's `draw`."""

    id: str
    same: bool


class Heard(NamedTuple):
    """What became of it. `removed`: the answer is served for no similar question any more."""

    id: str
    outcome: Outcome
    removed: bool = False


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

    draining: bool
    """Whether the proxy was told to end."""

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
        where none is given. What is asked from now on joins no call that is under way. Returns how
        many were deleted."""
        ...

    async def feedback(self, tenant: str, hit: str, verdict: Verdict) -> dict[str, Any]:
        """The operator says of a similar answer of the tenant's that it was wrong or right. A wrong
        one is taken out. Returns `id`, `verdict` and `removed`."""
        ...

    async def verdicts(self, tenant: str, said: Sequence[Said]) -> list[Heard]:
        """A person judged hits of the tenant's that were drawn. Each hit is counted once, however
        often and wherever it is told; one that was wrong is taken out. In the order given."""
        ...

    async def reload(self) -> PolicyReload:
        """Read the policy directory again, once its files are at rest. A bad file keeps the old
        set."""
        ...

    async def explain(
        self, path: str, headers: Mapping[str, str], body: bytes, tenant: str | None = None
    ) -> dict[str, Any]:
        """What would happen to that request, and why. Nothing is sent or stored. It is the request
        of whom its headers name, or of a declared `tenant`."""
        ...

    async def metrics(self) -> bytes:
        """All processes' figures in Prometheus' text format 0.0.4."""
        ...

    async def check_policy(self, text: str) -> dict[str, Any]:
        """What a text would be as a policy file, JSON-able; nothing is changed.

        `file` that it would be, `tenant`, the policy in use that it replaces (`before`), the one
        that it is (`policy`; None where it is none), `problems` and `warnings`."""
        ...

    async def tell(self, topic: str, asked: Any = None) -> list[Any]:
        """What each process knows of a topic of the console, JSON-able: one item for each process
        that knows anything. See `Operations.tellers`."""
        ...

    def policies(self) -> dict[str, Any]:
        """`{"version": str, "tenants": {name: effective policy}}`, JSON-able."""
        ...

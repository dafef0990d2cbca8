"""One request on its way through the pipeline, and the reply it ends as."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from trivet.exact.entry import Entry
from trivet.exact.key import KeyParts
from trivet.exact.tier import Hit, Miss, Question
from trivet.messages import ExactKey, Request, Usage
from trivet.middleware.arrival.headers import RawHeaders
from trivet.middleware.dialects.base import Dialect
from trivet.middleware.running.config import UpstreamConfig
from trivet.middleware.status import CacheStatus
from trivet.policies.eligibility import Bypass, Eligible
from trivet.policies.model import ExactSettings, TenantPolicy
from trivet.prefix.markers.money import Purpose
from trivet.telemetry import Outcome, Tier

if TYPE_CHECKING:
    from trivet.middleware.prefix_tier.tier import Sent
    from trivet.semantic.tier import Looked


@dataclass(slots=True)
class Note:
    """What happened to a request, filled in on its way; telemetry and headers read it."""

    outcome: Outcome = "error"
    tier: Tier | None = None
    reason: str = ""
    upstream_s: float = 0.0
    """Waits for others' calls included."""
    usage: Usage | None = None
    response_model: str = ""
    stored: bool = False
    collapsed: bool = False
    similar: CacheStatus | None = None
    """What the semantic tier did, where it was asked and did not answer."""
    headers: RawHeaders = field(default_factory=list)
    """More headers for the reply."""
    entry: Entry | None = None
    """The stored answer that was given, or that the model's answer became."""


Asked = tuple[Question, Hit | Miss]
"""What the exact tier was asked, and what it said."""


class Asker(Protocol):
    """What a replay has to know of a request."""

    @property
    def dialect(self) -> Dialect: ...

    @property
    def request(self) -> Request: ...

    @property
    def policy(self) -> TenantPolicy: ...


@dataclass(slots=True)
class Call:
    """Everything that was decided about one request before the tiers are asked."""

    dialect: Dialect
    request: Request
    policy: TenantPolicy
    settings: ExactSettings
    plan: Eligible | Bypass
    upstream: UpstreamConfig
    target: str
    headers: RawHeaders
    parts: KeyParts
    labels: frozenset[str]
    remember: Callable[[Call, Entry], None]
    """To be called with the stored answer to this request: the next one like it is known."""
    waiting: Callable[[], None]
    """To be called before an upstream is waited for: from then on the caller is watched."""
    question: Question | None = None
    """What the exact tier was asked; set by the pipeline."""
    asked: Asked | None = None
    """What it was asked before this was decided, for a request that came before."""
    note: Note = field(default_factory=Note)
    principal: str | None = None
    """The end user, where the request names one; it scopes answers only where the policy says."""
    body: bytes | None = None
    """What goes upstream in place of the body as it came; never stored from."""
    looked: Looked | None = None
    """What the semantic tier found out about the question, to be learned with its answer."""
    route: str = ""
    """The Trivet-Route header; empty where there is none."""
    sent: Sent | None = None
    """What went upstream, where the prefix tier had a say; set once it is sent."""
    purpose: Purpose = "request"
    """Why the model is asked: for the caller, or for an end of the cache's own."""

    @property
    def tenant(self) -> str:
        """The tenant's name."""
        return self.policy.tenant

    def question_for(self, plan: Eligible, key: ExactKey, canonical: bytes) -> Question:
        """What to ask the exact tier about the request, or about a part of it."""
        return Question(
            self.tenant,
            key,
            canonical,
            plan.max_age,
            plan.fresh_for,
            plan.stale_if_error,
            plan.min_fresh,
        )


@dataclass(slots=True)
class Whole:
    """A reply whose body is known."""

    status: int
    headers: RawHeaders
    body: bytes


@dataclass(slots=True)
class Live:
    """A reply whose body is still arriving. The sender calls `close` whatever happens.

    An `UpstreamError` out of `chunks` means that the connection to the caller has to break off
    too: a shortened answer must not look like a complete one.
    """

    status: int
    headers: RawHeaders
    chunks: AsyncGenerator[bytes, None]
    release: Callable[[], None]
    """Lets go of what the body comes from. Not left to `chunks`: a generator that was never
    started runs no `finally`."""

    async def close(self) -> None:
        """End the body, read to its end or not."""
        try:
            await self.chunks.aclose()
        finally:
            self.release()


Reply = Whole | Live

"""What happened, as values, and the Observer that is told. `metric_names` has the metrics.

The tiers and the pipeline emit events; exporters (Prometheus, OpenTelemetry, logs) are observers
in the middleware. Emitting must be cheap and must not raise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, Protocol

from trivet.messages import Api, Usage

Tier = Literal["exact", "semantic", "prefix"]
Outcome = Literal["hit", "miss", "bypass", "stale", "collapsed", "error"]


class RequestDone(NamedTuple):
    """One request was answered. Seconds are floats; bytes are body bytes."""

    tenant: str
    api: Api | Literal["passthrough"]
    model: str
    upstream: str
    status: int
    stream: bool
    tier: Tier | None
    """The tier that answered; None when the upstream did."""
    outcome: Outcome
    reason: str
    """Why it was not a hit, or why the answer was not stored; empty for a plain hit."""
    total_s: float
    upstream_s: float
    """Time spent waiting for the upstream, from its request's first byte to its answer's last;
    for who followed another caller's call, the time that it waited for that one."""
    first_byte_s: float
    """From the request's arrival to the first body byte sent to the caller."""
    request_bytes: int
    response_bytes: int
    usage: Usage | None
    """What the answer cost, or would have cost on a hit; None when unknown."""
    stored: bool
    traceparent: str | None = None
    """The caller's W3C trace context header, as it came."""
    received_ns: int = 0
    """Unix time in nanoseconds at which the request arrived; 0 when it was not noted."""
    response_model: str | None = None
    """The model that served, as the answer names it."""
    reply_headers: Sequence[tuple[bytes, bytes]] = ()
    """What the caller was sent; the id that it may complain with is among them."""
    route: str = ""
    """What the request's route is called, as in `ModelCall`; empty where it was not read."""
    purpose: Literal["request", "warm"] = "request"
    """`warm` fills the caches before anybody asks: no hit of it saved anybody anything."""


@dataclass(frozen=True, slots=True)
class HeadRefused:
    """A request's head was not taken, and its connection closed: the request was nobody's yet."""

    reason: str


@dataclass(frozen=True, slots=True)
class StoreState:
    """A store changed its state: `up`, `degraded` (answers slowly or in part), `down`."""

    store: str
    state: Literal["up", "degraded", "down"]
    reason: str


class StoreOperation(NamedTuple):
    """One store call ended. `outcome` is `hit`, `miss`, `ok`, or a StoreError's reason."""

    store: str
    operation: Literal["get", "put", "purge"]
    outcome: str
    seconds: float
    size: int


@dataclass(frozen=True, slots=True)
class EntryRejected:
    """A stored entry was refused on a hit: `canonical`, `mac`, `format`, `corrupt`."""

    store: str
    reason: str


@dataclass(frozen=True, slots=True)
class PolicyReload:
    """The policy directory was read again. `ok` is False when the old set was kept."""

    ok: bool
    version: str
    problems: int
    detail: str = ""
    """The findings, for people."""


class Collapse(NamedTuple):
    """A flight changed: `lead`, `follow`, `reelect`, `own-call`, `abandoned`."""

    kind: Literal["lead", "follow", "reelect", "own-call", "abandoned"]
    where: Literal["process", "machine", "fleet"]


@dataclass(frozen=True, slots=True)
class SemanticLookup:
    """The semantic tier was asked. `kind` is `hit`, `assist`, `shadow`, `miss` or `bypass`."""

    tenant: str
    kind: str
    reason: str
    intent: str
    """The gate's class; empty where the text was not read."""
    seconds: float
    route: str = ""
    model: str = ""
    cost: float = 0.0
    """US dollars, where the policy says what a lookup costs."""


@dataclass(frozen=True, slots=True)
class SemanticAudit:
    """A semantic hit was judged: by a fresh answer of the model, a person, or a caller."""

    tenant: str
    intent: str
    judge: str
    same: bool
    upper_bound: float
    """On the tenant's false hits among hits, valid at any time."""


@dataclass(frozen=True, slots=True)
class SemanticState:
    """The running measurement opened or closed the tier for a tenant's intent."""

    tenant: str
    intent: str
    open: bool
    reason: str


class ReplicaAsked(NamedTuple):
    """A replica of an upstream was chosen. `known` of the prompt's `tokens` are thought to be
    there; both are 0 where nothing is known of the prompt."""

    upstream: str
    replica: str
    reason: str
    known: int
    tokens: int


REPLICA_STARTED: Final = "started"
"""Reason of the event that names a replica at the start: no change, so no line of the log."""


@dataclass(frozen=True, slots=True)
class ReplicaChanged:
    """A replica is asked again, or is not asked for a while."""

    upstream: str
    replica: str
    up: bool
    reason: str


@dataclass(frozen=True, slots=True)
class PrefixProbed:
    """A server's prefix cache was tried out: whether it keeps salts apart, and what to mend."""

    upstream: str
    replica: str
    state: Literal["isolated", "leaks", "unverified"]
    detail: str


@dataclass(frozen=True, slots=True)
class PrefixFailed:
    """The prefix tier could not prepare a request: it went without caching. `first`: of those to
    this upstream."""

    upstream: str
    backend: str
    error: str
    first: bool


class PrefixPing(NamedTuple):
    """A prefix was kept warm by a ping, or was not, and why."""

    tenant: str
    upstream: str
    model: str
    reason: str
    """One of `trivet.middleware.prefix_tier.warmth.WHY`; `ping` where one was sent."""
    new: bool
    """It is another state of the tenant's at this upstream and model than before."""


class PrefixBreak(NamedTuple):
    """A prompt parted from an earlier one sooner than it had to. Tokens are estimated."""

    tenant: str
    route: str
    place: str
    """`system, character 143`, `tools[3].description`, ..."""
    cause: str
    """One of `trivet.prefix.doctor.remedies.CAUSES`."""
    told: str
    fix: str
    shared_tokens: int
    lost_tokens: int
    cached_share: float | None
    """Of the route's recent prompt tokens, those that were read from a cache; None: not known."""
    new: bool
    """The first of its kind on this route."""
    text: str
    """Around the place, where the policy lets it be shown."""


class PrefixUse(NamedTuple):
    """Model calls of one route ended since it was told last: their prompts' tokens as the upstream
    counted them."""

    tenant: str
    route: str
    tokens: int
    cached: int
    unseen: int
    """Calls that the layout doctor was too busy to look at."""
    calls: int = 1
    """Calls whose tokens are known."""


class ModelCall(NamedTuple):
    """A model answered, in full or until the answer broke off: what it is billed for.

    One for each call that an upstream answered without an error, whoever asked: hits have none,
    callers who shared one call have one.
    """

    tenant: str
    route: str
    api: str
    model: str
    """The model that served, as the answer names it, or the one that was asked for."""
    upstream: str
    usage: Usage | None
    """None where the answer did not say, or what it said cannot be true."""
    purpose: Literal["request", "audit", "judge", "keep-warm", "warm"] = "request"
    """`request` is a caller's; the others a cache makes for its own ends."""


class Flood(NamedTuple):
    """The state of the guard against the load of an empty cache. Shares are of the requests that
    a cache may answer; `load` is how many times the usual load a flush would send to the model."""

    share: float
    baseline: float
    load: float
    flooded: bool
    in_flight: int
    waiting: int


class FloodShed(NamedTuple):
    """A request was not sent to the model: `queue-full`, or it waited too long (`wait`)."""

    tenant: str
    reason: str


Event = (
    RequestDone
    | HeadRefused
    | StoreState
    | StoreOperation
    | EntryRejected
    | PolicyReload
    | Collapse
    | SemanticLookup
    | SemanticAudit
    | SemanticState
    | ReplicaAsked
    | ReplicaChanged
    | PrefixProbed
    | PrefixFailed
    | PrefixPing
    | ModelCall
    | Flood
    | FloodShed
    | PrefixBreak
    | PrefixUse
)


class Observer(Protocol):
    """Told of every event, on the event loop: return at once, raise nothing."""

    def __call__(self, event: Event, /) -> None: ...


def ignore(event: Event, /) -> None:
    """The observer that does nothing."""

"""What happened, as values, and the Observer that is told. Metric names live here and only here.

The tiers and the pipeline emit events; exporters (Prometheus, OpenTelemetry, logs) are observers
in the middleware. Emitting must be cheap and must not raise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

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


@dataclass(frozen=True, slots=True)
class StoreState:
    """A store changed its state: `up`, `degraded` (answers slowly or in part), `down`."""

    store: str
    state: Literal["up", "degraded", "down"]
    reason: str


@dataclass(frozen=True, slots=True)
class StoreOperation:
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


Event = (
    RequestDone
    | StoreState
    | StoreOperation
    | EntryRejected
    | PolicyReload
    | Collapse
    | SemanticLookup
    | SemanticAudit
    | SemanticState
)


class Observer(Protocol):
    """Told of every event, on the event loop: return at once, raise nothing."""

    def __call__(self, event: Event, /) -> None: ...


def ignore(event: Event, /) -> None:
    """The observer that does nothing."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric's exposition name, help text and label names."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ()
    worst: Literal["low", "high"] = "low"
    """Which of several processes' values a gauge keeps."""


REQUESTS = Metric(
    "trivet_requests_total",
    "counter",
    "Requests answered, by tenant, API, tier that answered, outcome and reason.",
    ("tenant", "api", "tier", "outcome", "reason", "status"),
)
OWN_SECONDS = Metric(
    "trivet_own_seconds",
    "histogram",
    "Time Trivet itself took for a request: total less waiting for the upstream.",
    ("api", "outcome"),
)
UPSTREAM_SECONDS = Metric(
    "trivet_upstream_seconds",
    "histogram",
    "Time from the upstream request's first byte to its answer's last.",
    ("api", "upstream"),
)
FIRST_BYTE_SECONDS = Metric(
    "trivet_first_byte_seconds",
    "histogram",
    "Time to the first body byte that the caller got.",
    ("api", "outcome"),
)
UPSTREAM_TOKENS = Metric(
    "trivet_upstream_tokens_total",
    "counter",
    "Tokens of answers that an upstream gave, by kind (input, output, cache_read, cache_write); "
    "input holds the cache reads and writes. A hit adds nothing.",
    ("tenant", "api", "kind"),
)
TOKENS_SAVED = Metric(
    "trivet_tokens_saved_total",
    "counter",
    "Tokens of answers served from a cache, by kind (input, output).",
    ("tenant", "tier", "kind"),
)
MONEY_SAVED = Metric(
    "trivet_money_saved_usd_total",
    "counter",
    "What the served answers cost when they were recorded, in US dollars, by genai-prices.",
    ("tenant", "tier"),
)
USAGE_UNKNOWN = Metric(
    "trivet_usage_unknown_total",
    "counter",
    "Hits whose saved tokens or price are not known; they count for nothing in the sums.",
    ("tenant", "what"),
)
REQUEST_BYTES = Metric("trivet_request_bytes_total", "counter", "Request body bytes.", ("api",))
RESPONSE_BYTES = Metric("trivet_response_bytes_total", "counter", "Response body bytes.", ("api",))
STORE_UP = Metric("trivet_store_up", "gauge", "1 if the store answers, else 0.", ("store",))
STORE_OPERATIONS = Metric(
    "trivet_store_operations_total",
    "counter",
    "Store calls by operation and outcome.",
    ("store", "operation", "outcome"),
)
STORE_SECONDS = Metric(
    "trivet_store_seconds", "histogram", "Store call duration.", ("store", "operation")
)
ENTRIES_REJECTED = Metric(
    "trivet_entries_rejected_total",
    "counter",
    "Stored entries refused on a hit: altered, foreign, corrupt, or of another request.",
    ("store", "reason"),
)
COLLAPSES = Metric("trivet_collapse_total", "counter", "Collapse events.", ("kind", "where"))
SEMANTIC_LOOKUPS = Metric(
    "trivet_semantic_lookups_total",
    "counter",
    "Lookups of the semantic tier, by tenant, intent, kind (hit, assist, shadow, miss, bypass) "
    "and reason.",
    ("tenant", "intent", "kind", "reason"),
)
SEMANTIC_SECONDS = Metric(
    "trivet_semantic_seconds",
    "histogram",
    "Time that a semantic lookup took, embedding included.",
    ("kind",),
)
SEMANTIC_AUDITS = Metric(
    "trivet_semantic_audits_total",
    "counter",
    "Semantic hits that were judged, by tenant, intent, judge and verdict.",
    ("tenant", "intent", "judge", "verdict"),
)
SEMANTIC_BOUND = Metric(
    "trivet_semantic_false_hit_bound",
    "gauge",
    "Upper bound on false hits among semantic hits, valid at any time, by tenant and intent.",
    ("tenant", "intent"),
    worst="high",
)
SEMANTIC_OPEN = Metric(
    "trivet_semantic_open",
    "gauge",
    "1 while the running measurement leaves the tier open for a tenant's intent, else 0.",
    ("tenant", "intent"),
)
POLICY_RELOADS = Metric(
    "trivet_policy_reloads_total", "counter", "Policy reloads by result.", ("result",)
)

METRICS: tuple[Metric, ...] = (
    REQUESTS,
    OWN_SECONDS,
    UPSTREAM_SECONDS,
    FIRST_BYTE_SECONDS,
    UPSTREAM_TOKENS,
    TOKENS_SAVED,
    MONEY_SAVED,
    USAGE_UNKNOWN,
    REQUEST_BYTES,
    RESPONSE_BYTES,
    STORE_UP,
    STORE_OPERATIONS,
    STORE_SECONDS,
    ENTRIES_REJECTED,
    COLLAPSES,
    SEMANTIC_LOOKUPS,
    SEMANTIC_SECONDS,
    SEMANTIC_AUDITS,
    SEMANTIC_BOUND,
    SEMANTIC_OPEN,
    POLICY_RELOADS,
)

"""The metrics by their exposition names: they are here and nowhere else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


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
HEADS_REFUSED = Metric(
    "trivet_heads_refused_total",
    "counter",
    "Request heads that were not taken, by reason: malformed, fields (too many), host, "
    "transfer-encoding, connect, upgrade, pipelined (too many).",
    ("reason",),
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
REPLICA_REQUESTS = Metric(
    "trivet_replica_requests_total",
    "counter",
    "Requests by replica and why it was chosen: known (it holds a prefix), home (hashing), load, "
    "turn.",
    ("upstream", "replica", "reason"),
)
REPLICA_TOKENS = Metric(
    "trivet_replica_prompt_tokens_total",
    "counter",
    "Estimated prompt tokens sent to replicas: all, and those thought to be cached there (known).",
    ("upstream", "replica", "kind"),
)
REPLICA_UP = Metric(
    "trivet_replica_up", "gauge", "1 if the replica is asked, else 0.", ("upstream", "replica")
)
PREFIX_ISOLATED = Metric(
    "trivet_prefix_isolated",
    "gauge",
    "1 if the server was seen to keep tenants' prefixes apart, else 0.",
    ("upstream", "replica"),
)
PREFIX_LEAKS = Metric(
    "trivet_prefix_leaks",
    "gauge",
    "1 if the server was seen to give a tenant cached tokens of another's prompt, else 0.",
    ("upstream", "replica"),
)

PREFIX_FAILURES = Metric(
    "trivet_prefix_failures_total",
    "counter",
    "Requests that the prefix tier could not prepare: they went without caching.",
    ("upstream",),
)

PREFIX_PINGS = Metric(
    "trivet_prefix_keep_warm_total",
    "counter",
    "Prefixes of tenants with a budget for pings (prefix.keep_warm) by what became of them: ping, "
    "or the reason why none was sent.",
    ("tenant", "reason"),
)

PREFIX_BREAKS = Metric(
    "trivet_prefix_breaks_total",
    "counter",
    "Prompts that parted from an earlier one of their route sooner than they had to, by cause.",
    ("tenant", "route", "cause"),
)
PREFIX_LOST = Metric(
    "trivet_prefix_lost_tokens_total",
    "counter",
    "Estimated prompt tokens that breaks kept from being read from a prefix cache.",
    ("tenant", "route", "cause"),
)
PREFIX_TOKENS = Metric(
    "trivet_prefix_prompt_tokens_total",
    "counter",
    "Prompt tokens of model calls by route: all, and those read from the upstream's cache "
    "(cached).",
    ("tenant", "route", "kind"),
)
PREFIX_UNSEEN = Metric(
    "trivet_prefix_unseen_total",
    "counter",
    "Model calls that the layout doctor had no time to look at.",
    ("tenant",),
)

MODEL_TOKENS = Metric(
    "trivet_model_tokens_total",
    "counter",
    "Tokens of answers that models gave, by tenant, route, model, purpose (request, or an end of a "
    "cache's own: audit, judge, keep-warm, warm) and kind (input, output, cache_read, "
    "cache_write, cache_write_long); input holds cache reads and writes, cache_write holds "
    "cache_write_long.",
    ("tenant", "route", "model", "purpose", "kind"),
)
MONEY = Metric(
    "trivet_money_usd_total",
    "counter",
    "US dollars by tenant, route, model and post: spent, saved-exact, saved-semantic, "
    "saved-prefix, and what the caches cost (prefix-writes, audit, judge, keep-warm, warm, "
    "lookup). "
    "prefix-writes is part of spent; each other dollar is in one post only.",
    ("tenant", "route", "model", "post"),
)
UNPRICED = Metric(
    "trivet_unpriced_calls_total",
    "counter",
    "Model calls that are in no sum of money, by what is not known (usage, price).",
    ("tenant", "route", "model", "what"),
)
HIT_SHARE = Metric(
    "trivet_hit_share",
    "gauge",
    "Share of requests that a cache answered, of those it may answer, by window (now, baseline).",
    ("window",),
)
FLUSH_LOAD = Metric(
    "trivet_flush_load_ratio",
    "gauge",
    "How many times the usual load the model would get if the caches were emptied: 1/(1-baseline).",
    worst="high",
)
FLOODED = Metric(
    "trivet_flooded",
    "gauge",
    "1 while the hit share is so far below its baseline that model calls are limited, else 0.",
    worst="high",
)
FLOOD_CALLS = Metric(
    "trivet_flood_calls",
    "gauge",
    "Model calls under the guard against floods, by state (in_flight, waiting).",
    ("state",),
    worst="high",
)
FLOOD_SHED = Metric(
    "trivet_flood_shed_total",
    "counter",
    "Requests that were refused with 503 while the caches were cold, by reason (queue-full, wait).",
    ("tenant", "reason"),
)

METRICS: tuple[Metric, ...] = (
    REQUESTS,
    HEADS_REFUSED,
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
    REPLICA_REQUESTS,
    REPLICA_TOKENS,
    REPLICA_UP,
    PREFIX_ISOLATED,
    PREFIX_LEAKS,
    PREFIX_FAILURES,
    PREFIX_PINGS,
    PREFIX_BREAKS,
    PREFIX_LOST,
    PREFIX_TOKENS,
    PREFIX_UNSEEN,
    MODEL_TOKENS,
    MONEY,
    UNPRICED,
    HIT_SHARE,
    FLUSH_LOAD,
    FLOODED,
    FLOOD_CALLS,
    FLOOD_SHED,
)

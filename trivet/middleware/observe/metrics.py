"""Prometheus figures over the metric definitions of `trivet.telemetry`.

Counting is plain dictionaries: one `RequestDone` costs less than prometheus_client's own locked
children, and the figures of several worker processes can be added up. The library
writes the exposition text, and is imported when that is first asked for.

No label carries anything that a caller can set: tenants come from credentials and policies,
reasons from code, upstreams from the config. All are bounded nevertheless (`Names`, `MOST_SERIES`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from trivet.messages import Usage
from trivet.metric_names import (
    COLLAPSES,
    ENTRIES_REJECTED,
    FIRST_BYTE_SECONDS,
    HEADS_REFUSED,
    METRICS,
    MONEY_SAVED,
    OWN_SECONDS,
    POLICY_RELOADS,
    PREFIX_FAILURES,
    PREFIX_ISOLATED,
    PREFIX_LEAKS,
    REPLICA_REQUESTS,
    REPLICA_TOKENS,
    REPLICA_UP,
    REQUEST_BYTES,
    REQUESTS,
    RESPONSE_BYTES,
    SEMANTIC_AUDITS,
    SEMANTIC_BOUND,
    SEMANTIC_LOOKUPS,
    SEMANTIC_OPEN,
    SEMANTIC_SECONDS,
    STORE_OPERATIONS,
    STORE_SECONDS,
    STORE_UP,
    TOKENS_SAVED,
    UPSTREAM_SECONDS,
    USAGE_UNKNOWN,
    Metric,
)
from trivet.middleware.observe.books import Books
from trivet.middleware.observe.exposition import BOUNDS, Snapshot, exposition
from trivet.middleware.observe.pricing import Pricing
from trivet.middleware.observe.series import MOST_SERIES, OTHER, Names, Series, observe
from trivet.middleware.prefix_tier.counts import prefix_counts
from trivet.middleware.prefix_tier.flood_counts import flood_counts
from trivet.telemetry import (
    Collapse,
    EntryRejected,
    Event,
    HeadRefused,
    ModelCall,
    PolicyReload,
    PrefixFailed,
    PrefixProbed,
    ReplicaAsked,
    ReplicaChanged,
    RequestDone,
    SemanticAudit,
    SemanticLookup,
    SemanticState,
    StoreOperation,
    StoreState,
)

_TENANTS = 1_000
_LABELS = 200
_PENDING = 1_000
"""Kinds of hits that wait for the price list to be loaded; those beyond count as unknown."""
_SETTLED = 1_000
"""Hits after which what they saved is counted, if nobody looked before."""
_SAVED = frozenset({"hit", "stale", "collapsed"})
"""Outcomes for which no upstream call of the request's own was paid."""

_OWN_BOUNDS = BOUNDS[OWN_SECONDS.name]
_FIRST_BYTE_BOUNDS = BOUNDS[FIRST_BYTE_SECONDS.name]
_UPSTREAM_BOUNDS = BOUNDS[UPSTREAM_SECONDS.name]

_Saved = tuple[str, str, Usage | None, str]
"""Model, upstream, usage and route of an answer that was not paid for."""


@dataclass(frozen=True, slots=True)
class _Child:
    """The cells that requests of one kind share, looked up once."""

    tenant: str
    api: str
    tier: str
    requests: list[float]
    own: list[float]
    first_byte: list[float]
    upstream: list[float] | None
    request_bytes: list[float]
    response_bytes: list[float]
    saved: dict[_Saved, int] | None
    """Requests that were answered without an upstream call of their own, not settled yet; None
    for a kind of request that pays."""


class PrometheusObserver:
    """Counts events. Called on the event loop; a `RequestDone` costs a few microseconds."""

    def __init__(self, pricing: Pricing | None = None) -> None:
        self.pricing = pricing or Pricing()
        self._tenant = Names(_TENANTS)
        self._reason = Names(_LABELS)
        self._upstream = Names(_LABELS)
        self._store = Names(_LABELS)
        self._replica = Names(_LABELS)
        self._series = {metric.name: Series(metric) for metric in METRICS}
        self._children: dict[tuple[object, ...], _Child] = {}
        self.unsettled = 0
        """Hits since what they saved was counted last."""
        self._pending: list[tuple[_Child, _Saved, int]] = []
        self._books = Books(self._series, self._tenant, self.pricing)
        self._on: dict[type[Any], Callable[[Any], None]] = {
            RequestDone: self._request_done,
            HeadRefused: self._head_refused,
            StoreState: self._store_state,
            StoreOperation: self._store_operation,
            EntryRejected: self._entry_rejected,
            PolicyReload: self._policy_reload,
            Collapse: self._collapse,
            SemanticLookup: self._semantic_lookup,
            ModelCall: self._books.call,
            SemanticAudit: self._semantic_audit,
            SemanticState: self._semantic_state,
            ReplicaAsked: self._replica_asked,
            ReplicaChanged: self._replica_changed,
            PrefixProbed: self._prefix_probed,
            **prefix_counts(self._series, self._tenant),
            **flood_counts(self._series, self._tenant),
            PrefixFailed: self._prefix_failed,
        }

    def __call__(self, event: Event, /) -> None:
        """Count one event."""
        self._on[type(event)](event)

    def snapshot(self) -> Snapshot:
        """All figures as JSON-able values, to be merged with other processes' ones."""
        self._settle()
        counters: dict[str, list[list[Any]]] = {}
        histograms: dict[str, list[list[Any]]] = {}
        for metric in METRICS:
            cells = self._series[metric.name].cells
            if metric.kind == "histogram":
                histograms[metric.name] = [[list(key), cell.copy()] for key, cell in cells.items()]
            else:
                counters[metric.name] = [[list(key), cell[0]] for key, cell in cells.items()]
        return {"counters": counters, "histograms": histograms}

    def cells(self, metric: Metric) -> Mapping[tuple[str, ...], list[float]]:
        """The figures of one metric by label values, as they are counted on: not to be altered."""
        return self._series[metric.name].cells

    def settle(self) -> None:
        """Count what hits saved and calls cost since the last time, so that `cells` has it."""
        self._settle()

    def render(self) -> bytes:
        """This process's figures in Prometheus' text format 0.0.4."""
        return exposition(self.snapshot())

    def _request_done(self, event: RequestDone) -> None:
        # Who followed another caller's call waited, but asked no upstream.
        asked = event.upstream_s > 0 and event.outcome != "collapsed"
        key = (
            event.tenant,
            event.api,
            event.tier,
            event.outcome,
            event.reason,
            event.status,
            event.upstream,
            event.purpose,
            asked,
        )
        child = self._children.get(key) or self._make_child(key, event, asked)
        child.requests[0] += 1
        child.request_bytes[0] += event.request_bytes
        child.response_bytes[0] += event.response_bytes
        own = event.total_s - event.upstream_s
        observe(child.own, _OWN_BOUNDS, own if own > 0 else 0.0)
        observe(child.first_byte, _FIRST_BYTE_BOUNDS, event.first_byte_s)
        if child.upstream is not None:
            observe(child.upstream, _UPSTREAM_BOUNDS, event.upstream_s)
        if child.saved is not None:
            saved = (event.response_model or event.model, event.upstream, event.usage, event.route)
            child.saved[saved] = child.saved.get(saved, 0) + 1
            self.unsettled += 1
            if self.unsettled >= _SETTLED:
                self._settle()

    def _make_child(self, key: tuple[object, ...], event: RequestDone, asked: bool) -> _Child:
        if len(self._children) >= MOST_SERIES:
            # Only the short way to the cells is forgotten, never a figure.
            self._settle()
            self._children.clear()
        api, outcome, status = str(event.api), event.outcome, event.status
        tenant, tier = self._tenant(event.tenant), event.tier or "none"
        series = self._series
        child = self._children[key] = _Child(
            tenant=tenant,
            api=api,
            tier=tier,
            requests=series[REQUESTS.name].cell(
                tenant,
                api,
                tier,
                outcome,
                self._reason(event.reason),
                str(status) if 100 <= status <= 599 else OTHER,
            ),
            own=series[OWN_SECONDS.name].cell(api, outcome),
            first_byte=series[FIRST_BYTE_SECONDS.name].cell(api, outcome),
            upstream=series[UPSTREAM_SECONDS.name].cell(api, self._upstream(event.upstream))
            if asked
            else None,
            request_bytes=series[REQUEST_BYTES.name].cell(api),
            response_bytes=series[RESPONSE_BYTES.name].cell(api),
            saved={} if outcome in _SAVED and status < 400 and event.purpose == "request" else None,
        )
        if child.saved is not None:
            self.pricing.start()
        return child

    def _settle(self) -> None:
        """Count what the hits since the last time saved."""
        self.unsettled = 0
        self._books.settle()
        if self._pending and not self.pricing.loading:
            waiting, self._pending = self._pending, []
            for hits in waiting:
                self._count_money(*hits)
        for child in self._children.values():
            if child.saved:
                for saved, count in child.saved.items():
                    self._count_saved(child, saved, count)
                child.saved.clear()

    def _count_saved(self, child: _Child, saved: _Saved, count: int) -> None:
        usage = saved[2]
        if usage is None:
            self._series[USAGE_UNKNOWN.name].add(count, child.tenant, "tokens")
            self._series[USAGE_UNKNOWN.name].add(count, child.tenant, "price")
            return
        tokens = self._series[TOKENS_SAVED.name]
        tokens.add(count * usage.input_tokens, child.tenant, child.tier, "input")
        tokens.add(count * usage.output_tokens, child.tenant, child.tier, "output")
        if self.pricing.loading and len(self._pending) < _PENDING:
            self._pending.append((child, saved, count))
        else:
            self._count_money(child, saved, count)

    def _count_money(self, child: _Child, saved: _Saved, count: int) -> None:
        model, upstream, usage, route = saved
        price = None if usage is None else self.pricing.price(model, upstream, usage)
        if price is None:
            self._series[USAGE_UNKNOWN.name].add(count, child.tenant, "price")
        else:
            self._series[MONEY_SAVED.name].add(count * price, child.tenant, child.tier)
            self._books.saved((child.tenant, route, model), child.tier, price, count)

    def _head_refused(self, event: HeadRefused) -> None:
        self._series[HEADS_REFUSED.name].add(1, self._reason(event.reason))

    def _store_state(self, event: StoreState) -> None:
        # A gauge: the last state holds. A degraded store answers.
        up = 0 if event.state == "down" else 1
        self._series[STORE_UP.name].cell(self._store(event.store))[0] = up

    def _store_operation(self, event: StoreOperation) -> None:
        store, outcome = self._store(event.store), self._reason(event.outcome)
        self._series[STORE_OPERATIONS.name].add(1, store, event.operation, outcome)
        self._series[STORE_SECONDS.name].observe(event.seconds, store, event.operation)

    def _entry_rejected(self, event: EntryRejected) -> None:
        store, reason = self._store(event.store), self._reason(event.reason)
        self._series[ENTRIES_REJECTED.name].add(1, store, reason)

    def _policy_reload(self, event: PolicyReload) -> None:
        self._series[POLICY_RELOADS.name].add(1, "ok" if event.ok else "refused")

    def _collapse(self, event: Collapse) -> None:
        self._series[COLLAPSES.name].add(1, event.kind, event.where)

    def _semantic_lookup(self, event: SemanticLookup) -> None:
        tenant, intent = self._tenant(event.tenant), self._reason(event.intent)
        kind, reason = self._reason(event.kind), self._reason(event.reason)
        self._series[SEMANTIC_LOOKUPS.name].add(1, tenant, intent, kind, reason)
        self._series[SEMANTIC_SECONDS.name].observe(event.seconds, kind)
        self._books.lookup(event)

    def _semantic_audit(self, event: SemanticAudit) -> None:
        tenant, intent = self._tenant(event.tenant), self._reason(event.intent)
        verdict = "same" if event.same else "different"
        self._series[SEMANTIC_AUDITS.name].add(
            1, tenant, intent, self._reason(event.judge), verdict
        )
        self._series[SEMANTIC_BOUND.name].cell(tenant, intent)[0] = event.upper_bound

    def _semantic_state(self, event: SemanticState) -> None:
        tenant, intent = self._tenant(event.tenant), self._reason(event.intent)
        self._series[SEMANTIC_OPEN.name].cell(tenant, intent)[0] = int(event.open)

    def _replica_asked(self, event: ReplicaAsked) -> None:
        named = (self._upstream(event.upstream), self._replica(event.replica))
        self._series[REPLICA_REQUESTS.name].add(1, *named, event.reason)
        tokens = self._series[REPLICA_TOKENS.name]
        tokens.add(event.tokens, *named, "all")
        tokens.add(event.known, *named, "known")

    def _replica_changed(self, event: ReplicaChanged) -> None:
        named = (self._upstream(event.upstream), self._replica(event.replica))
        self._series[REPLICA_UP.name].cell(*named)[0] = int(event.up)

    def _prefix_probed(self, event: PrefixProbed) -> None:
        named = (self._upstream(event.upstream), self._replica(event.replica))
        self._series[PREFIX_ISOLATED.name].cell(*named)[0] = int(event.state == "isolated")
        self._series[PREFIX_LEAKS.name].cell(*named)[0] = int(event.state == "leaks")

    def _prefix_failed(self, event: PrefixFailed) -> None:
        self._series[PREFIX_FAILURES.name].add(1, self._upstream(event.upstream))

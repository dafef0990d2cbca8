"""The Prometheus alert rules: `deploy/alerts/trivet.yaml`, and their table in the reference."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import yaml

from generate.promql import grew, increase, rate, selected
from trivet import metric_names as m

_MADE = """# Prometheus rules. Written by `python -m generate` from generate/alerts.py.
# What each means and what to do about it: docs/reference/metrics.md.
"""


class Alert(NamedTuple):
    """One alert. `when` and `todo` are for people; `todo` may hold links from docs/reference."""

    name: str
    group: str
    severity: Literal["critical", "warning", "info"]
    after: str
    expr: str
    when: str
    todo: str
    summary: str


_SHARE_NOW = "trivet:prefix_cached_share:1h"
_SHARE_BEFORE = "trivet:prefix_cached_share:baseline"


def _cached_share(window: str, offset: str = "") -> str:
    by = ("tenant", "route")
    cached = rate(m.PREFIX_TOKENS, by, window, offset, kind="cached")
    return f"{cached} / {rate(m.PREFIX_TOKENS, by, window, offset, kind='all')}"


RECORDS: tuple[tuple[str, str], ...] = (
    (_SHARE_NOW, _cached_share("1h")),
    # The day before the last hour: a drop does not lower its own baseline for an hour.
    (_SHARE_BEFORE, _cached_share("1d", "1h")),
)

_BY_ROUTE = ("tenant", "route")
# A route that only writes, or only reads, has no series of the other.
_NET_PREFIX = (
    f"({increase(m.MONEY, _BY_ROUTE, '1h', post='saved-prefix')} or "
    f"0 * {increase(m.MONEY, _BY_ROUTE, '1h', post='prefix-writes')}) - "
    f"{increase(m.MONEY, _BY_ROUTE, '1h', post='prefix-writes')}"
)
_OWN_P99 = f"histogram_quantile(0.99, {rate(m.OWN_SECONDS, ('le',), '10m')})"

ALERTS: tuple[Alert, ...] = (
    Alert(
        "TrivetServerErrors",
        "requests",
        "critical",
        "10m",
        f"{rate(m.REQUESTS, (), '5m', status='~5..')} / {rate(m.REQUESTS, (), '5m')} > 0.05",
        "more than 5 % of the requests were answered with a 5xx",
        "The log's `upstream-state` lines name an upstream that fails; "
        "[what failure looks like](../operations.md#failure).",
        "{{ $value | humanizePercentage }} of the requests were answered with a 5xx",
    ),
    Alert(
        "TrivetSlowItself",
        "requests",
        "warning",
        "15m",
        f"{_OWN_P99} > 0.1",
        "one request in a hundred spends more than 0.1 s in Trivet itself",
        "CPU of the workers, then `workers`; [sizing](../operations.md#sizing).",
        "Trivet's own time at p99 is {{ $value | humanizeDuration }}",
    ),
    Alert(
        "TrivetStoreDown",
        "stores",
        "warning",
        "5m",
        f"{selected(m.STORE_UP)} == 0",
        "a store, or a model of the semantic tier, has been in trouble for 5 minutes: it costs "
        "hits, not answers",
        "`/readyz` has the reason; [stores in trouble](../operations.md#stores-in-trouble).",
        "{{ $labels.store }} does not answer: requests go without it",
    ),
    Alert(
        "TrivetEntriesRejected",
        "stores",
        "warning",
        "0m",
        grew(m.ENTRIES_REJECTED, ("store", "reason"), "15m", 10),
        "more than 10 stored entries in 15 minutes were altered, foreign or corrupt",
        "Most often proxies with another `TRIVET_SECRET`; else somebody writes to the store: "
        "[store compromise](../threat-model.md#store-compromise).",
        "{{ $labels.store }}: {{ $value | humanize }} entries refused ({{ $labels.reason }})",
    ),
    Alert(
        "TrivetPolicyRefused",
        "policies",
        "warning",
        "0m",
        grew(m.POLICY_RELOADS, (), "15m", 0, result="refused"),
        "a change of the policy files was refused; the set before it holds",
        "`trivet check DIR` names file, line and field.",
        "A policy reload was refused: the earlier policies hold",
    ),
    Alert(
        "TrivetSemanticClosed",
        "semantic",
        "warning",
        "0m",
        f"{selected(m.SEMANTIC_OPEN)} == 0",
        "the running measurement closed the semantic tier for a tenant's intent",
        "The log and `/readyz` say why; it opens by "
        "[a new calibration](../semantic.md#what-keeps-it-honest-while-it-runs).",
        "{{ $labels.tenant }}, {{ $labels.intent }}: the semantic tier only watches",
    ),
    Alert(
        "TrivetFlooded",
        "flood",
        "critical",
        "5m",
        f"{selected(m.FLOODED)} == 1",
        "the caches answer far less than usual, and model calls are limited",
        "After a flush or a cold start it ends by itself; `trivet warm` shortens it "
        "([money.md](../money.md#warming)).",
        "The hit share is far below its baseline: model calls are limited",
    ),
    Alert(
        "TrivetFloodShed",
        "flood",
        "critical",
        "0m",
        grew(m.FLOOD_SHED, ("tenant", "reason"), "5m", 0),
        "requests are refused with 503 while the caches are cold",
        "`flood.max_calls`, `flood.queue` and `flood.wait` in the "
        "[server config](config.md) are the bounds.",
        "{{ $labels.tenant }}: {{ $value | humanize }} requests refused ({{ $labels.reason }})",
    ),
    Alert(
        "TrivetReplicaDown",
        "replicas",
        "warning",
        "5m",
        f"{selected(m.REPLICA_UP)} == 0",
        "a replica has not been asked for 5 minutes",
        "[Health of replicas](../fleets.md#health).",
        "{{ $labels.upstream }}: {{ $labels.replica }} is not asked",
    ),
    Alert(
        "TrivetPrefixLeaks",
        "replicas",
        "critical",
        "0m",
        f"{selected(m.PREFIX_LEAKS)} == 1",
        "a server of your own gave one tenant cached tokens of another's prompt",
        "[Is it isolated?](../fleets.md#is-it-isolated) has what mends it.",
        "{{ $labels.upstream }}: {{ $labels.replica }} gives tenants each other's prefixes",
    ),
    Alert(
        "TrivetPrefixUnverified",
        "replicas",
        "warning",
        "5m",
        f"{selected(m.PREFIX_ISOLATED)} == 0 unless {selected(m.PREFIX_LEAKS)} == 1",
        "a server of your own could not be seen to keep tenants' prefixes apart: most often its "
        "caching is off, or it does not tell of it",
        "[Is it isolated?](../fleets.md#is-it-isolated) has what mends each state.",
        "{{ $labels.upstream }}: {{ $labels.replica }} was not seen to keep tenants apart",
    ),
    Alert(
        "TrivetPrefixFailures",
        "prefix",
        "warning",
        "0m",
        grew(m.PREFIX_FAILURES, ("upstream",), "15m", 0),
        "requests could not be prepared for the upstream's prefix cache and went without it",
        "The log has a line `prefix-failed`: report it, with the request's shape.",
        "{{ $labels.upstream }}: {{ $value | humanize }} requests went without prefix caching",
    ),
    Alert(
        "TrivetPrefixShareDropped",
        "prefix",
        "warning",
        "15m",
        f"{_SHARE_NOW} < 0.7 * {_SHARE_BEFORE} and {_SHARE_BEFORE} > 0.05 and "
        f"{increase(m.PREFIX_TOKENS, ('tenant', 'route'), '1h', kind='all')} > 10000",
        "of a route with more than 10,000 prompt tokens in the hour, the share that the prefix "
        "cache served is under 0.7 of the day before",
        "[The layout doctor](../prefix-doctor.md) says where prompts part, and why.",
        "{{ $labels.tenant }}, {{ $labels.route }}: {{ $value | humanizePercentage }} of the "
        "prompt tokens are read from the prefix cache, less than 0.7 of the day before",
    ),
    Alert(
        "TrivetPrefixCosts",
        "prefix",
        "warning",
        "30m",
        _NET_PREFIX + " < -0.1",
        "for an hour, cache writes of a route have cost more than reads saved, by 0.1 USD an hour "
        "or more",
        "Prompts there do not come again while they are kept: `prefix: {mark: never}` for that "
        "route's policy, or see [what learning costs](../prefix-hosted.md#what-learning-costs).",
        "{{ $labels.tenant }}, {{ $labels.route }}: prefix caching saves {{ $value }} USD an hour",
    ),
    Alert(
        "TrivetPrefixBreaks",
        "prefix",
        "info",
        "15m",
        f"{increase(m.PREFIX_LOST, ('tenant', 'route', 'cause'), '1h')} > 1000000",
        "one cause kept a million prompt tokens in an hour from being read from the prefix cache",
        "[The layout doctor](../prefix-doctor.md) has a fix for each cause.",
        "{{ $labels.tenant }}, {{ $labels.route }}: {{ $labels.cause }} kept "
        "{{ $value | humanize }} prompt tokens from being read from the prefix cache in an hour",
    ),
)


def rules() -> str:
    """deploy/alerts/trivet.yaml."""
    groups = [_group(name) for name in dict.fromkeys(alert.group for alert in ALERTS)]
    return _MADE + yaml.safe_dump({"groups": groups}, sort_keys=False, width=96)


def _group(name: str) -> dict[str, Any]:
    records = [{"record": record, "expr": expr} for record, expr in RECORDS if name == "prefix"]
    alerts = [_rule(alert) for alert in ALERTS if alert.group == name]
    return {"name": f"trivet-{name}", "rules": [*records, *alerts]}


def _rule(alert: Alert) -> dict[str, Any]:
    return {
        "alert": alert.name,
        "expr": alert.expr,
        "for": alert.after,
        "labels": {"severity": alert.severity},
        "annotations": {
            "summary": alert.summary,
            "description": f"docs/reference/metrics.md#alerts has what to do about {alert.name}.",
        },
    }

"""The Grafana dashboard, `deploy/grafana/trivet.json`: each metric is on it, in its row or last."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from generate.promql import rate, selected
from trivet import metric_names as m
from trivet.metric_names import METRICS, Metric

_WIDTH, _HEIGHT, _ACROSS = 8, 8, 3
_SOURCE = {"type": "prometheus", "uid": "${source}"}


class Panel(NamedTuple):
    """One graph: queries with their legends, and the unit in Grafana's words."""

    title: str
    queries: tuple[tuple[str, str], ...]
    unit: str = "short"
    told: str = ""


def _of(metric: Metric, by: tuple[str, ...], **labels: str) -> str:
    """Its rate, for the tenants that the dashboard has picked."""
    if "tenant" in metric.labels:
        labels = {"tenant": "~$tenant", **labels}
    return rate(metric, by, **labels)


def _share(metric: Metric, by: tuple[str, ...], **labels: str) -> str:
    return f"{_of(metric, by, **labels)} / {_of(metric, by)}"


def _quantile(metric: Metric, quantile: float, by: str = "") -> str:
    grouped = ("le", by) if by else ("le",)
    return f"histogram_quantile({quantile}, {rate(metric, grouped)})"


def _spread(metric: Metric, by: str = "") -> tuple[tuple[str, str], ...]:
    legend = f"{{{{{by}}}}} " if by else ""
    return tuple(
        (_quantile(metric, quantile, by), f"{legend}p{quantile * 100:g}")
        for quantile in (0.5, 0.99)
    )


_HIT = "~hit|collapsed|stale"
ROWS: tuple[tuple[str, tuple[Panel, ...]], ...] = (
    (
        "Requests",
        (
            Panel(
                "Requests by outcome",
                ((_of(m.REQUESTS, ("outcome",)), "{{outcome}}"),),
                "reqps",
                "hit: from a cache; collapsed: another caller's call served it.",
            ),
            Panel(
                "Answered without a model call, of all",
                ((_share(m.REQUESTS, (), outcome=_HIT), "share"),),
                "percentunit",
            ),
            Panel(
                "Why not",
                ((_of(m.REQUESTS, ("outcome", "reason"), outcome="~miss|bypass"), "{{reason}}"),),
                "reqps",
                "Reasons of misses and bypasses, as in Cache-Status. No reason: a plain miss.",
            ),
            Panel(
                "Errors told to callers",
                ((_of(m.REQUESTS, ("status",), status="~[45].."), "{{status}}"),),
                "reqps",
            ),
            Panel("Trivet's own time", _spread(m.OWN_SECONDS, "outcome"), "s"),
            Panel("First byte, by outcome", _spread(m.FIRST_BYTE_SECONDS, "outcome"), "s"),
            Panel("The upstream's time", _spread(m.UPSTREAM_SECONDS, "upstream"), "s"),
            Panel("Collapse", ((_of(m.COLLAPSES, ("kind", "where")), "{{kind}} {{where}}"),)),
            Panel(
                "Bodies",
                ((_of(m.REQUEST_BYTES, ()), "requests"), (_of(m.RESPONSE_BYTES, ()), "responses")),
                "Bps",
            ),
        ),
    ),
    (
        "Money",
        (
            Panel(
                "Dollars an hour, by post",
                ((f"3600 * {_of(m.MONEY, ('post',))}", "{{post}}"),),
                "currencyUSD",
                "prefix-writes is part of spent. docs/money.md defines each post.",
            ),
            Panel(
                "Tokens of models' answers",
                ((_of(m.MODEL_TOKENS, ("kind",)), "{{kind}}"),),
                told="cache_read and cache_write are part of input.",
            ),
            Panel("Calls in no sum", ((_of(m.UNPRICED, ("what", "model")), "{{what}} {{model}}"),)),
        ),
    ),
    (
        "Semantic",
        (
            Panel(
                "Lookups", ((_of(m.SEMANTIC_LOOKUPS, ("kind", "reason")), "{{kind}} {{reason}}"),)
            ),
            Panel(
                "Audits", ((_of(m.SEMANTIC_AUDITS, ("verdict", "judge")), "{{verdict}} {{judge}}"),)
            ),
            Panel(
                "Upper bound on false hits among hits",
                ((selected(m.SEMANTIC_BOUND, tenant="~$tenant"), "{{tenant}} {{intent}}"),),
                "percentunit",
                "Begins at 1 and falls as audits come in.",
            ),
            Panel(
                "Open (1) or closed to shadow (0)",
                ((selected(m.SEMANTIC_OPEN, tenant="~$tenant"), "{{tenant}} {{intent}}"),),
            ),
            Panel("Time of a lookup", _spread(m.SEMANTIC_SECONDS, "kind"), "s"),
        ),
    ),
    (
        "Prefix",
        (
            Panel(
                "Prompt tokens read from the upstream's cache",
                (
                    (
                        f"{_of(m.PREFIX_TOKENS, ('tenant', 'route'), kind='cached')} / "
                        f"{_of(m.PREFIX_TOKENS, ('tenant', 'route'), kind='all')}",
                        "{{tenant}} {{route}}",
                    ),
                ),
                "percentunit",
            ),
            Panel(
                "Tokens lost to breaks, by cause",
                ((_of(m.PREFIX_LOST, ("route", "cause")), "{{route}} {{cause}}"),),
            ),
            Panel(
                "Replicas asked, and why",
                ((rate(m.REPLICA_REQUESTS, ("replica", "reason")), "{{replica}} {{reason}}"),),
                "reqps",
            ),
            Panel("Replica up", ((selected(m.REPLICA_UP), "{{upstream}} {{replica}}"),)),
            Panel(
                "Tenants kept apart",
                (
                    (selected(m.PREFIX_ISOLATED), "{{upstream}} {{replica}}"),
                    (selected(m.PREFIX_LEAKS), "{{upstream}} {{replica}} leaks"),
                ),
            ),
        ),
    ),
    (
        "Stores and cold caches",
        (
            Panel("Up", ((selected(m.STORE_UP), "{{store}}"),)),
            Panel(
                "Store calls",
                (
                    (
                        rate(m.STORE_OPERATIONS, ("store", "operation", "outcome")),
                        "{{store}} {{operation}} {{outcome}}",
                    ),
                ),
                "ops",
            ),
            Panel("Time of a store call", _spread(m.STORE_SECONDS, "operation"), "s"),
            Panel(
                "Entries refused",
                ((rate(m.ENTRIES_REJECTED, ("store", "reason")), "{{store}} {{reason}}"),),
            ),
            Panel("Hit share", ((selected(m.HIT_SHARE), "{{window}}"),), "percentunit"),
            Panel(
                "Load that a flush would send to the model",
                ((selected(m.FLUSH_LOAD), "times the usual"),),
            ),
            Panel(
                "Calls under the guard",
                ((selected(m.FLOOD_CALLS), "{{state}}"), (selected(m.FLOODED), "flooded")),
            ),
            Panel("Refused while cold", ((_of(m.FLOOD_SHED, ("reason",)), "{{reason}}"),)),
            Panel("Policy reloads", ((rate(m.POLICY_RELOADS, ("result",)), "{{result}}"),)),
        ),
    ),
)


def unshown(metrics: Iterable[Metric] = METRICS) -> list[Metric]:
    """Metrics that no row above has."""
    text = " ".join(query for _, panels in ROWS for panel in panels for query, _ in panel.queries)
    return [metric for metric in metrics if metric.name not in text]


def dashboard() -> str:
    """deploy/grafana/trivet.json."""
    rest = tuple(_plain(metric) for metric in unshown())
    rows = (*ROWS, ("Everything else", rest)) if rest else ROWS
    board = {
        "uid": "trivet",
        "title": "Trivet",
        "description": "Written by `python -m generate` from generate/dashboard.py.",
        "tags": ["trivet"],
        "schemaVersion": 39,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [_picked_source(), _picked_tenants()]},
        "panels": list(_placed(rows)),
    }
    return json.dumps(board, indent=1) + "\n"


def _plain(metric: Metric) -> Panel:
    legend = " ".join(f"{{{{{label}}}}}" for label in metric.labels)
    query = selected(metric) if metric.kind == "gauge" else _of(metric, metric.labels)
    return Panel(metric.name, ((query, legend),), told=metric.help)


def _placed(rows: Iterable[tuple[str, tuple[Panel, ...]]]) -> Iterable[dict[str, Any]]:
    number, top = 0, 0
    for title, panels in rows:
        number += 1
        at = {"h": 1, "w": 24, "x": 0, "y": top}
        yield {"id": number, "type": "row", "title": title, "collapsed": False, "gridPos": at}
        top += 1
        for place, panel in enumerate(panels):
            number += 1
            down, across = divmod(place, _ACROSS)
            at = {"h": _HEIGHT, "w": _WIDTH, "x": across * _WIDTH, "y": top + down * _HEIGHT}
            yield _graph(panel, number) | {"gridPos": at}
        top += -(-len(panels) // _ACROSS) * _HEIGHT


def _graph(panel: Panel, number: int) -> dict[str, Any]:
    return {
        "id": number,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.told,
        "datasource": _SOURCE,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list"}, "tooltip": {"mode": "multi"}},
        "targets": [
            {"refId": chr(65 + place), "datasource": _SOURCE, "expr": expr, "legendFormat": legend}
            for place, (expr, legend) in enumerate(panel.queries)
        ],
    }


def _picked_source() -> dict[str, Any]:
    return {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"}


def _picked_tenants() -> dict[str, Any]:
    return {
        "name": "tenant",
        "type": "query",
        "datasource": _SOURCE,
        "query": f"label_values({m.REQUESTS.name}, tenant)",
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
    }

"""One process's sums by tenant, for the console."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trivet.metric_names import MODEL_TOKENS, MONEY, REQUESTS, TOKENS_SAVED, Metric
from trivet.middleware.observe.metrics import PrometheusObserver

Sums = dict[str, dict[str, float]]
"""By tenant and name: `requests:<tier>:<outcome>`, `failed`, `tokens:<kind>`,
`saved-tokens:<kind>`, `money:<post>`, as in `figures`."""


def tenant_sums(metrics: PrometheusObserver) -> Sums:
    """What was counted of each tenant since the process began."""
    metrics.settle()
    sums: Sums = {}
    for labels, amount in _cells(metrics, REQUESTS):
        _add(sums, labels, f"requests:{labels['tier']}:{labels['outcome']}", amount)
        if labels["status"].startswith("5"):
            _add(sums, labels, "failed", amount)
    for labels, amount in _cells(metrics, MODEL_TOKENS):
        _add(sums, labels, f"tokens:{labels['kind']}", amount)
    for labels, amount in _cells(metrics, TOKENS_SAVED):
        _add(sums, labels, f"saved-tokens:{labels['kind']}", amount)
    for labels, amount in _cells(metrics, MONEY):
        _add(sums, labels, f"money:{labels['post']}", amount)
    return sums


def _cells(metrics: PrometheusObserver, metric: Metric) -> list[tuple[Mapping[str, Any], float]]:
    return [
        (dict(zip(metric.labels, labels, strict=True)), cell[0])
        for labels, cell in metrics.cells(metric).items()
    ]


def _add(sums: Sums, labels: Mapping[str, Any], name: str, amount: float) -> None:
    of_tenant = sums.setdefault(labels["tenant"], {})
    of_tenant[name] = of_tenant.get(name, 0.0) + amount

"""Figures of one or several processes: their shape, their sum, and their Prometheus text."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate
from typing import Any, TypedDict

from trivet.metric_names import (
    FIRST_BYTE_SECONDS,
    METRICS,
    OWN_SECONDS,
    SEMANTIC_SECONDS,
    STORE_SECONDS,
    UPSTREAM_SECONDS,
    Metric,
)

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_OWN = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0)
_MODEL = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0)
BOUNDS: dict[str, tuple[float, ...]] = {
    OWN_SECONDS.name: _OWN,
    STORE_SECONDS.name: _OWN,
    SEMANTIC_SECONDS.name: _OWN,
    SEMANTIC_SECONDS.name: _OWN,
    UPSTREAM_SECONDS.name: _MODEL,
    FIRST_BYTE_SECONDS.name: (0.00025, 0.0005, 0.001, 0.0025, 0.01, *_MODEL[:-2]),
}
"""Upper bounds of the buckets in seconds, each inclusive; beyond the last lies +Inf."""


class Snapshot(TypedDict):
    """Figures as JSON-able values, by metric name.

    `counters` (gauges too) holds `[label values, value]` pairs. `histograms` holds
    `[label values, row]` pairs; a row has one count for each bucket (not cumulative), the count
    beyond the last, and the sum of what was observed.
    """

    counters: dict[str, list[list[Any]]]
    histograms: dict[str, list[list[Any]]]


def merge(snapshots: Iterable[Snapshot]) -> Snapshot:
    """One snapshot out of several processes' ones.

    Counters and histograms are summed. Gauges keep their worst value: a store is up if every
    process reaches it. All have to come from the same version of Trivet (the rows' lengths).
    """
    counters: dict[str, dict[tuple[str, ...], float]] = {}
    histograms: dict[str, dict[tuple[str, ...], list[float]]] = {}
    worst = {
        metric.name: min if metric.worst == "low" else max
        for metric in METRICS
        if metric.kind == "gauge"
    }
    for snapshot in snapshots:
        for name, pairs in snapshot["counters"].items():
            values = counters.setdefault(name, {})
            for labels, value in pairs:
                key = tuple(labels)
                if name in worst:
                    values[key] = worst[name](values.get(key, value), value)
                else:
                    values[key] = values.get(key, 0) + value
        for name, pairs in snapshot["histograms"].items():
            rows = histograms.setdefault(name, {})
            for labels, row in pairs:
                known = rows.get(tuple(labels))
                rows[tuple(labels)] = (
                    list(row) if known is None else [a + b for a, b in zip(known, row, strict=True)]
                )
    return {
        "counters": {n: [[list(k), v] for k, v in s.items()] for n, s in counters.items()},
        "histograms": {n: [[list(k), v] for k, v in s.items()] for n, s in histograms.items()},
    }


def without_gauges(snapshot: Snapshot) -> Snapshot:
    """What outlives the process that counted it."""
    gauges = {metric.name for metric in METRICS if metric.kind == "gauge"}
    kept = {name: pairs for name, pairs in snapshot["counters"].items() if name not in gauges}
    return {"counters": kept, "histograms": snapshot["histograms"]}


def exposition(snapshot: Snapshot) -> bytes:
    """Prometheus' text format 0.0.4: every metric of `METRICS`, also those without a figure."""
    from prometheus_client import generate_latest

    return generate_latest(_Collector(snapshot))


class _Collector:
    """What prometheus_client renders. Imported lazily: a proxy that nobody scrapes stays small."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterable[Any]:
        for metric in METRICS:
            if metric.kind == "histogram":
                yield self._histogram(metric)
            else:
                yield self._simple(metric)

    def _simple(self, metric: Metric) -> Any:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        kind = GaugeMetricFamily if metric.kind == "gauge" else CounterMetricFamily
        family = kind(metric.name, metric.help, labels=metric.labels)
        for labels, value in self._snapshot["counters"].get(metric.name, ()):
            family.add_metric(labels, value)
        return family

    def _histogram(self, metric: Metric) -> Any:
        from prometheus_client.core import HistogramMetricFamily

        bounds = [*map(str, BOUNDS[metric.name]), "+Inf"]
        family = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
        for labels, row in self._snapshot["histograms"].get(metric.name, ()):
            counts = list(accumulate(row[:-1]))
            family.add_metric(labels, list(zip(bounds, counts, strict=True)), row[-1])
        return family

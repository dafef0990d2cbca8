"""The engine's figures in Prometheus' text format 0.0.4.

Names begin with `trivet_engine_`; where vLLM has a metric of the same meaning, the rest is named as
there. No label holds what a caller can set: tenants come out of signatures.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from prometheus_client import generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)

from trivet.prefix.engine.engine_stats import EngineStats
from trivet.prefix.engine.timings import Histogram, Timings
from trivet.prefix.pool.counters import TenantCounters

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_PREFIX = "trivet_engine_"

_BY_TENANT = (
    ("prefix_cache_queries", "Prompt tokens that were looked up in the cache.", "queries"),
    ("prefix_cache_hits", "Those of them whose KV was there, in any tier.", "hits"),
    ("prefix_cache_offload_hits", "Those that came back from the second tier.", "offload_hits"),
    ("admitted_requests", "Sequences that were given blocks for the first time.", "requests"),
    ("preempted_requests", "Admissions again, in no figure above.", "preempted_requests"),
    ("preempted_queries", "Tokens that these looked up.", "preempted_queries"),
    ("preempted_hits", "Those of them whose KV was still there.", "preempted_hits"),
    ("preemptions", "Sequences that gave their blocks back to wait again.", "preemptions"),
    ("block_refusals", "Admissions and appends that found too few blocks.", "refusals"),
    ("evictions", "Cached blocks of the tenant that were given to another use.", "evictions"),
)  # fmt: skip
_TOTALS = (
    ("steps", "Forward passes of the model.", "steps"),
    ("failed_steps", "Steps that raised; their requests failed.", "failed_steps"),
    ("computed_tokens", "Tokens through the model, recomputed ones too.", "computed_tokens"),
    ("generation_tokens", "Tokens of answers.", "generated_tokens"),
)  # fmt: skip


def exposition(stats: EngineStats, timings: Timings, refused: Mapping[str, int]) -> bytes:
    """All figures at this moment; `refused` counts requests by code."""
    return generate_latest(_Figures(stats, timings, refused))


class _Figures:
    def __init__(self, stats: EngineStats, timings: Timings, refused: Mapping[str, int]) -> None:
        self._stats = stats
        self._timings = timings
        self._refused = dict(refused)

    def collect(self) -> Iterable[Any]:
        """Part of prometheus_client's protocol."""
        stats = self._stats
        for name, told, attribute in _BY_TENANT:
            yield _by_tenant(name, told, attribute, stats.tenants)
        for name, told, attribute in _TOTALS:
            yield CounterMetricFamily(_PREFIX + name, told, value=getattr(stats, attribute))
        finished = "Requests that ended, by why: stop, length, cancelled, deadline, error,"
        finished += " grammar."
        yield _labelled("requests_finished", finished, "reason", stats.finished)
        refused = "Requests that were turned away before they waited, by code."
        yield _labelled("requests_refused", refused, "code", self._refused)
        yield _gauge("requests_running", "Sequences that hold blocks.", stats.running)
        yield _gauge("requests_waiting", "Sequences that wait for blocks.", stats.waiting)
        yield from _memory(stats)
        timings = self._timings
        yield _histogram(
            "time_to_first_token_seconds", "From arrival to first token.", timings.first_token
        )
        yield _histogram(
            "inter_token_latency_seconds", "Between two tokens.", timings.between_tokens
        )


def _memory(stats: EngineStats) -> Iterable[Any]:
    pool, size = stats.pool, stats.block_bytes
    held = {"used": pool.used, "pinned": pool.pinned, "cached": pool.cached, "blank": pool.blank}
    told = "Bytes of the KV pool by what its blocks are; the sum never changes."
    kv = GaugeMetricFamily(_PREFIX + "kv_bytes", told, labels=("state",))
    for state, blocks in held.items():
        kv.add_metric((state,), blocks * size)
    yield kv
    yield _gauge("kv_capacity_bytes", "Bytes of the KV pool.", stats.kv_bytes)
    used = sum(held.values()) - pool.blank - pool.cached
    share = used / max(1, sum(held.values()))
    yield _gauge("kv_cache_usage_ratio", "Share of the blocks that are in use, 0 to 1.", share)
    tiers = (("used", "used"), ("capacity", "slots"))
    for name, attribute in tiers:
        told = f"Bytes of the second tier by medium: {name}."
        family = GaugeMetricFamily(_PREFIX + f"offload_{name}_bytes", told, labels=("medium",))
        for tier in stats.tiers:
            family.add_metric((tier.medium,), getattr(tier, attribute) * size)
        yield family
    failures = {tier.medium: tier.failures for tier in stats.tiers}
    told = "Copies to or from the second tier that failed."
    yield _labelled("offload_failures", told, "medium", failures)


def _by_tenant(
    name: str, told: str, attribute: str, tenants: Mapping[str, TenantCounters]
) -> CounterMetricFamily:
    values = {tenant: getattr(counters, attribute) for tenant, counters in tenants.items()}
    return _labelled(name, told, "tenant", values)


def _labelled(name: str, told: str, label: str, values: Mapping[Any, int]) -> CounterMetricFamily:
    family = CounterMetricFamily(_PREFIX + name, told, labels=(label,))
    for value, count in values.items():
        family.add_metric((str(value),), count)
    return family


def _gauge(name: str, told: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(_PREFIX + name, told, value=value)


def _histogram(name: str, told: str, counted: Histogram) -> HistogramMetricFamily:
    buckets = counted.cumulative()
    return HistogramMetricFamily(_PREFIX + name, told, buckets=buckets, sum_value=counted.sum)

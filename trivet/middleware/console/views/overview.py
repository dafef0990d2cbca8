"""The overview: what the tiers answered over a time, and what that saved."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from trivet.errors import RequestError
from trivet.middleware.admin.control import Readiness
from trivet.middleware.console.history import RANGES, Span
from trivet.middleware.console.pages import Asked
from trivet.middleware.observe.figures import (
    AT,
    NAMES,
    OWN_BOUNDS,
    POSTS,
    TOKENS,
    UPSTREAM_BOUNDS,
)
from trivet.prefix.markers.money import net_saved, without_caches

_DEFAULT: Final = "15m"
_ANSWERED: Final = ("exact", "semantic", "collapsed", "stale")
KINDS: Final[Mapping[str, tuple[str, ...]]] = {
    "exact": ("requests:exact:hit",),
    "semantic": ("requests:semantic:hit",),
    "collapsed": tuple(name for name in NAMES if name.endswith(":collapsed")),
    "stale": tuple(name for name in NAMES if name.endswith(":stale")),
    "miss": tuple(name for name in NAMES if name.endswith(":miss")),
    "bypass": tuple(name for name in NAMES if name.endswith(":bypass")),
    "error": tuple(name for name in NAMES if name.endswith(":error")),
}
"""How the page tells requests apart: each is in one kind. `_ANSWERED` were answered without a model
call of their own, the fifth might have been."""
_PLACES: Final = {kind: [AT[name] for name in names] for kind, names in KINDS.items()}
_MONEY: Final = AT[f"money:{POSTS[0]}"]
_FAILURES: Final = 10
_QUANTILES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


async def show(asked: Asked) -> dict[str, Any]:
    """The page's JSON for the `range` of the query. Raises `RequestError` 422 for another one."""
    name = asked.query.get("range", _DEFAULT)
    if name not in RANGES:
        told = f"The range has to be one of {', '.join(RANGES)}."
        raise RequestError(422, told, field="range")
    floods = [told for told in await asked.control.tell("flood") if told is not None]
    ready = await asked.control.ready()
    return {
        "range": name,
        "now": time.time(),
        "since": asked.history.began,
        **over(asked.history.span(name)),
        "flush": flush_of(floods),
        "failures": failures_of(await asked.control.tell("failures")),
        "state": state_of(ready),
    }


def over(span: Span) -> dict[str, Any]:
    """What happened in a span: for each bucket, and in all."""
    total = [sum(column) for column in zip(*span.rows, strict=True)]
    kinds = {kind: [_kind(row, kind) for row in span.rows] for kind in KINDS}
    return {
        "first": span.first,
        "width": span.width,
        "requests": kinds,
        "hit_rate": [_hit_rate(*counts) for counts in zip(*kinds.values(), strict=True)],
        "own_p95": [_quantile(_own(row), OWN_BOUNDS, 0.95) for row in span.rows],
        "upstream_p95": [
            _quantile(_histogram(row, "upstream", UPSTREAM_BOUNDS), UPSTREAM_BOUNDS, 0.95)
            for row in span.rows
        ],
        "money": {
            "spent": [row[AT["money:spent"]] for row in span.rows],
            "without": [without_caches(_money(row)) for row in span.rows],
        },
        "total": totals(total),
    }


def totals(row: Sequence[float]) -> dict[str, Any]:
    """The sums of one time. None stands for what nothing is known of."""
    kinds = {kind: _kind(row, kind) for kind in KINDS}
    money = _money(row)
    return {
        "requests": sum(kinds.values()),
        "kinds": kinds,
        "hit_rate": _hit_rate(*kinds.values()),
        "failed": row[AT["failed"]],
        "tokens": {kind: row[AT[f"tokens:{kind}"]] for kind in TOKENS},
        "saved_tokens": {kind: row[AT[f"saved-tokens:{kind}"]] for kind in ("input", "output")},
        "money": {
            **money,
            "net-saved": net_saved(money),
            "without-caches": without_caches(money),
        },
        "latency": _latency(row),
        "seconds": seconds_of(row),
    }


def seconds_of(row: Sequence[float]) -> dict[str, float | None]:
    """Time that callers waited, and would have waited without the caches, in seconds.

    A request that a cache answered is taken to have waited for the mean of the model calls of the
    same time; None where there was none.
    """
    calls = _histogram(row, "upstream", UPSTREAM_BOUNDS)
    own, hits = _own(row), _histogram(row, "own-hit", OWN_BOUNDS)
    was = own[-1] + calls[-1]
    called = sum(calls[:-1])
    if not called:
        return {"was": was, "without": None, "saved": None, "mean_call": None}
    mean = calls[-1] / called
    # What ours took for a hit would have been taken for a miss too, so it is left in.
    saved = sum(hits[:-1]) * mean
    return {"was": was, "without": was + saved, "saved": saved, "mean_call": mean}


def flush_of(floods: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """What the guards of all processes know of an empty cache's load; the worst of each."""
    if not floods:
        return None
    return {
        "share": min(one["share"] for one in floods),
        "baseline": max(one["baseline"] for one in floods),
        "load": max(one["load"] for one in floods),
        "baseline_known": all(one["baseline_known"] for one in floods),
        "flooded": any(one["flooded"] for one in floods),
        "in_flight": sum(one["in_flight"] for one in floods),
        "waiting": sum(one["waiting"] for one in floods),
        "shed": sum(one["shed"] for one in floods),
        "max_calls": floods[0]["max_calls"],
    }


def failures_of(told: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What failed of the last requests of all processes, the most frequent first."""
    counts: Counter[tuple[str, str]] = Counter()
    for process in told:
        for upstream, reason, number in process["rows"]:
            counts[upstream, reason] += number
    rows = [[*named, number] for named, number in counts.most_common(_FAILURES)]
    return {"of": sum(process["of"] for process in told), "rows": rows}


def state_of(ready: Readiness) -> dict[str, Any]:
    """Whether the proxy can do its work, and each part that it rests on."""
    return {"ok": ready.ok, "components": [asdict(part) for part in ready.components]}


def _kind(row: Sequence[float], kind: str) -> float:
    return sum([row[place] for place in _PLACES[kind]])


def _hit_rate(*counts: float) -> float | None:
    """Of the counts in the order of `KINDS`."""
    answered, missed = sum(counts[: len(_ANSWERED)]), counts[len(_ANSWERED)]
    return answered / (answered + missed) if answered + missed else None


def _money(row: Sequence[float]) -> dict[Any, float]:
    return dict(zip(POSTS, row[_MONEY : _MONEY + len(POSTS)], strict=True))


def _own(row: Sequence[float]) -> list[float]:
    hits = _histogram(row, "own-hit", OWN_BOUNDS)
    return [a + b for a, b in zip(hits, _histogram(row, "own-other", OWN_BOUNDS), strict=True)]


def _histogram(row: Sequence[float], name: str, bounds: tuple[float, ...]) -> list[float]:
    first = AT[f"{name}:0"]
    return list(row[first : first + len(bounds) + 2])


def _latency(row: Sequence[float]) -> dict[str, dict[str, float | None]]:
    parts = {
        "hit": (_histogram(row, "own-hit", OWN_BOUNDS), OWN_BOUNDS),
        "other": (_histogram(row, "own-other", OWN_BOUNDS), OWN_BOUNDS),
        "upstream": (_histogram(row, "upstream", UPSTREAM_BOUNDS), UPSTREAM_BOUNDS),
    }
    return {
        name: {
            "count": sum(cells[:-1]),
            "mean": cells[-1] / sum(cells[:-1]) if any(cells[:-1]) else None,
            **{told: _quantile(cells, bounds, at) for told, at in _QUANTILES.items()},
        }
        for name, (cells, bounds) in parts.items()
    }


def _quantile(cells: Sequence[float], bounds: tuple[float, ...], at: float) -> float | None:
    """The `at` quantile of a histogram, taken to be even within a bucket; None without a count.

    What lies beyond the last bound is told as that bound.
    """
    counts = cells[:-1]
    if not any(counts):
        return None
    wanted = sum(counts) * at
    seen = 0.0
    for index, count in enumerate(counts):
        if count and seen + count >= wanted:
            if index >= len(bounds):
                break
            low = bounds[index - 1] if index else 0.0
            return low + (bounds[index] - low) * (wanted - seen) / count
        seen += count
    return bounds[-1]

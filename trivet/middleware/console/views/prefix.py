"""The prefix page: routes with their share of cached tokens, breaks with their causes, replicas."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from trivet.errors import RequestError
from trivet.metric_names import PREFIX_BREAKS, PREFIX_LOST
from trivet.middleware.console.pages import Asked
from trivet.middleware.console.views.cached_share import fell, merged, share
from trivet.middleware.console.views.replicas import replicas_of
from trivet.middleware.prefix_tier.route_log import BREAKS

SPANS: Final = {"15m": (30, 30), "1h": (30, 120), "6h": (600, 36), "24h": (600, 144)}
"""Width of a bucket in seconds and their number, by what the page calls the time that it shows."""
_HOUR_S: Final = 3600
_HALF_HOUR_S: Final = 1800


async def show(asked: Asked) -> dict[str, Any]:
    """GET `prefix`: every route in one line."""
    told = [one for one in await asked.control.tell("prefix") if one]
    # In a thread: a day of many routes is some milliseconds of work.
    return await asyncio.to_thread(overview, told, time.time())


async def show_replicas(asked: Asked) -> dict[str, Any]:
    """GET `prefix/replicas`."""
    told = [one for one in await asked.control.tell("prefix-replicas") if one]
    return {"workers": len(told), "upstreams": replicas_of(told)}


async def show_route(asked: Asked) -> dict[str, Any]:
    """GET `prefix/route?tenant=NAME&route=NAME&span=15m|1h|6h|24h`."""
    tenant, route = asked.query.get("tenant"), asked.query.get("route")
    span = asked.query.get("span", "1h")
    if not tenant or not route:
        raise RequestError(422, "Give tenant and route.", field="route")
    if span not in SPANS:
        raise RequestError(422, f"span has to be one of {', '.join(SPANS)}.", field="span")
    told = [one for one in await asked.control.tell("prefix-route", [tenant, route]) if one]
    if not told:
        raise RequestError(404, "No model call of this route was seen since the start.")
    return {"tenant": tenant, "route": route, "span": span, **route_of(told, span, time.time())}


def overview(told: Sequence[Mapping[str, Any]], now: float) -> dict[str, Any]:
    """Out of what each process told; routes with the most tokens first."""
    routes: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for one in told:
        for route in one["routes"]:
            routes.setdefault((route["tenant"], route["route"]), []).append(route)
    lines = [_line(named, known, now) for named, known in routes.items()]
    return {
        "workers": len(told),
        "routes": sorted(lines, key=lambda one: -one["day"]["tokens"]),
    }


def route_of(told: Sequence[Mapping[str, Any]], span: str, now: float) -> dict[str, Any]:
    """Out of what each process told of one route; at least one did."""
    width, count = SPANS[span]
    first = int(now // width) * width - (count - 1) * width
    buckets = [
        one for one in merged(each["buckets"][str(width)] for each in told) if one[0] >= first
    ]
    breaks = sorted(
        (broken for each in told for broken in each["breaks"]), key=lambda one: -one["at"]
    )
    seen = [each["seen"] for each in told if each["seen"]]
    return {
        "workers": len(told),
        "keep_text": all(each["keep_text"] for each in told),
        "first": first,
        "width": width,
        "count": count,
        "buckets": buckets,
        "all": share(buckets),
        "fell": fell(buckets),
        "causes": _causes(told),
        "breaks": _grouped(breaks),
        "seen": max(seen, key=lambda one: one["at"], default=None),
    }


def _line(named: tuple[str, str], known: Sequence[Mapping[str, Any]], now: float) -> dict[str, Any]:
    buckets = [one for one in merged(each["buckets"] for each in known) if one[0] > now - 86_400]
    return {
        "tenant": named[0],
        "route": named[1],
        "hour": share(one for one in buckets if one[0] > now - _HOUR_S),
        "day": share(buckets),
        "fell": fell(buckets),
        "breaks": sum(each["breaks"] for each in known),
        "spark": _spark(buckets),
    }


def _spark(buckets: Iterable[Sequence[int]]) -> list[list[int]]:
    """Start, tokens and cached tokens of each half hour with traffic."""
    halves = ([start - start % _HALF_HOUR_S, *counted] for start, *counted in buckets)
    return [[start, tokens, cached] for start, _, tokens, cached in merged([halves])]


def _grouped(breaks: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Breaks of one cause at one place as one, the newest, with the times of all."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for one in breaks:
        known = found.setdefault((one["cause"], one["place"]), {**one, "times": []})
        known["times"].append(one["at"])
        known["new"] = known["new"] or one["new"]
    return list(found.values())[:BREAKS]


def _causes(told: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Breaks and lost tokens of a route by cause, most tokens first."""
    breaks, lost = Counter[str](), Counter[str]()
    for one in told:
        for cause, count in one["counted"][PREFIX_BREAKS.name]:
            breaks[cause] += int(count)
        for cause, count in one["counted"][PREFIX_LOST.name]:
            lost[cause] += int(count)
    return [
        {"cause": cause, "breaks": breaks[cause], "lost_tokens": tokens}
        for cause, tokens in lost.most_common()
    ]

"""The figures of the guard against floods."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from trivet.metric_names import FLOOD_CALLS, FLOOD_SHED, FLOODED, FLUSH_LOAD, HIT_SHARE
from trivet.middleware.observe.series import Names, Series
from trivet.telemetry import Flood, FloodShed


def flood_counts(
    series: Mapping[str, Series], tenant: Names
) -> dict[type[Any], Callable[[Any], None]]:
    """What to call for each event of the guard."""

    def state(event: Flood) -> None:
        series[HIT_SHARE.name].cell("now")[0] = event.share
        series[HIT_SHARE.name].cell("baseline")[0] = event.baseline
        series[FLUSH_LOAD.name].cell()[0] = event.load
        series[FLOODED.name].cell()[0] = int(event.flooded)
        series[FLOOD_CALLS.name].cell("in_flight")[0] = event.in_flight
        series[FLOOD_CALLS.name].cell("waiting")[0] = event.waiting

    def shed(event: FloodShed) -> None:
        series[FLOOD_SHED.name].add(1, tenant(event.tenant), event.reason)

    return {Flood: state, FloodShed: shed}

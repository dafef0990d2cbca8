"""The figures of the layout doctor: breaks by cause, and the share of cached tokens by route."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from trivet.metric_names import PREFIX_BREAKS, PREFIX_LOST, PREFIX_TOKENS, PREFIX_UNSEEN
from trivet.middleware.observe.series import Names, Series
from trivet.telemetry import PrefixBreak, PrefixUse

_ROUTES: Final = 200


def prefix_counts(
    series: Mapping[str, Series], tenant: Names
) -> dict[type[Any], Callable[[Any], None]]:
    """What to call for each event of the doctor."""
    route = Names(_ROUTES)

    def broke(event: PrefixBreak) -> None:
        named = (tenant(event.tenant), route(event.route), event.cause)
        series[PREFIX_BREAKS.name].add(1, *named)
        series[PREFIX_LOST.name].add(event.lost_tokens, *named)

    def used(event: PrefixUse) -> None:
        named = (tenant(event.tenant), route(event.route))
        if event.tokens:
            series[PREFIX_TOKENS.name].add(event.tokens, *named, "all")
            series[PREFIX_TOKENS.name].add(event.cached, *named, "cached")
        if event.unseen:
            series[PREFIX_UNSEEN.name].add(1, named[0])

    return {PrefixBreak: broke, PrefixUse: used}

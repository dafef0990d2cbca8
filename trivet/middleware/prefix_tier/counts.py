"""The prefix tier's figures: breaks by cause, cached tokens by route, and what became of pings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from trivet.metric_names import (
    PREFIX_BREAKS,
    PREFIX_LOST,
    PREFIX_PINGS,
    PREFIX_TOKENS,
    PREFIX_UNSEEN,
)
from trivet.middleware.observe.series import Names, Series
from trivet.telemetry import PrefixBreak, PrefixPing, PrefixUse

_ROUTES: Final = 200


def prefix_counts(
    series: Mapping[str, Series], tenant: Names
) -> dict[type[Any], Callable[[Any], None]]:
    """What to call for each event of the doctor and of `keep_warm`."""
    route = Names(_ROUTES)
    tokens, unseen = series[PREFIX_TOKENS.name], series[PREFIX_UNSEEN.name]

    def broke(event: PrefixBreak) -> None:
        named = (tenant(event.tenant), route(event.route), event.cause)
        series[PREFIX_BREAKS.name].add(1, *named)
        series[PREFIX_LOST.name].add(event.lost_tokens, *named)

    def used(event: PrefixUse) -> None:
        named = (tenant(event.tenant), route(event.route))
        if event.tokens:
            tokens.add(event.tokens, *named, "all")
            tokens.add(event.cached, *named, "cached")
        if event.unseen:
            unseen.add(event.unseen, named[0])

    def pinged(event: PrefixPing) -> None:
        series[PREFIX_PINGS.name].add(1, tenant(event.tenant), event.reason)

    return {PrefixBreak: broke, PrefixUse: used, PrefixPing: pinged}

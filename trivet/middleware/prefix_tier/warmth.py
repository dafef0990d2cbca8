"""Why a prefix is kept warm or is not: told for each prefix, and remembered by tenant and model."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

from trivet.messages import Api
from trivet.prefix.markers.prewarm import ping_of
from trivet.prefix.prompts.outline import NativeApi
from trivet.telemetry import Observer, PrefixPing

Reason = Literal[
    "ping",
    "no-ping-api",
    "no-price",
    "over-budget",
    "failed",
    "no-breakpoint",
    "no-ping-form",
    "not-worth",
    "too-late",
    "no-room",
]
WHY: Final[Mapping[str, str]] = {
    "ping": "renewed by a ping shortly before it would expire",
    "no-ping-api": "only Anthropic's own Messages API has pings",
    "no-price": "the price of the model is not known, so a budget cannot be kept",
    "over-budget": "prefix.keep_warm.budget_usd is spent for today (UTC)",
    "failed": "the upstream refused the last ping, or could not be reached",
    "no-breakpoint": "Trivet set no breakpoint in it, so none is known to expire",
    "no-ping-form": "thinking, a forced tool or an output format cannot go without an answer",
    "not-worth": "by the gaps between requests so far a ping costs more than it saves, or there "
    "are too few gaps yet to tell",
    "too-late": "it had expired before its ping could go",
    "no-room": "more prefixes are kept warm than fit in memory",
}
_OF_ONE_PROMPT: Final = frozenset(
    {"no-breakpoint", "no-ping-form", "not-worth", "too-late", "no-room"}
)
"""Reasons that say nothing about the next prompt: no state of the tenant's."""
_MOST: Final = 4096


class NotWarm(NamedTuple):
    """A prefix for which there will be no ping."""

    tenant: str
    upstream: str
    model: str
    reason: Reason


def never_pinged(api: Api | NativeApi, kind: str, marks: int, body: bytes) -> Reason | None:
    """Why there is no ping for a request with so many breakpoints at a cache of that kind, as far
    as the request itself tells; None where there can be one."""
    if api is not Api.MESSAGES or kind != "anthropic":
        return "no-ping-api"
    if not marks:
        return "no-breakpoint"
    return "no-ping-form" if ping_of(body) is None else None


class Warmth:
    """What became of prefixes, by tenant, upstream and model. Bounded: the oldest is forgotten."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._states: OrderedDict[tuple[str, str, str], Reason] = OrderedDict()

    def see(self, tenant: str, upstream: str, model: str, reason: Reason) -> None:
        """Tell the observer, and whether that is another state than before."""
        about = (tenant, upstream, model)
        before = self._states.get(about)
        passing = reason in _OF_ONE_PROMPT and before not in (None, *_OF_ONE_PROMPT)
        if not passing:
            self._states[about] = reason
            self._states.move_to_end(about)
        if len(self._states) > _MOST:
            self._states.popitem(last=False)
        new = before is None if reason in _OF_ONE_PROMPT else before != reason
        self._observer(PrefixPing(tenant, upstream, model, reason, new))

    def state(self, tenant: str, upstream: str, model: str) -> Reason | None:
        """What was the matter last; None where nothing was seen yet."""
        return self._states.get((tenant, upstream, model))

    def forget(self, tenant: str) -> None:
        """A tenant's states."""
        for about in [about for about in self._states if about[0] == tenant]:
            del self._states[about]

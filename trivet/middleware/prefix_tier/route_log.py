"""How much of each route's prompts was read from a prefix cache over the last day, the newest
prompt's shape, and the breaks that the layout doctor told, for people.

Fed on the event loop with `PrefixUse` events and what the doctor examined. Bounded in routes, in
breaks of each, and in bytes of quoted text; routes that were not used longest go first.
"""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from trivet.middleware.prefix_tier.shapes import Examined, Shape
from trivet.prefix.doctor.live import Finding
from trivet.prefix.doctor.places import shown
from trivet.telemetry import Event, PrefixUse

WIDTHS: Final = {30: 120, 600: 144}
"""Seconds of a bucket, and how many are kept: an hour, and a day."""
ROUTES: Final = 128
BREAKS: Final = 24
"""Of one route."""
BYTES: Final = 4 << 20
"""Of quoted text."""

Route = tuple[str, str]
"""Tenant, and the route's name within it."""


class Broken(NamedTuple):
    """A break that was told."""

    at: float
    """Unix seconds."""
    finding: Finding
    shape: Shape
    with_text: bool

    @property
    def size(self) -> int:
        """Bytes of quoted text."""
        quote = self.finding.quote
        return 0 if quote is None else 2 * (len(quote.old) + len(quote.new))


@dataclass(slots=True, eq=False)
class _State:
    buckets: dict[int, deque[list[int]]] = field(
        default_factory=lambda: {width: deque(maxlen=count) for width, count in WIDTHS.items()}
    )
    """By width: start (Unix seconds), calls, prompt tokens, and those read from a cache."""
    breaks: deque[Broken] = field(default_factory=deque)
    seen: tuple[float, Shape] | None = None
    size: int = 0

    def broke(self, one: Broken) -> None:
        self.breaks.append(one)
        self.size += one.size
        if len(self.breaks) > BREAKS:
            self.size -= self.breaks.popleft().size


class RouteLog:
    """An `Observer`. For one event loop."""

    hears: Final = frozenset({PrefixUse})

    def __init__(
        self, most: int = BYTES, clock: Callable[[], float] = time.time, routes: int = ROUTES
    ) -> None:
        self._most = most
        self._clock = clock
        self._count = routes
        self._routes: OrderedDict[Route, _State] = OrderedDict()
        self._size = 0

    @property
    def size(self) -> int:
        """Bytes of quoted text."""
        return self._size

    def __call__(self, event: Event, /) -> None:
        """Model calls ended; every other event is left alone."""
        if not isinstance(event, PrefixUse) or not event.tokens:
            return
        state, now = self._enter(event.tenant, event.route), self._clock()
        for width, buckets in state.buckets.items():
            start = int(now // width) * width
            # A clock that was set back adds to the newest bucket: buckets stay in order.
            if not buckets or buckets[-1][0] < start:
                buckets.append([start, 0, 0, 0])
            newest = buckets[-1]
            newest[1] += event.calls
            newest[2] += event.tokens
            newest[3] += min(event.cached, event.tokens)

    def examined(self, one: Examined) -> None:
        """The layout doctor looked at a prompt."""
        state, now = self._enter(one.tenant, one.route), self._clock()
        state.seen = now, one.shape
        if one.finding is not None:
            self._size -= state.size
            state.broke(Broken(now, one.finding, one.shape, one.with_text))
            self._size += state.size
            self._bound()

    def forget(self, tenant: str) -> None:
        """Forget all routes of a tenant."""
        for named in [one for one in self._routes if one[0] == tenant]:
            self._size -= self._routes.pop(named).size

    def forget_texts(self, keeping: Collection[str]) -> None:
        """Forget the breaks that were told with text, of all tenants but those whose policy lets
        texts be kept."""
        for (tenant, _), state in self._routes.items():
            if tenant not in keeping and any(one.with_text for one in state.breaks):
                self._size -= state.size
                state.size = 0
                state.breaks = deque(one for one in state.breaks if not one.with_text)

    def routes(self) -> list[dict[str, Any]]:
        """Each route's buckets of a day and how many breaks are kept, as JSON values."""
        return [
            {
                "tenant": tenant,
                "route": route,
                "buckets": list(state.buckets[600]),
                "breaks": len(state.breaks),
            }
            for (tenant, route), state in self._routes.items()
        ]

    def route(self, tenant: str, route: str) -> dict[str, Any] | None:
        """All that is known of one route, as JSON values; breaks newest first."""
        state = self._routes.get((tenant, route))
        if state is None:
            return None
        return {
            "buckets": {str(width): list(buckets) for width, buckets in state.buckets.items()},
            "breaks": [_told_break(one) for one in reversed(state.breaks)],
            "seen": None
            if state.seen is None
            else {"at": state.seen[0], **_told_shape(state.seen[1])},
        }

    def _enter(self, tenant: str, route: str) -> _State:
        named = (tenant, route)
        state = self._routes.get(named)
        if state is None:
            state = self._routes[named] = _State()
        self._routes.move_to_end(named)
        self._bound()
        return state

    def _bound(self) -> None:
        while len(self._routes) > 1 and (
            len(self._routes) > self._count or self._size > self._most
        ):
            _, gone = self._routes.popitem(last=False)
            self._size -= gone.size


def _told_break(one: Broken) -> Mapping[str, Any]:
    found = one.finding
    return {
        "at": one.at,
        "place": shown(found.level, found.place, found.char),
        "level": found.level.value,
        "cause": found.cause,
        "told": found.told,
        "fix": found.fix,
        "shared_tokens": found.shared_tokens,
        "lost_tokens": found.lost_tokens,
        "new": found.new,
        "quote": None if found.quote is None else [found.quote.old, found.quote.new],
        "start": 0 if found.quote is None else found.quote.start,
        "shape": _told_shape(one.shape),
    }


def _told_shape(shape: Shape) -> Mapping[str, Any]:
    stretches = [
        [one.level.value, one.kind, one.role, one.tokens, one.parts, one.mark]
        for one in shape.stretches
    ]
    return {**shape._asdict(), "stretches": stretches}

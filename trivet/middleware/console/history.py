"""What happened over the last day: sums of all processes in time buckets, at several widths.

Fed every few seconds with each process's row (`observe.figures`), from when the proxy starts. All
of it is bounded: some 500 buckets of one row each.
"""

from __future__ import annotations

import asyncio
import time
from array import array
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final, NamedTuple

from trivet.errors import CacheError
from trivet.middleware.admin.control import Control
from trivet.middleware.observe.figures import NAMES

PERIOD_S: Final = 5.0
_SOURCES: Final = 256
"""Processes whose last row is remembered; of workers that come and go the oldest are forgotten."""


class Range(NamedTuple):
    """How far back a page looks: `buckets` of `width` seconds."""

    width: int
    buckets: int


RANGES: Final = {
    "15m": Range(10, 90),
    "1h": Range(30, 120),
    "6h": Range(180, 120),
    "24h": Range(600, 144),
}


class Span(NamedTuple):
    """The buckets of one range, oldest first, the last one unfinished."""

    first: int
    """Unix time at which the first bucket begins, in seconds."""
    width: int
    """Seconds."""
    rows: list[Sequence[float]]


class _Ring:
    __slots__ = ("_buckets", "_range")

    def __init__(self, wanted: Range) -> None:
        self._range = wanted
        self._buckets: deque[tuple[int, array[float]]] = deque(maxlen=wanted.buckets)

    def add(self, now: float, row: Sequence[float]) -> None:
        start = _start(now, self._range.width)
        # A clock that was set back adds to the newest bucket: buckets stay in order.
        if not self._buckets or self._buckets[-1][0] < start:
            self._buckets.append((start, array("d", row)))
            return
        bucket = self._buckets[-1][1]
        for index, amount in enumerate(row):
            if amount:
                bucket[index] += amount

    def span(self, now: float) -> Span:
        width, count = self._range
        first = _start(now, width) - (count - 1) * width
        known = dict(self._buckets)
        nothing = array("d", [0.0] * len(NAMES))
        rows = [known.get(first + index * width, nothing) for index in range(count)]
        return Span(first, width, list(rows))


def _start(now: float, width: int) -> int:
    return int(now // width) * width


class History:
    """Sums over time. For one event loop."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._rings = {name: _Ring(wanted) for name, wanted in RANGES.items()}
        self._last: dict[int, Sequence[float]] = {}
        self.began = clock()
        """Unix time from which something is known."""

    def add(self, source: int, row: Sequence[float]) -> None:
        """The sums of a process by now. `source` tells processes apart.

        What is there of a new process happened since the last time. Sums that shrank are those of
        another process with the same number.
        """
        before = self._last.pop(source, None)
        self._last[source] = row
        if len(self._last) > _SOURCES:
            del self._last[next(iter(self._last))]
        grown = row
        if before is not None and all(old <= new for old, new in zip(before, row, strict=True)):
            grown = [new - old for old, new in zip(before, row, strict=True)]
        if any(grown):
            now = self._clock()
            for ring in self._rings.values():
                ring.add(now, grown)

    def span(self, name: str) -> Span:
        """The buckets of one of `RANGES`. Raises `KeyError`."""
        return self._rings[name].span(self._clock())


@asynccontextmanager
async def kept(history: History, control: Control) -> AsyncIterator[None]:
    """Feed `history` meanwhile."""
    keeping = asyncio.create_task(_keep(history, control), name="trivet-history")
    try:
        yield
    finally:
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)


async def _keep(history: History, control: Control) -> None:
    while True:
        await asyncio.sleep(PERIOD_S)
        await sample(history, control)


async def sample(history: History, control: Control) -> None:
    """Feed `history` once. Processes that do not answer are asked again the next time."""
    with suppress(CacheError):
        for source, row in await control.tell("figures"):
            history.add(source, row)

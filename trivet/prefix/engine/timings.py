"""How long callers wait for tokens, counted as Prometheus histograms."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable
from itertools import accumulate

_FIRST = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0)
_BETWEEN = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.5)


class Histogram:
    """Counts of seconds by bucket; `bounds` are inclusive."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.sum = 0.0
        self._counts = [0] * (len(bounds) + 1)

    def observe(self, seconds: float, times: int = 1) -> None:
        """Count `times` waits of `seconds`."""
        self._counts[bisect_left(self.bounds, seconds)] += times
        self.sum += seconds * times

    def cumulative(self) -> list[tuple[str, float]]:
        """Each bucket's bound, and how many were not above it."""
        bounds = [*map(str, self.bounds), "+Inf"]
        return list(zip(bounds, accumulate(self._counts), strict=True))


class Timings:
    """Waits of all requests of one server."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.first_token = Histogram(_FIRST)
        """From a request's arrival to its answer's first token."""
        self.between_tokens = Histogram(_BETWEEN)
        self.clock = clock


class Stopwatch:
    """Times one answer, which was asked for at `began` by the clock of `timings`."""

    def __init__(self, timings: Timings, began: float) -> None:
        self._timings = timings
        self._last = began
        self._tokens = 0

    def tokens(self, total: int) -> None:
        """The answer has `total` tokens now."""
        new = total - self._tokens
        if new <= 0:
            return
        now = self._timings.clock()
        waited, self._last = now - self._last, now
        if not self._tokens:
            self._timings.first_token.observe(waited)
            new -= 1
            waited = 0.0
        if new:
            self._timings.between_tokens.observe(waited / new, new)
        self._tokens = total

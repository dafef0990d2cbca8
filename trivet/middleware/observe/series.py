"""What a process counts in: figures by label values, bounded whatever comes."""

from __future__ import annotations

import re
from bisect import bisect_left

from trivet.metric_names import Metric
from trivet.middleware.observe.exposition import BOUNDS

OTHER = "other"
"""The label value of whatever is beyond a bound."""
MOST_SERIES = 20_000
_NAME = re.compile(r"[A-Za-z0-9._:/-]{0,64}")
Labels = tuple[str, ...]


class Names:
    """At most `limit` distinct label values that look like names; the rest are `OTHER`.

    The look is checked so that a value which was taken from a request by mistake (a sentence of a
    prompt, an error text) cannot become a label.
    """

    __slots__ = ("_known", "_limit")

    def __init__(self, limit: int) -> None:
        self._known: dict[str, str] = {}
        self._limit = limit

    def __call__(self, value: str) -> str:
        known = self._known.get(value)
        if known is not None:
            return known
        if len(self._known) >= self._limit or not _NAME.fullmatch(value):
            return OTHER
        self._known[value] = value
        return value


class Series:
    """The figures of one metric: a cell, which is a list to be changed in place, for each set of
    label values. Counters and gauges have one number; histograms a count for each bucket, the
    count beyond the last, and the sum."""

    __slots__ = ("_bounds", "_overflow", "_width", "cells")

    def __init__(self, metric: Metric) -> None:
        self._bounds = BOUNDS.get(metric.name, ())
        self._width = len(self._bounds) + 2 if self._bounds else 1
        self._overflow = (OTHER,) * len(metric.labels)
        self.cells: dict[Labels, list[float]] = {}

    def cell(self, *labels: str) -> list[float]:
        """The cell for these label values; one shared cell for all beyond `MOST_SERIES`."""
        cell = self.cells.get(labels)
        if cell is None:
            if len(self.cells) >= MOST_SERIES:
                labels = self._overflow
            cell = self.cells.setdefault(labels, [0] * self._width)
        return cell

    def add(self, amount: float, *labels: str) -> None:
        """Count `amount`."""
        self.cell(*labels)[0] += amount

    def observe(self, seconds: float, *labels: str) -> None:
        """Note one duration."""
        observe(self.cell(*labels), self._bounds, seconds)


def observe(cell: list[float], bounds: tuple[float, ...], seconds: float) -> None:
    cell[bisect_left(bounds, seconds)] += 1
    cell[-1] += seconds

"""Geometry of the report's figures: rates and thresholds become points of an SVG."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from trivet.eval.sweep import RocPoint, SweepPoint

WIDTH, HEIGHT = 460, 300
LEFT, RIGHT, TOP, BOTTOM = 52, 16, 14, 44
_STEPS = tuple(base * 10.0**power for power in range(-6, 9) for base in (1, 2, 5))
_MOST_POINTS = 400
"""Of a curve: more cannot be told apart at this size."""


@dataclass(frozen=True, slots=True)
class Curve:
    """A line in a figure. `style` is a class of the style sheet; `points` an SVG point list."""

    name: str
    style: str
    points: str


@dataclass(frozen=True, slots=True)
class Tick:
    """A mark on an axis, at `at` units of the SVG."""

    at: float
    label: str


@dataclass(frozen=True, slots=True)
class Figure:
    """Curves over two axes."""

    title: str
    caption: str
    x_label: str
    y_label: str
    curves: tuple[Curve, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    diagonal: bool = False
    """A line from corner to corner: what guessing reaches."""


@dataclass(frozen=True, slots=True)
class Axis:
    """Values from `low` to `high` on a side of the figure."""

    low: float
    high: float
    label: Callable[[float], str]
    vertical: bool = False

    def place(self, value: float) -> float:
        """The position in units of the SVG, rounded to a tenth."""
        share = (value - self.low) / (self.high - self.low)
        if self.vertical:
            return round(HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM), 1)
        return round(LEFT + share * (WIDTH - LEFT - RIGHT), 1)

    def ticks(self) -> tuple[Tick, ...]:
        """Marks at round values, at most seven of them."""
        step = next(one for one in _STEPS if (self.high - self.low) / one <= 6.001)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        values = [at * step for at in range(first, last + 1)]
        return tuple(Tick(self.place(value), self.label(value)) for value in values)


def percent(value: float) -> str:
    """A share as text, with a decimal only where it says something."""
    told = f"{value * 100:.1f}"
    return told.removesuffix(".0") + "%"


def rate_axis(high: float = 1.0, *, vertical: bool = True) -> Axis:
    """From 0 to a share."""
    return Axis(0.0, high, percent, vertical)


def threshold_axis(points: Sequence[SweepPoint]) -> Axis:
    """Over the thresholds of the points; a little wider where there is only one."""
    low, high = min(p.threshold for p in points), max(p.threshold for p in points)
    if high - low < 1e-5:
        low, high = low - 0.05, high + 0.05
    return Axis(low, high, lambda value: f"{value:.4g}")


def round_up(rate: float) -> float:
    """The next of a few readable ends for an axis of rates."""
    ends = (0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8)
    return next((end for end in ends if rate <= end), 1.0)


def curve(name: str, style: str, values: Iterable[tuple[float, float]], axes: _Axes) -> Curve:
    """Place the values; a curve of very many is thinned evenly, its ends kept."""
    placed = list(values)
    if len(placed) > _MOST_POINTS:
        step = (len(placed) - 1) / (_MOST_POINTS - 1)
        placed = [placed[round(at * step)] for at in range(_MOST_POINTS)]
    x, y = axes
    return Curve(name, style, " ".join(f"{x.place(a):g},{y.place(b):g}" for a, b in placed))


_Axes = tuple[Axis, Axis]


def tradeoff(points: Sequence[SweepPoint]) -> Figure:
    """Coverage and false hits among hits against the threshold."""
    axes = threshold_axis(points), rate_axis()
    served = [p for p in points if p.hits + p.false_hits]
    return Figure(
        title="What a threshold serves",
        caption="Share of the same pairs that is served, and share of the served that is wrong. "
        "The distance to the dashed line is what so few pairs leave open.",
        x_label="threshold",
        y_label="share",
        curves=(
            curve("same pairs served", "good", ((p.threshold, p.coverage) for p in points), axes),
            curve(
                "false hits among served",
                "bad",
                ((p.threshold, p.false_hit_rate) for p in served),
                axes,
            ),
            curve("its upper bound", "bound", ((p.threshold, p.upper_bound) for p in points), axes),
        ),
        x_ticks=axes[0].ticks(),
        y_ticks=axes[1].ticks(),
    )


def denominators(points: Sequence[SweepPoint]) -> Figure:
    """False hits in both denominators against the threshold."""
    served = [p for p in points if p.hits + p.false_hits]
    rates = [p.false_hit_rate for p in served] + [p.false_over_all for p in points]
    axes = threshold_axis(points), rate_axis(round_up(max(rates, default=1.0)))
    return Figure(
        title="False hits, counted twice",
        caption="The same false hits over what is served and over all pairs. The second looks "
        "small where little is served; the first is what a caller meets.",
        x_label="threshold",
        y_label="false hits",
        curves=(
            curve(
                "of what is served", "bad", ((p.threshold, p.false_hit_rate) for p in served), axes
            ),
            curve("of all pairs", "plain", ((p.threshold, p.false_over_all) for p in points), axes),
        ),
        x_ticks=axes[0].ticks(),
        y_ticks=axes[1].ticks(),
    )


def roc(points: Sequence[RocPoint], auc: str) -> Figure:
    """Recall over the false-positive rate."""
    axes = rate_axis(vertical=False), rate_axis()
    values = ((p.false_positive_rate, p.recall) for p in points)
    return Figure(
        title=f"ROC, area {auc}",
        caption="Same pairs served against different pairs served. The dotted line is guessing.",
        x_label="different pairs served",
        y_label="same pairs served",
        curves=(curve("chain", "good", values, axes),),
        x_ticks=axes[0].ticks(),
        y_ticks=axes[1].ticks(),
        diagonal=True,
    )


def precision_recall(points: Sequence[RocPoint], average: str) -> Figure:
    """Precision over recall."""
    axes = rate_axis(vertical=False), rate_axis()
    values = ((p.recall, p.precision) for p in points[1:])
    return Figure(
        title=f"Precision and recall, average precision {average}",
        caption="Right answers among what is served, against how many of the same pairs that is.",
        x_label="same pairs served",
        y_label="right among served",
        curves=(curve("chain", "good", values, axes),),
        x_ticks=axes[0].ticks(),
        y_ticks=axes[1].ticks(),
    )

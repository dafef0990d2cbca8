"""The sweep as one HTML file: inline SVG, no script, nothing from outside."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trivet.errors import ConfigError, Problem
from trivet.eval import figures
from trivet.eval.sweep import SweepPoint, operating_points
from trivet.eval.sweep_result import SweepResult, threshold_labels
from trivet.eval.whole_file import write_whole

_PANELS = 3
"""Thresholds that the bars of the slices are drawn at."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One slice at one threshold: how much of it is served, and whether that is right."""

    count: str
    share: float
    """In percent."""
    good: bool


def write_report(result: SweepResult, path: Path) -> None:
    """Write the report, whole or not at all. Raises `ConfigError` where it cannot be written."""
    write_whole(path, render(result))


def render(result: SweepResult) -> str:
    """The report as HTML. Every text of the pairs is escaped."""
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError:
        raise ConfigError(
            Problem("jinja2", 0, 0, "", "is not installed: pip install 'trivet[report]'")
        ) from None
    environment = Environment(
        loader=PackageLoader("trivet.eval", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["percent"] = figures.percent
    environment.filters["tenths"] = "{:.1%}".format
    environment.globals["frame"] = {
        name.lower(): getattr(figures, name)
        for name in ("WIDTH", "HEIGHT", "LEFT", "RIGHT", "TOP", "BOTTOM")
    }
    return environment.get_template("sweep.html.j2").render(_shown(result))


def _shown(result: SweepResult) -> dict[str, Any]:
    chosen = _panels(result.points)
    labels = threshold_labels(result.points)
    return {
        "result": result,
        "subject": result.subject,
        "figures": _figures(result),
        "labels": labels,
        "panels": [labels[at] for at in chosen],
        "bars": _bars(result, chosen),
        "auc": _decimal(result.auc),
        "average": _decimal(result.average_precision),
    }


def _figures(result: SweepResult) -> list[figures.Figure]:
    found = []
    if result.curve:
        found += [figures.tradeoff(result.curve), figures.denominators(result.curve)]
    points = operating_points(result.rows)
    if result.auc is not None:
        found.append(figures.roc(points, _decimal(result.auc)))
    if result.average_precision is not None:
        found.append(figures.precision_recall(points, _decimal(result.average_precision)))
    return found


def _panels(points: tuple[SweepPoint, ...]) -> list[int]:
    count = min(_PANELS, len(points))
    if count < 2:
        return list(range(count))
    return [round(at * (len(points) - 1) / (count + 1)) for at in range(1, count + 1)]


def _bars(result: SweepResult, chosen: list[int]) -> list[tuple[str, str, list[Bar]]]:
    """Lines of the slice chart: name, `same` or `different`, and a bar for each panel."""
    lines = []
    for name, points in sorted(result.slices.items()):
        at = [points[one] for one in chosen]
        if at and at[0].same:
            bars = [Bar(f"{p.hits}/{p.same}", _share(p.hits, p.same), True) for p in at]
            lines.append((name, "same", bars))
        if at and at[0].different:
            bars = [
                Bar(f"{p.false_hits}/{p.different}", _share(p.false_hits, p.different), False)
                for p in at
            ]
            lines.append((name, "different", bars))
    return lines


def _share(part: int, whole: int) -> float:
    return round(100 * part / whole, 1)


def _decimal(value: float | None) -> str:
    return "not defined" if value is None else f"{value:.3f}"

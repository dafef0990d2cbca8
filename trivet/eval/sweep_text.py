"""The sweep as text for a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import fill

from trivet.eval.counted import counted
from trivet.eval.plot import plot
from trivet.eval.side_by_side import one_line, shown
from trivet.eval.sweep import SweepPoint
from trivet.eval.sweep_result import SweepResult, threshold_labels

_WIDTH = 79
_COLUMNS = 5
"""Thresholds beside each other in the table of slices."""


def as_text(result: SweepResult) -> str:
    """The counts, the nearest different pairs, the risk in both denominators, slices, plot."""
    parts = [
        _counts(result.points),
        _nearest(result),
        _risks(result),
        _slices(result),
        plot(result.curve),
        _words(result),
    ]
    return shown("\n\n".join(part for part in parts if part))


def _counts(points: Sequence[SweepPoint]) -> str:
    if not points:
        return "No pair has a score, so there is no threshold to look at."
    same, different = points[0].same, points[0].different
    first = f"  {'hits on same intent':>{18 + len(str(same))}}"
    second = f"  {'false hits':>{9 + len(str(different))}}"
    lines = [f"{'threshold':>9}{first}{second}  {'precision':>9}"]
    for point, threshold in zip(points, threshold_labels(points), strict=True):
        width = len(str(same)) + 9
        lines.append(
            f"{threshold:>9}  {point.hits:>{width}}/{same} ({point.coverage:4.0%})"
            f"  {point.false_hits:>{len(str(different)) + 3}}/{different}"
            f"  {point.precision:>9.0%}"
        )
    return "\n".join(lines)


def _nearest(result: SweepResult) -> str:
    shown = result.nearest[: result.named]
    if not shown:
        return ""
    lines = [f"{near.score:.2f}  {_said(near.a)}  ->  {_said(near.b)}" for near in shown]
    return "\n".join(["nearest different-intent pairs:", *lines])


def _said(text: str) -> str:
    return f"'{one_line(text)}'"


def _risks(result: SweepResult) -> str:
    if not result.points:
        return ""
    bound = f"{result.confidence:.0%} bound"
    lines = [
        "false hits, of what is served and of all pairs:",
        f"{'threshold':>9}  {'served':>8}  {'of served':>9}  {bound:>9}  {'of all':>7}",
    ]
    for point, threshold in zip(result.points, threshold_labels(result.points), strict=True):
        served = point.hits + point.false_hits
        of_served = f"{point.false_hit_rate:.1%}" if served else "-"
        lines.append(
            f"{threshold:>9}  {served:>8}  {of_served:>9}  {point.upper_bound:>9.1%}"
            f"  {point.false_over_all:>7.1%}"
        )
    return "\n".join(lines)


def _slices(result: SweepResult) -> str:
    if not result.slices or not result.points:
        return ""
    shown = _spread(len(result.points))
    labels = threshold_labels(result.points)
    head = "".join(f"{labels[at]:>10}" for at in shown)
    lines = ["served by slice, at each threshold:", f"{'':28}{head}"]
    for name, points in sorted(result.slices.items(), key=lambda item: item[0]):
        lines += _slice_lines(name, [points[at] for at in shown])
    return "\n".join(lines)


def _slice_lines(name: str, points: Sequence[SweepPoint]) -> Iterator[str]:
    if points[0].same:
        cells = "".join(f"{f'{point.hits}/{point.same}':>10}" for point in points)
        yield f"{one_line(name)[:18]:<19}{'same':<9}{cells}"
    if points[0].different:
        cells = "".join(f"{f'{point.false_hits}/{point.different}':>10}" for point in points)
        yield f"{one_line(name)[:18]:<19}{'different':<9}{cells}"


def _spread(count: int) -> list[int]:
    if count <= _COLUMNS:
        return list(range(count))
    return [round(at * (count - 1) / (_COLUMNS - 1)) for at in range(_COLUMNS)]


def _words(result: SweepResult) -> str:
    subject = result.subject
    gate = "" if subject.gate is None else f", gate open to {', '.join(subject.gate)}"
    pairs = counted(len(result.rows), "pair")
    lines = [f"{pairs} of {one_line(subject.file)} (sha256 {subject.dataset[:12]})"]
    lines.append(f"embedder {one_line(subject.embedder)}, chain {subject.chain}{gate}")
    if subject.dropped is not None:
        lines.append(fill(subject.dropped.text, _WIDTH, subsequent_indent="  "))
    lines.append(
        f"ROC AUC {_decimal(result.auc)}, average precision {_decimal(result.average_precision)}"
    )
    lines += _ceilings(result)
    if result.unscored:
        reasons = ", ".join(f"{reason} {count}" for reason, count in result.unscored.items())
        lines.append(f"never served, whatever the threshold: {reasons}")
    return "\n".join([*lines, *(f"note: {note}" for note in subject.notes)])


def _ceilings(result: SweepResult) -> Iterator[str]:
    yield "same pairs served, at best and in hindsight, by false hits among served:"
    for target, point in result.ceilings.items():
        if point is None:
            yield f"  at most {target:.0%}: no threshold does that"
        else:
            yield (
                f"  at most {target:.0%}: {point.coverage:.1%}, from {point.threshold:.4f} on"
                f" ({point.false_hits} false of {point.hits + point.false_hits})"
            )


def _decimal(value: float | None) -> str:
    return "not defined" if value is None else f"{value:.3f}"

"""A plot for the terminal: coverage and false-hit rate against the threshold. Plain ASCII."""

from __future__ import annotations

from collections.abc import Sequence

from trivet.eval.sweep import SweepPoint

_WIDTH, _HEIGHT = 70, 16
COVERAGE, FALSE, BOTH = "o", "x", "*"


def plot(points: Sequence[SweepPoint]) -> str:
    """Rates from 0 to 100 % over thresholds, within 80 columns; empty below two thresholds.

    A threshold that serves nothing has no false-hit rate and gets no mark for it.
    """
    if len({point.threshold for point in points}) < 2:
        return ""
    low, high = min(p.threshold for p in points), max(p.threshold for p in points)
    grid = [[" "] * _WIDTH for _ in range(_HEIGHT + 1)]
    for point in points:
        column = round((point.threshold - low) / (high - low) * (_WIDTH - 1))
        _mark(grid, column, point.coverage, COVERAGE)
        if point.hits + point.false_hits:
            _mark(grid, column, point.false_hit_rate, FALSE)
    lines = [f"{_axis(line)} |{''.join(cells).rstrip()}" for line, cells in enumerate(grid)]
    scale = f"{low:.2f}" + f"{'threshold':^{_WIDTH - 8}}" + f"{high:.2f}"
    return "\n".join(
        [
            f"{COVERAGE} share of the same pairs served   {FALSE} false hits among the served"
            f"   {BOTH} both",
            *lines,
            "      +" + "-" * _WIDTH,
            "       " + scale,
        ]
    )


def _mark(grid: list[list[str]], column: int, rate: float, sign: str) -> None:
    line = grid[_HEIGHT - round(rate * _HEIGHT)]
    line[column] = sign if line[column] in (" ", sign) else BOTH


def _axis(line: int) -> str:
    """A label on every fourth line."""
    return f"{1 - line / _HEIGHT:>4.0%} " if line % 4 == 0 else " " * 5

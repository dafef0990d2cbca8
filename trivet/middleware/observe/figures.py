"""One process's sums for the console: a fixed row of numbers out of the metrics.

All of them only grow while the process lives, so two rows of one process tell what happened between
them, and rows of several processes are added up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, get_args

from trivet.metric_names import (
    MODEL_TOKENS,
    MONEY,
    OWN_SECONDS,
    REQUESTS,
    TOKENS_SAVED,
    UPSTREAM_SECONDS,
)
from trivet.middleware.observe.exposition import BOUNDS
from trivet.middleware.observe.metrics import PrometheusObserver
from trivet.prefix.markers.money import Post
from trivet.telemetry import Outcome

Row = list[float]
"""A number for each name of `NAMES`."""

_TIERS: Final = ("exact", "semantic", "prefix", "none")
OUTCOMES: Final[tuple[str, ...]] = get_args(Outcome)
POSTS: Final[tuple[str, ...]] = get_args(Post)
TOKENS: Final = ("input", "output", "cache_read", "cache_write")
_FROM_CACHE: Final = ("hit", "stale")
OWN_BOUNDS: Final = BOUNDS[OWN_SECONDS.name]
UPSTREAM_BOUNDS: Final = BOUNDS[UPSTREAM_SECONDS.name]


def _names() -> Iterable[str]:
    for tier in _TIERS:
        yield from (f"requests:{tier}:{outcome}" for outcome in OUTCOMES)
    yield "failed"
    yield from (f"tokens:{kind}" for kind in TOKENS)
    yield from ("saved-tokens:input", "saved-tokens:output")
    yield from (f"money:{post}" for post in POSTS)
    # Of histograms: the count of each bucket, of those beyond the last, and the sum.
    for name in ("own-hit", "own-other"):
        yield from (f"{name}:{index}" for index in range(len(OWN_BOUNDS) + 2))
    yield from (f"upstream:{index}" for index in range(len(UPSTREAM_BOUNDS) + 2))


NAMES: Final = tuple(_names())
"""`requests:<tier>:<outcome>`; `failed`, those answered 500 and above; `tokens:<kind>` that models
were billed for; `saved-tokens:<kind>`; `money:<post>` in US dollars; the histograms `own-hit`,
`own-other` (our own time of hits, and of the rest) and `upstream`, in seconds."""
AT: Final[Mapping[str, int]] = {name: index for index, name in enumerate(NAMES)}
"""Where each name's number is in a row."""


def row_of(metrics: PrometheusObserver) -> Row:
    """The sums by now."""
    metrics.settle()
    row: Row = [0.0] * len(NAMES)
    for (_, _, tier, outcome, _, status), cell in metrics.cells(REQUESTS).items():
        _add(row, f"requests:{tier}:{outcome}", cell[0])
        if status.startswith("5"):
            row[AT["failed"]] += cell[0]
    for (*_, kind), cell in metrics.cells(MODEL_TOKENS).items():
        _add(row, f"tokens:{kind}", cell[0])
    for (*_, kind), cell in metrics.cells(TOKENS_SAVED).items():
        _add(row, f"saved-tokens:{kind}", cell[0])
    for (*_, post), cell in metrics.cells(MONEY).items():
        _add(row, f"money:{post}", cell[0])
    for (_, outcome), cell in metrics.cells(OWN_SECONDS).items():
        _add_all(row, "own-hit" if outcome in _FROM_CACHE else "own-other", cell)
    for cell in metrics.cells(UPSTREAM_SECONDS).values():
        _add_all(row, "upstream", cell)
    return row


def _add(row: Row, name: str, amount: float) -> None:
    at = AT.get(name)
    if at is not None:
        row[at] += amount


def _add_all(row: Row, name: str, cell: list[float]) -> None:
    first = AT[f"{name}:0"]
    for index, amount in enumerate(cell):
        row[first + index] += amount

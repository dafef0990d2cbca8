"""Which labelled pairs choose, which certify, and which are held out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from trivet.eval.bounds import hits_needed
from trivet.eval.pairs import LabelledPair
from trivet.eval.split import set_aside

AMPLE = 7
"""Certifying pairs, in multiples of the fewest hits that certify, that have to be there."""
ROOM = 3
"""In the same multiples: from so many pairs on, those that no tested threshold serves pick the
chain."""
_MANY = 40
"""Pairs, in the same multiples, from which on those set aside also say where the tests start."""
SHARE = 0.2
"""Share of the pairs that is set aside for choosing."""
_ENOUGH = 30
"""The fewest pairs that choose anything."""


class Promise(NamedTuple):
    """What is to be certified. Both are fractions."""

    target: float
    confidence: float


@dataclass(frozen=True, slots=True)
class Parts:
    """Places of the pairs. Every pair is in one part; questions and groups are not split."""

    choosing: tuple[int, ...]
    certifying: tuple[int, ...]
    held_out: tuple[int, ...]
    learned: bool
    """Whether the choosing pairs say where the tests start."""

    @property
    def scale(self) -> float:
        """Certifying pairs for each choosing one."""
        return len(self.certifying) / len(self.choosing)


def parted(
    pairs: Sequence[LabelledPair], promise: Promise, holdout: float, *, several: bool
) -> Parts:
    """Divide the pairs. Their number and their questions decide, their labels have no part in it.

    `several`: there is more than one chain to choose from.
    """
    held = set_aside(pairs, holdout, "holdout")
    left = [at for at, out in enumerate(held) if not out]
    fewest = hits_needed(*promise)
    learned = len(left) >= _MANY * fewest
    choosing: set[int] = set()
    if several or learned:
        choosing = _choosing(pairs, left, AMPLE * fewest)
    return Parts(
        tuple(sorted(choosing)),
        tuple(at for at in left if at not in choosing),
        tuple(at for at, out in enumerate(held) if out),
        learned and bool(choosing),
    )


def enough_to_part(promise: Promise) -> int:
    """From how many pairs on some are set aside for choosing."""
    return math.ceil(AMPLE * hits_needed(*promise) / (1 - SHARE))


def _choosing(pairs: Sequence[LabelledPair], left: Sequence[int], certifying: int) -> set[int]:
    if (1 - SHARE) * len(left) < certifying:
        return set()
    marks = set_aside([pairs[at] for at in left], SHARE, "choose")
    found = {at for at, mark in zip(left, marks, strict=True) if mark}
    return found if len(found) >= _ENOUGH else set()

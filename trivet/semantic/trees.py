"""Gradient boosted trees as arrays: what `training/verifier.py` exports and numpy evaluates.

Each inner node has a mask of the leaves that stay reachable when its test fails; the lowest bit
that is left of all masks of a tree is its leaf (Lucchese et al., QuickScorer, SIGIR 2015).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAX_LEAVES = 16
_ALL = np.uint16(0xFFFF)
_BATCH = 64
"""Rows evaluated together: bounds the memory."""


@dataclass(frozen=True, slots=True)
class Trees:
    """Trees of at most `MAX_LEAVES` leaves, their leaves numbered from left to right."""

    feature: NDArray[np.intp]
    """Of shape (nodes, trees); trees with fewer nodes are filled up with tests that hold."""
    threshold: NDArray[np.float32]
    """A test holds where the feature is at most this."""
    mask: NDArray[np.uint16]
    value: NDArray[np.float32]
    """Log odds, of shape (trees, leaves)."""
    baseline: float

    def margin(self, rows: NDArray[np.float32]) -> NDArray[np.float64]:
        """Log odds for rows of shape (n, features)."""
        parts = [self._margin(rows[at : at + _BATCH]) for at in range(0, len(rows), _BATCH)]
        return np.concatenate(parts) if parts else np.zeros(0)

    def _margin(self, rows: NDArray[np.float32]) -> NDArray[np.float64]:
        holds = np.take(rows, self.feature, axis=1) <= self.threshold
        left = np.bitwise_and.reduce(np.where(holds, _ALL, self.mask), axis=1)
        leaf = _LOWEST[left & -left]
        values = self.value[np.arange(len(self.value)), leaf]
        return np.asarray(self.baseline + values.sum(axis=1, dtype=np.float64))

    def arrays(self) -> dict[str, Any]:
        """What `from_arrays` reads back, small."""
        return {
            "feature": self.feature.astype(np.uint8),
            "threshold": self.threshold,
            "mask": self.mask,
            "value": self.value.astype(np.float16),
            "baseline": self.baseline,
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Trees:
        """Raises `KeyError` if an array is missing."""
        return cls(
            feature=np.ascontiguousarray(arrays["feature"], dtype=np.intp),
            threshold=np.asarray(arrays["threshold"], dtype=np.float32),
            mask=np.asarray(arrays["mask"], dtype=np.uint16),
            value=np.asarray(arrays["value"], dtype=np.float32),
            baseline=float(arrays["baseline"]),
        )


def _lowest_bits() -> NDArray[np.uint8]:
    """The place of the bit of each power of two; 0 elsewhere."""
    table = np.zeros(1 << MAX_LEAVES, np.uint8)
    table[1 << np.arange(MAX_LEAVES)] = np.arange(MAX_LEAVES)
    return table


_LOWEST = _lowest_bits()

"""Gradient boosted trees as arrays: what `training/verifier.py` exports and numpy evaluates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Trees:
    """All nodes of all trees in one row; a leaf is its own child."""

    feature: NDArray[np.int16]
    threshold: NDArray[np.float32]
    left: NDArray[np.int32]
    right: NDArray[np.int32]
    value: NDArray[np.float32]
    roots: NDArray[np.int32]
    depth: int
    baseline: float

    def margin(self, rows: NDArray[np.float32]) -> NDArray[np.float64]:
        """Log odds for rows of shape (n, features)."""
        node = np.broadcast_to(self.roots, (len(rows), len(self.roots)))
        line = np.arange(len(rows))[:, None]
        for _ in range(self.depth):
            goes_left = rows[line, self.feature[node]] <= self.threshold[node]
            node = np.where(goes_left, self.left[node], self.right[node])
        return np.asarray(self.baseline + self.value[node].sum(axis=1, dtype=np.float64))

    def arrays(self) -> dict[str, Any]:
        """What `from_arrays` reads back."""
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Trees:
        """Raises `KeyError` if an array is missing."""
        return cls(
            feature=arrays["feature"],
            threshold=arrays["threshold"],
            left=arrays["left"],
            right=arrays["right"],
            value=arrays["value"],
            roots=arrays["roots"],
            depth=int(arrays["depth"]),
            baseline=float(arrays["baseline"]),
        )

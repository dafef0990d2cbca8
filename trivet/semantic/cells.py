"""The accelerator of a large partition: a FAISS inverted file over the rows of a matrix.

Vectors are sorted into cells by k-means and kept there as 8-bit codes; a search reads the cells
nearest to the question and proposes rows, and the caller compares those exactly. Imports faiss,
which the extra `semantic` installs: import this module where it is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import faiss
import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from trivet.semantic.types import Vectors

_Library: Any = faiss
_PROBES = 16
"""Cells that a search reads."""
_SAMPLE = 32
"""Training vectors a cell, at most."""
_ROUNDS = 6


class Cells:
    """Trained for about `size` rows. `train` and `assign` may run in another thread."""

    def __init__(self, dimension: int, size: int) -> None:
        self.size = size
        count = 1 << min(round(np.log2(2.5 * size**0.5)), size.bit_length() - 1)
        self._quantizer = faiss.IndexFlatIP(dimension)
        self._faiss = faiss.IndexIVFScalarQuantizer(
            self._quantizer,
            dimension,
            count,
            faiss.ScalarQuantizer.QT_8bit,
            faiss.METRIC_INNER_PRODUCT,
        )
        self._faiss.nprobe = _PROBES
        self._faiss.cp.niter = _ROUNDS
        self._faiss.cp.min_points_per_centroid = 1
        self._faiss.cp.max_points_per_centroid = _SAMPLE
        self._cell: NDArray[np.int32] = np.full(0, -1, np.int32)

    def train(self, matrix: Vectors, count: int) -> None:
        """Learn the cells from a sample of the first `count` rows.

        Rows may change meanwhile: a torn row among thousands moves no cell by much.
        """
        faiss.omp_set_num_threads(1)
        wanted = min(count, _SAMPLE * self._faiss.nlist)
        rows = np.random.default_rng(0).choice(count, wanted, replace=False)
        rows.sort()
        self._faiss.train(np.ascontiguousarray(matrix[rows]))
        self._faiss.set_direct_map_type(_Library.DirectMap.Hashtable)

    def assign(self, vectors: Vectors) -> NDArray[np.int64]:
        """The cell of each vector. Only reads."""
        faiss.omp_set_num_threads(1)
        found: NDArray[np.int64] = self._quantizer.search(vectors, 1)[1][:, 0]
        return found

    def put(self, rows: NDArray[np.int64], vectors: Vectors, cells: NDArray[np.int64]) -> None:
        """Take rows in that are not in."""
        self.reserve(int(rows.max()) + 1)
        vectors = np.ascontiguousarray(vectors)
        self._faiss.add_core(
            len(rows),
            faiss.swig_ptr(vectors),
            faiss.swig_ptr(rows),
            faiss.swig_ptr(cells),
        )
        self._cell[rows] = cells

    def put_one(self, row: int, vector: Vectors) -> None:
        """Take one row in, in place of what was there."""
        self.take_out(row)
        one = vector.reshape(1, -1)
        self.put(np.array([row], np.int64), one, self.assign(one))

    def take_out(self, *rows: int) -> None:
        """Let rows go; those that are not in are passed over."""
        gone = np.array([row for row in set(rows) if self.holds(row)], np.int64)
        if len(gone):
            self._faiss.remove_ids(faiss.IDSelectorArray(len(gone), faiss.swig_ptr(gone)))
            self._cell[gone] = -1

    def move(self, row: int, last: int, vector: Vectors) -> None:
        """`row` left, and `last`, whose content is `vector`, took its place."""
        cell = int(self._cell[last]) if row != last and self.holds(last) else -1
        self.take_out(row, last)
        if cell >= 0:
            self.put(np.array([row], np.int64), vector.reshape(1, -1), np.array([cell], np.int64))

    def holds(self, row: int) -> bool:
        """Whether a row is in."""
        return row < len(self._cell) and self._cell[row] >= 0

    def missing(self, count: int, most: int) -> NDArray[np.int64]:
        """Up to `most` of the first `count` rows that are not in."""
        self.reserve(count)
        return np.flatnonzero(self._cell[:count] < 0)[:most]

    def propose(self, vector: Vectors, count: int) -> NDArray[np.int64]:
        """About the `count` nearest rows, as far as the cells read hold so many."""
        found: NDArray[np.int64] = self._faiss.search(vector.reshape(1, -1), count)[1][0]
        return found[found >= 0]

    def reserve(self, count: int) -> None:
        """Make room to note the cells of so many rows."""
        if count > len(self._cell):
            grown = np.full(max(count, len(self._cell) * 5 // 4), -1, np.int32)
            grown[: len(self._cell)] = self._cell
            self._cell = grown

    def check_integrity(self, count: int) -> None:
        """Assert that only the first `count` rows are in, each once, in its cell; for tests."""
        assert int((self._cell >= 0).sum()) == self._faiss.ntotal
        assert not (self._cell[count:] >= 0).any()
        lists: Any = self._faiss.invlists
        for cell in range(self._faiss.nlist):
            size = lists.list_size(cell)
            rows = faiss.rev_swig_ptr(lists.get_ids(cell), size).copy() if size else np.empty(0)
            assert all(self._cell[int(row)] == cell for row in rows)

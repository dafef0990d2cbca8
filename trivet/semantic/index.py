"""The vectors of one partition: exact search while it is small, FAISS proposals beyond.

All vectors lie in one float32 matrix, and every cosine that leaves here is computed from it, so
that a score does not depend on how its row was found. From `EXACT_MOST` rows on, an inverted file
(`cells`) proposes the rows to compare. It is trained and filled by jobs that a thread runs
(`due`); until it holds every row, the exact search goes on. It is trained anew when the partition
has four times as many rows. Rows are taken out of it when they leave, so that nothing dead piles
up; what expired is passed over, and the exact search is asked where too little was left.

Why these (`docs/semantic-index.md`, `python -m bench --only search`): numpy is as fast as
`IndexFlatIP` up to the 8,192 rows where it is used, and takes no FAISS object for a handful of
rows. An HNSW graph finds as much in the same time, but takes 0.93 ms a row to build where the
inverted file takes 0.1 to 0.3, and keeps what was removed until it is built again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from trivet.semantic.flat_index import FlatIndex
from trivet.semantic.types import Neighbour, Record

if TYPE_CHECKING:
    from trivet.semantic.cells import Cells
    from trivet.semantic.types import Vectors

EXACT_MOST = 8192
"""Rows up to which the exact search takes under a millisecond on one core."""
_GROWTH = 4
_CHUNK = 512
"""Rows that a job takes in: their copy and their codes hold the event loop for 2 ms or so."""
_FEW = 32
"""Rows that the event loop takes in by itself, a tenth of a millisecond each."""
_PROPOSED = 32
"""Rows to compare at least: among more texts than that which the 8-bit codes cannot tell apart,
the winner is one of them, and its cosine is exact all the same."""

Finish = Callable[[], None]
Job = Callable[[], Finish]
"""Runs in any thread; what it returns then runs in the index's own."""


class PartitionIndex:
    """A `VectorIndex`. For one thread at a time, but for the jobs of `due`."""

    __slots__ = ("_cells", "_exact_most", "_flat", "_next")

    def __init__(self, dimension: int, exact_most: int = EXACT_MOST) -> None:
        self._flat = FlatIndex(dimension)
        self._exact_most = exact_most
        self._cells: Cells | None = None
        """Holds every row, or is None."""
        self._next: Cells | None = None
        """Is being filled to take the place of `_cells`."""

    def __len__(self) -> int:
        return len(self._flat)

    def __contains__(self, record_id: str) -> bool:
        return record_id in self._flat

    @property
    def dimension(self) -> int:
        """Numbers in a vector."""
        return self._flat.dimension

    @property
    def bare(self) -> list[Record]:
        """All records, each without its vector. Not to be changed."""
        return self._flat.records

    def find(self, record_id: str) -> Record | None:
        """The record of this id, with its vector."""
        return self._flat.find(record_id)

    def add(self, record: Record) -> None:
        """See `VectorIndex.add`. Raises `ValueError` for a vector that does not fit."""
        row, moved = self._flat.add(record)
        if not moved:
            return
        vector = self._flat.matrix[row]
        if self._cells is not None:
            self._cells.put_one(row, vector)
        if self._next is not None:
            self._next.take_out(row)

    def remove(self, record_id: str) -> bool:
        """See `VectorIndex.remove`."""
        gone = self._flat.remove(record_id)
        if gone is None:
            return False
        row, last = gone
        if 2 * len(self._flat) < self._exact_most:
            self._cells = self._next = None
        for cells in (self._cells, self._next):
            if cells is not None:
                cells.move(row, last, self._flat.matrix[row])
        return True

    def nearest(self, vector: Vectors, k: int, now: float) -> list[Neighbour]:
        """See `VectorIndex.nearest`. `vector` has shape (dimension,) or (1, dimension)."""
        if self._cells is None or k < 1:
            return self._flat.nearest(vector, k, now)
        vector = np.ascontiguousarray(vector, np.float32)
        rows = self._cells.propose(vector, max(_PROPOSED, 4 * k))
        found = self._flat.nearest_of(rows, vector, k, now)
        if len(found) < min(k, len(self._flat)):
            return self._flat.nearest(vector, k, now)
        return found

    def expired(self, now: float) -> list[str]:
        """Ids of what is not live at `now`."""
        return self._flat.expired(now)

    def due(self) -> Job | None:
        """The next piece of work that makes searches faster; None when there is none."""
        count = len(self._flat)
        if count <= self._exact_most:
            return None
        if self._next is not None:
            return self._fill(self._next)
        if self._cells is None or count > _GROWTH * self._cells.size:
            return self._train(count)
        return None

    def settle(self) -> None:
        """Do all that is due, here and now."""
        while (job := self.due()) is not None:
            job()()

    def _train(self, count: int) -> Job:
        matrix, dimension = self._flat.matrix, self.dimension

        def work() -> Finish:
            from trivet.semantic.cells import Cells

            cells = Cells(dimension, count)
            cells.train(matrix, count)

            def finish() -> None:
                if len(self._flat) > self._exact_most:
                    self._next = cells

            return finish

        return work

    def _fill(self, cells: Cells) -> Job:
        rows = cells.missing(len(self._flat), _CHUNK)
        records = [self._flat.records[row] for row in rows]
        vectors = self._flat.matrix[rows]

        def work() -> Finish:
            assigned = cells.assign(vectors) if len(rows) else rows

            def finish() -> None:
                if self._next is not cells:
                    return
                now = self._flat.records
                same = np.array(
                    [
                        row < len(now) and now[row] is record and not cells.holds(row)
                        for row, record in zip(rows.tolist(), records, strict=True)
                    ],
                    bool,
                )
                if same.any():
                    cells.put(rows[same], vectors[same], assigned[same])
                rest = cells.missing(len(self._flat), _FEW + 1)
                if len(rest) <= _FEW:  # Came meanwhile: waiting for none would never end.
                    for row in rest.tolist():
                        cells.put_one(row, self._flat.matrix[row])
                    self._cells, self._next = cells, None

            return finish

        return work

    def check_integrity(self) -> None:
        """Assert that all parts agree; for tests."""
        self._flat.check_integrity()
        for cells in (self._cells, self._next):
            if cells is not None:
                cells.check_integrity(len(self._flat))
        if self._cells is not None:
            assert not len(self._cells.missing(len(self._flat), 1))

"""Exact search over the vectors of one partition: a matrix, and the records of its rows.

A row that leaves is overwritten by the last one, so that removal costs one copy and the matrix has
no holes. The vectors live in the matrix alone: a record gets its own back when it is handed out.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from trivet.semantic.types import Neighbour, Record

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from trivet.semantic.types import Vectors


def read_vector(record: Record, dimension: int) -> Vectors:
    """The record's vector, of shape (dimension,).

    Raises `ValueError` for one of another length, or with a value that is not finite.
    """
    if not dimension or len(record.vector) != 4 * dimension:
        raise ValueError(f"a vector of {len(record.vector)} bytes, not {4 * dimension}")
    vector = np.frombuffer(record.vector, "<f4")
    if not np.isfinite(vector).all():
        raise ValueError("a vector with a value that is not finite")
    return vector


class FlatIndex:
    """A `VectorIndex` whose time grows with its size. For one thread at a time.

    384 dimensions, one core, numpy 2.4 with OpenBLAS: see `docs/semantic-index.md`. Raises
    `ValueError` for a vector of another length, or with a value that is not finite.
    """

    __slots__ = ("_expires", "_row_of", "matrix", "records")

    def __init__(self, dimension: int) -> None:
        self.matrix: Vectors = np.empty((1, dimension), np.float32)
        """Capacity x dimension. The first `len(self)` rows count. Replaced when it grows."""
        self.records: list[Record] = []
        """By row, each without its vector."""
        self._expires: NDArray[np.float64] = np.empty(1, np.float64)
        self._row_of: dict[str, int] = {}

    @property
    def dimension(self) -> int:
        """Numbers in a vector."""
        return int(self.matrix.shape[1])

    def __len__(self) -> int:
        return len(self.records)

    def __contains__(self, record_id: str) -> bool:
        return record_id in self._row_of

    def find(self, record_id: str) -> Record | None:
        """The record of this id, with its vector."""
        row = self._row_of.get(record_id)
        return None if row is None else self.record(row)

    def record(self, row: int) -> Record:
        """The record of a row, with its vector."""
        return replace(self.records[row], vector=self.matrix[row].tobytes())

    def add(self, record: Record) -> tuple[int, bool]:
        """Add, or replace what has the same id.

        Returns the record's row, and whether that row's vector is another than before.
        """
        vector = read_vector(record, self.dimension)
        row = self._row_of.get(record.id)
        moved = row is None or not np.array_equal(self.matrix[row], vector)
        if row is None:
            row = len(self.records)
            if row == len(self.matrix):
                self._resize(row + max(row // 4, min(row, 1024)))
            self._row_of[record.id] = row
            self.records.append(record)
        first = self.records[0]
        if (first.tenant, first.partition) == (record.tenant, record.partition):
            # What was read from a store brought a copy of its own of the same names.
            record = replace(record, tenant=first.tenant, partition=first.partition)
        self.records[row] = replace(record, vector=b"")
        self.matrix[row] = vector
        self._expires[row] = record.expires
        return row, moved

    def remove(self, record_id: str) -> tuple[int, int] | None:
        """Take out. Returns the row that it had, and the row whose content took its place.

        The two are equal when it was the last row; None if there is no such record.
        """
        row = self._row_of.pop(record_id, None)
        if row is None:
            return None
        last = len(self.records) - 1
        moved = self.records.pop()
        if row != last:
            self.records[row] = moved
            self.matrix[row] = self.matrix[last]
            self._expires[row] = self._expires[last]
            self._row_of[moved.id] = row
        if 3 * last < len(self.matrix):
            self._resize(max(1, 2 * last))
        return row, last

    def nearest(self, vector: Vectors, k: int, now: float) -> list[Neighbour]:
        """See `VectorIndex.nearest`. `vector` has shape (dimension,) or (1, dimension)."""
        count = len(self.records)
        if not count or k < 1:
            return []
        return self._best(np.arange(count), self.matrix[:count] @ vector.reshape(-1), k, now)

    def nearest_of(
        self, rows: NDArray[Any], vector: Vectors, k: int, now: float
    ) -> list[Neighbour]:
        """The same among some rows only."""
        return self._best(rows, self.matrix[rows] @ vector.reshape(-1), k, now)

    def expired(self, now: float) -> list[str]:
        """Ids of what is not live at `now`."""
        rows = np.flatnonzero(self._expires[: len(self.records)] <= now)
        return [self.records[row].id for row in rows]

    def _best(
        self, rows: NDArray[Any], cosines: NDArray[Any], k: int, now: float
    ) -> list[Neighbour]:
        live = self._expires[rows] > now
        if not live.all():
            rows, cosines = rows[live], cosines[live]
        if len(cosines) > k:
            some = np.argpartition(cosines, -k)[-k:]
            rows, cosines = rows[some], cosines[some]
        order = np.argsort(-cosines, kind="stable")
        return [Neighbour(self.record(rows[at]), float(cosines[at])) for at in order]

    def _resize(self, capacity: int) -> None:
        count = min(len(self.records), capacity)
        matrix = np.empty((capacity, self.dimension), np.float32)
        expires = np.empty(capacity, np.float64)
        matrix[:count], expires[:count] = self.matrix[:count], self._expires[:count]
        self.matrix, self._expires = matrix, expires

    def check_integrity(self) -> None:
        """Assert that rows, ids and times agree; for tests."""
        count = len(self.records)
        assert count <= len(self.matrix) == len(self._expires)
        assert self._row_of == {record.id: row for row, record in enumerate(self.records)}
        assert all(not record.vector for record in self.records)
        assert [record.expires for record in self.records] == self._expires[:count].tolist()

"""The vectors of recent texts, least recently used out first, within a bound of bytes."""

from __future__ import annotations

import sys
from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trivet.semantic.types import Vectors

_ROW_BYTES = 400
"""What an entry takes beside its text and its numbers: dictionary, tuple and array headers."""


class RecentVectors:
    """Vectors by tenant and text, at most `max_bytes` of memory."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._rows: OrderedDict[tuple[str, str], Vectors] = OrderedDict()

    def get(self, asked: tuple[str, str]) -> Vectors | None:
        """The vector, which becomes the most recent one."""
        found = self._rows.get(asked)
        if found is not None:
            self._rows.move_to_end(asked)
        return found

    def put(self, asked: tuple[str, str], vector: Vectors) -> None:
        """Keep a vector; what takes more than the bound is not kept."""
        size = _size(asked, vector)
        if size > self._max_bytes:
            return
        before = self._rows.pop(asked, None)
        if before is not None:
            self._bytes -= _size(asked, before)
        self._rows[asked] = vector
        self._bytes += size
        while self._bytes > self._max_bytes:
            self._bytes -= _size(*self._rows.popitem(last=False))

    def clear(self) -> None:
        """Forget all."""
        self._rows.clear()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._rows)


def _size(asked: tuple[str, str], vector: Vectors) -> int:
    return vector.nbytes + sys.getsizeof(asked[1]) + _ROW_BYTES

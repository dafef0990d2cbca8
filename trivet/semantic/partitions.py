"""All partitions of all tenants in one process, bounded by tenant and in all."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trivet.semantic.flat_index import read_vector
from trivet.semantic.index import EXACT_MOST, Job, PartitionIndex
from trivet.semantic.tombstones import Tombstones
from trivet.semantic.types import Neighbour, Partition, Record

if TYPE_CHECKING:
    from trivet.semantic.types import Vectors

ENTRY_BYTES = 1100
"""Of one entry beside its vector and its text: record, names, places in the indexes. With the next
one about what is measured, rather more than less (`docs/semantic-index.md`)."""
_VECTOR_SLACK = 1.6
"""Bytes held for a byte of vector: spare capacity of a matrix, and codes of large partitions."""
_SWEPT = 256
"""Partitions that one sweep looks at."""


@dataclass(frozen=True, slots=True)
class IndexStats:
    """What an index holds. `bytes` is an estimate of the memory it takes."""

    entries: int
    bytes: int
    partitions: int
    evictions: int


@dataclass(slots=True)
class _Shelf:
    """One tenant's part. `ids` is in order of use, the least recently used first."""

    ids: OrderedDict[str, Partition] = field(default_factory=OrderedDict)
    partitions: set[Partition] = field(default_factory=set)
    bytes: int = 0
    evictions: int = 0


def entry_bytes(record: Record) -> int:
    """Memory that one entry is counted as."""
    return ENTRY_BYTES + len(record.text) + int(_VECTOR_SLACK * len(record.vector))


class PartitionedIndex:
    """Every tenant's records by partition. For one thread at a time, but for `due`'s jobs.

    `bound(tenant)` is how many entries a tenant may hold, `most_bytes` how much memory all of them
    may take. Over its bound, a tenant loses what was used least recently; over the bytes, it is the
    tenant that holds the most.
    """

    def __init__(
        self,
        bound: Callable[[str], int],
        *,
        most_bytes: int = 1 << 30,
        clock: Callable[[], float] = time.time,
        exact_most: int = EXACT_MOST,
    ) -> None:
        self._bound = bound
        self._most_bytes = most_bytes
        self._clock = clock
        self._exact_most = exact_most
        self._shelves: dict[str, _Shelf] = {}
        self._indexes: dict[Partition, PartitionIndex] = {}
        self._tenant_of: dict[Partition, str] = {}
        self._tombstones = Tombstones()
        self._bytes = 0
        self._to_sweep: Iterator[Partition] = iter(())
        self._grown: dict[Partition, None] = {}
        """Partitions that may have something due."""

    def __len__(self) -> int:
        return sum(len(shelf.ids) for shelf in self._shelves.values())

    def add(self, record: Record) -> bool:
        """Take in, or replace what has the same id. False where it may not or does not fit.

        Refused: what was purged or removed before, what expired, a vector of another length than
        its partition's, a partition of another tenant, and everything for a bound of 0.
        """
        tenant, size, most = record.tenant, entry_bytes(record), self._bound(record.tenant)
        if most < 1 or size > self._most_bytes or not self._may_come(record):
            return False
        shelf = self._shelves.get(tenant)
        if shelf is not None and record.id in shelf.ids:
            self._drop(tenant, shelf, record.id, keep=record.partition)
        self._put(record)
        shelf = self._shelves.setdefault(tenant, _Shelf())
        shelf.ids[record.id] = record.partition
        shelf.partitions.add(record.partition)
        shelf.bytes += size
        self._bytes += size
        while len(shelf.ids) > most:
            self._evict(tenant, shelf)
        self._make_room()
        return True

    def remove(self, tenant: str, record_id: str) -> bool:
        """Take one record out for good: it is refused when it comes again."""
        self._tombstones.remove(tenant, record_id)
        return self._forget(tenant, record_id)

    def purge(self, tenant: str, label: str | None, at: float) -> int:
        """Take out the tenant's records (those with `label`, or all) created at or before `at`.

        Looks at each record of the tenant. What comes later and was created before is refused.
        """
        self._tombstones.purge(tenant, label, at)
        shelf = self._shelves.get(tenant)
        if shelf is None:
            return 0
        doomed = [
            record.id
            for partition in shelf.partitions
            for record in self._indexes[partition].bare
            if record.created <= at and (label is None or label in record.labels)
        ]
        for record_id in doomed:
            self._drop(tenant, shelf, record_id)
        return len(doomed)

    def nearest(self, partition: Partition, vector: Vectors, k: int, now: float) -> list[Neighbour]:
        """See `VectorIndex.nearest`: those of one partition."""
        index = self._indexes.get(partition)
        if index is None or index.dimension != vector.size:
            return []
        return index.nearest(vector, k, now)

    def find(self, tenant: str, record_id: str) -> Record | None:
        """The tenant's record of this id."""
        shelf = self._shelves.get(tenant)
        partition = None if shelf is None else shelf.ids.get(record_id)
        return None if partition is None else self._indexes[partition].find(record_id)

    def touch(self, tenant: str, record_id: str) -> None:
        """Note a hit, for the order of eviction."""
        shelf = self._shelves.get(tenant)
        if shelf is not None and record_id in shelf.ids:
            shelf.ids.move_to_end(record_id)

    def sweep(self) -> int:
        """Take expired records out of the next few hundred partitions. Returns how many went."""
        now, gone = self._clock(), 0
        for _ in range(_SWEPT):
            partition = next(self._to_sweep, None)
            if partition is None:
                self._to_sweep = iter(list(self._indexes))
                break
            index = self._indexes.get(partition)
            if index is None:
                continue
            for record_id in index.expired(now):
                gone += self._forget(self._tenant_of[partition], record_id)
        return gone

    def due(self) -> Job | None:
        """Work that makes large partitions faster: see `PartitionIndex.due`."""
        while self._grown:
            partition = next(iter(self._grown))
            index = self._indexes.get(partition)
            job = None if index is None else index.due()
            if job is not None:
                return job
            del self._grown[partition]
        return None

    def clear(self) -> None:
        """Let go of every record; what was purged stays purged."""
        self._shelves.clear()
        self._indexes.clear()
        self._tenant_of.clear()
        self._grown.clear()
        self._bytes = 0

    def stats(self, tenant: str | None = None) -> IndexStats:
        """Of one tenant, or of all. Evictions of tenants that hold nothing are not counted."""
        if tenant is not None:
            shelf = self._shelves.get(tenant, _Shelf())
            return IndexStats(len(shelf.ids), shelf.bytes, len(shelf.partitions), shelf.evictions)
        evictions = sum(shelf.evictions for shelf in self._shelves.values())
        return IndexStats(len(self), self._bytes, len(self._indexes), evictions)

    def _may_come(self, record: Record) -> bool:
        if record.expires <= self._clock() or self._tombstones.cover(record):
            return False
        if self._tenant_of.get(record.partition, record.tenant) != record.tenant:
            return False
        index = self._indexes.get(record.partition)
        try:
            read_vector(record, len(record.vector) // 4 if index is None else index.dimension)
        except ValueError:
            return False
        return True

    def _put(self, record: Record) -> None:
        index = self._indexes.get(record.partition)
        if index is None:
            index = PartitionIndex(len(record.vector) // 4, self._exact_most)
            self._indexes[record.partition] = index
            self._tenant_of[record.partition] = record.tenant
        index.add(record)
        if len(index) > self._exact_most:
            self._grown[record.partition] = None

    def _forget(self, tenant: str, record_id: str) -> bool:
        shelf = self._shelves.get(tenant)
        if shelf is None or record_id not in shelf.ids:
            return False
        self._drop(tenant, shelf, record_id)
        return True

    def _drop(
        self, tenant: str, shelf: _Shelf, record_id: str, keep: Partition | None = None
    ) -> None:
        """Take a record off its shelf, and out of its partition unless that is `keep`."""
        partition = shelf.ids.pop(record_id)
        index = self._indexes[partition]
        record = index.find(record_id)
        assert record is not None
        size = entry_bytes(record)
        shelf.bytes -= size
        self._bytes -= size
        if partition == keep:
            return
        index.remove(record_id)
        self._close_empty(partition)
        if not shelf.ids:
            self._shelves.pop(tenant, None)

    def _close_empty(self, partition: Partition) -> None:
        index = self._indexes.get(partition)
        if index is None or len(index):
            return
        del self._indexes[partition]
        shelf = self._shelves.get(self._tenant_of.pop(partition))
        if shelf is not None:
            shelf.partitions.discard(partition)

    def _evict(self, tenant: str, shelf: _Shelf) -> None:
        shelf.evictions += 1
        self._drop(tenant, shelf, next(iter(shelf.ids)))

    def _make_room(self) -> None:
        """Evict from the largest tenants. A hundredth more than needed: looking costs time."""
        if self._bytes <= self._most_bytes:
            return
        goal = self._most_bytes - self._most_bytes // 100
        while self._bytes > goal and self._shelves:
            tenant = max(self._shelves, key=lambda name: self._shelves[name].bytes)
            shelf = self._shelves[tenant]
            least = shelf.bytes // 2
            while self._bytes > goal and shelf.ids and shelf.bytes >= least:
                self._evict(tenant, shelf)

    def check_integrity(self) -> None:
        """Assert that shelves, partitions and sums agree; for tests."""
        held = 0
        for tenant, shelf in self._shelves.items():
            assert shelf.ids
            assert {self._tenant_of[partition] for partition in shelf.partitions} == {tenant}
            assert set(shelf.ids.values()) == shelf.partitions
            records = [self.find(tenant, record_id) for record_id in shelf.ids]
            assert shelf.bytes == sum(entry_bytes(one) for one in records if one is not None)
            held += shelf.bytes
        assert self._bytes == held
        assert self._tenant_of.keys() == self._indexes.keys()
        assert len(self) == sum(len(index) for index in self._indexes.values())
        for index in self._indexes.values():
            assert len(index)
            index.check_integrity()

"""The store in this process's memory: the front of every other, or the only one."""

from __future__ import annotations

import heapq
import time
from collections import OrderedDict
from collections.abc import Callable

from trivet.exact.entry import Entry
from trivet.exact.eviction import Node, S3Fifo
from trivet.exact.purge_times import PurgeTimes
from trivet.exact.purges import Tombstones
from trivet.exact.store import Bound, StoreStats
from trivet.messages import ExactKey

_BUCKET_S = 60.0
"""Entries that expire are let go together, at most this many seconds late."""


class _Shelf:
    """What one tenant keeps. The nodes are in the order in which they came, or were spared."""

    __slots__ = ("bound", "bytes", "labels", "nodes")

    def __init__(self, bound: Bound) -> None:
        self.nodes: OrderedDict[ExactKey, Node] = OrderedDict()
        self.labels: dict[str, set[Node]] = {}
        self.bytes = 0
        self.bound = bound

    def has_room(self, size: int, entries: int) -> bool:
        """Whether the tenant may keep so many bytes and entries more."""
        bound = self.bound
        return (bound.entries is None or len(self.nodes) + entries <= bound.entries) and (
            bound.bytes is None or self.bytes + size <= bound.bytes
        )

    def victim(self) -> Node:
        """The oldest node that was not read since it came or was spared (CLOCK)."""
        while True:
            key = next(iter(self.nodes))
            node = self.nodes[key]
            if not node.hits:
                return node
            node.hits -= 1
            self.nodes.move_to_end(key)


class MemoryStore:
    """Entries in memory, at most `max_bytes` (by `Entry.size`) and `max_entries` of them.

    For one event loop: not safe for threads. No method waits, none raises `StoreError`. Entries
    are handed out as they were put, so that renderings kept in `Entry.memo` serve the next hit;
    the memo counts against the bounds from the next hit on.
    """

    name = "memory"

    def __init__(
        self,
        max_bytes: int = 256 << 20,
        max_entries: int = 1_000_000,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._max_bytes = max_bytes
        self._max_entries = max_entries
        self._clock = clock
        self._shelves: dict[str, _Shelf] = {}
        self._order = S3Fifo()
        self._bytes = 0
        self._evictions = 0
        self._tombstones = Tombstones()
        self.purge_times = PurgeTimes(clock)
        self._buckets: dict[int, set[Node]] = {}
        self._soonest: list[int] = []

    async def get(self, tenant: str, key: ExactKey) -> Entry | None:
        """See `ExactStore.get`."""
        return self.peek(tenant, key)

    def peek(self, tenant: str, key: ExactKey) -> Entry | None:
        """`get` without a coroutine. About a microsecond, however many entries there are."""
        shelf = self._shelves.get(tenant)
        if shelf is None:
            return None
        node = shelf.nodes.get(key)
        if node is None:
            return None
        entry = node.entry
        if self._clock() >= entry.stale_until:
            self._order.remove(node)
            self._drop(node)
            return None
        node.hit()
        if len(entry.memo) != node.memos:
            self._weigh(shelf, node)
        return entry

    async def put(self, entry: Entry, bound: Bound) -> str:
        """See `ExactStore.put`."""
        return self._put(entry, bound)

    def fill(self, entry: Entry) -> None:
        """Keep a copy of another store's entry, within the bound of the tenant's last put."""
        shelf = self._shelves.get(entry.tenant)
        self._put(entry, Bound() if shelf is None else shelf.bound)

    async def delete(self, tenant: str, key: ExactKey) -> None:
        """See `ExactStore.delete`."""
        self.forget(tenant, key)

    def forget(self, tenant: str, key: ExactKey) -> Node | None:
        """Delete one entry at once. Returns what was there."""
        shelf = self._shelves.get(tenant)
        node = None if shelf is None else shelf.nodes.get(key)
        if node is not None:
            self._order.remove(node)
            self._drop(node)
        return node

    async def purge(self, tenant: str, label: str | None, at: float) -> int:
        """See `ExactStore.purge`. Looks at the tenant's entries, or at those with the label."""
        self._tombstones.add(tenant, label, at)
        self.purge_times.add(tenant, at)
        shelf = self._shelves.get(tenant)
        if shelf is None:
            return 0
        named = shelf.nodes.values() if label is None else shelf.labels.get(label, ())
        doomed = [node for node in named if node.entry.created <= at]
        for node in doomed:
            self._order.remove(node)
            self._drop(node)
        return len(doomed)

    def purged(self, entry: Entry) -> bool:
        """Whether a purge that is known here forbids serving `entry`, wherever it comes from."""
        return self._tombstones.name(entry)

    def clear(self) -> None:
        """Forget every entry; what was purged stays purged."""
        self._shelves.clear()
        self._order = S3Fifo()
        self._bytes = 0
        self._buckets.clear()
        self._soonest.clear()

    async def usage(self, tenant: str | None) -> StoreStats:
        """See `ExactStore.usage`. Evictions count since the start, of all tenants."""
        if tenant is None:
            return StoreStats(self.name, len(self._order), self._bytes, self._evictions)
        shelf = self._shelves.get(tenant)
        entries, held = (0, 0) if shelf is None else (len(shelf.nodes), shelf.bytes)
        return StoreStats(self.name, entries, held, self._evictions)

    async def ready(self) -> None:
        """Memory answers."""

    async def close(self) -> None:
        """Forget every entry."""
        self.clear()

    def _put(self, entry: Entry, bound: Bound) -> str:
        now = self._clock()
        self._expire(now)
        if self._tombstones.cover(entry):
            return "purged"
        node = Node(entry)
        before = self.forget(entry.tenant, entry.key)
        if now >= entry.stale_until:
            return "expired"
        if not self._may_hold(node.size, bound):
            return "too-large"
        node.main = before is not None and before.main
        self._make_room(node, bound)
        shelf = self._shelves.get(entry.tenant)
        if shelf is None:
            shelf = self._shelves[entry.tenant] = _Shelf(bound)
        shelf.bound = bound
        shelf.nodes[entry.key] = node
        shelf.bytes += node.size
        for label in entry.labels:
            shelf.labels.setdefault(label, set()).add(node)
        self._bytes += node.size
        self._order.add(node)
        self._schedule(node)
        return ""

    def _may_hold(self, size: int, bound: Bound) -> bool:
        return (
            size <= self._max_bytes
            and self._max_entries > 0
            and (bound.bytes is None or size <= bound.bytes)
            and (bound.entries is None or bound.entries > 0)
        )

    def _make_room(self, node: Node, bound: Bound) -> None:
        shelf = self._shelves.get(node.entry.tenant)
        if shelf is not None:
            shelf.bound = bound
            self._shrink(shelf, node.size, 1)
        while len(self._order) >= self._max_entries or self._bytes + node.size > self._max_bytes:
            self._drop(self._order.victim(self._bytes))
            self._evictions += 1

    def _shrink(self, shelf: _Shelf, size: int, entries: int = 0) -> None:
        while shelf.nodes and not shelf.has_room(size, entries):
            victim = shelf.victim()
            self._order.remove(victim)
            self._drop(victim)
            self._evictions += 1

    def _weigh(self, shelf: _Shelf, node: Node) -> None:
        """Count the renderings that a hit left in the entry's memo, and make room for them."""
        memo = node.entry.memo
        size = node.entry.size + sum(map(len, memo.values()))
        if not self._may_hold(size, shelf.bound):
            memo.clear()
            size = node.entry.size
        node.memos = len(memo)
        shelf.bytes += size - node.size
        self._bytes += size - node.size
        self._order.resize(node, size)
        self._shrink(shelf, 0)
        while self._bytes > self._max_bytes:
            self._drop(self._order.victim(self._bytes))
            self._evictions += 1

    def _drop(self, node: Node) -> None:
        """Take a node, which the eviction order has let go, out of everything else."""
        entry = node.entry
        shelf = self._shelves[entry.tenant]
        del shelf.nodes[entry.key]
        shelf.bytes -= node.size
        self._bytes -= node.size
        for label in entry.labels:
            shelf.labels[label].discard(node)
            if not shelf.labels[label]:
                del shelf.labels[label]
        if not shelf.nodes:
            del self._shelves[entry.tenant]
        bucket = _bucket(entry)
        waiting = self._buckets.get(bucket)
        if waiting is not None:
            waiting.discard(node)
            if not waiting:
                del self._buckets[bucket]

    def _schedule(self, node: Node) -> None:
        """Note when the node is to leave by itself."""
        bucket = _bucket(node.entry)
        waiting = self._buckets.get(bucket)
        if waiting is None:
            self._buckets[bucket] = {node}
            heapq.heappush(self._soonest, bucket)
        else:
            waiting.add(node)
        # Buckets that emptied early are left in the heap: drop them before they pile up.
        if len(self._soonest) > 2 * len(self._buckets) + 64:
            self._soonest = list(self._buckets)
            heapq.heapify(self._soonest)

    def _expire(self, now: float) -> None:
        while self._soonest and (self._soonest[0] + 1) * _BUCKET_S <= now:
            for node in self._buckets.pop(heapq.heappop(self._soonest), ()):
                self._order.remove(node)
                self._drop(node)


def _bucket(entry: Entry) -> int:
    return int(min(entry.stale_until, 1e15) // _BUCKET_S)

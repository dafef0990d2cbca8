"""Blocks that nobody uses, in the order in which they are given out again.

First come blank blocks, which hold nothing worth keeping. Then cached blocks, least recently used
first over all tenants, except what a tenant's floor protects from the others. A tenant at its quota
gives up its own oldest blocks.

Every list is doubly linked through two arrays that are indexed by block (the lists' ends lie behind
the blocks), so that a block is taken out of the middle in constant time and costs no object.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush, heapreplace
from itertools import groupby
from typing import NamedTuple

from trivet.prefix.pool.counters import TenantCounters
from trivet.prefix.pool.shares import MAX_TENANTS, OTHERS, PLATFORM, Shares


class TenantQueue:
    """One tenant's cached, unused blocks, and what it holds in all."""

    __slots__ = ("counters", "end", "floor", "held", "idle", "kept", "name", "offered", "quota")

    def __init__(self, name: str, end: int, quota: int | None, floor: int) -> None:
        self.name = name
        self.end = end
        self.quota = quota
        self.floor = floor
        self.held = 0
        """Blocks that are this tenant's, in use or cached."""
        self.idle = 0
        """Those of them that are cached and not in use: the length of the list."""
        self.kept = 0
        """Those of the idle ones that others may not take."""
        self.offered = False
        """Whether the heap of oldest blocks has an entry for this queue."""
        self.counters = TenantCounters()


class Taken(NamedTuple):
    """Blocks for a new use. The evicted ones still carry what they cached, by former owner."""

    blank: list[int]
    evicted: list[tuple[TenantQueue, list[int]]]

    @property
    def blocks(self) -> list[int]:
        """All of them."""
        return sum((blocks for _, blocks in self.evicted), self.blank)


class FreeBlockQueue:
    """All blocks `0..capacity-1`; at first every one is blank, in that order."""

    def __init__(self, capacity: int, shares: Shares) -> None:
        if capacity < 1 or shares.floors > capacity:
            raise ValueError("there is at least 1 block, and floors do not exceed all blocks")
        self.capacity = capacity
        self.blank = capacity
        """How many blocks are blank."""
        self.idle = 0
        """How many are cached and not in use."""
        self.owner: list[TenantQueue | None] = [None] * capacity
        self._after = [*range(1, capacity + 1), 0]
        self._before = [capacity, *range(capacity)]
        self._stamp = [0] * capacity
        self._clock = 0
        self._kept = 0
        self._shares = shares
        self._queues: list[TenantQueue] = []
        self._by_name: dict[str, TenantQueue] = {}
        # (stamp of the oldest block, end of the queue), one for each queue that others may take
        # from. The stamp may be too low, never too high: taking from a queue's middle ages it.
        self._oldest: list[tuple[int, int]] = []

    def tenant(self, name: str) -> TenantQueue:
        """The tenant's account, opened when first asked for."""
        queue = self._by_name.get(name)
        if queue is None:
            known = name in self._shares.tenants or name in (PLATFORM, OTHERS)
            if len(self._queues) >= MAX_TENANTS and not known:
                return self.tenant(OTHERS)
            queue = self._open(name)
        return queue

    def tenants(self) -> Sequence[TenantQueue]:
        """All accounts, in the order in which they were opened."""
        return self._queues

    def _open(self, name: str) -> TenantQueue:
        share = self._shares.of(name)
        end = len(self._after)
        self._after.append(end)
        self._before.append(end)
        quota = None if name in (PLATFORM, OTHERS) else share.quota
        queue = self._by_name[name] = TenantQueue(name, end, quota, share.floor)
        self._queues.append(queue)
        return queue

    def ceiling(self, queue: TenantQueue, pinned: int) -> int:
        """What the tenant could hold if it were alone, `pinned` blocks apart."""
        most = self.capacity - pinned - (self._shares.floors - queue.floor)
        return most if queue.quota is None else min(most, queue.quota)

    def available(self, queue: TenantQueue, reused: Sequence[int] = ()) -> int:
        """How many blocks `take` can give the tenant once the `reused` idle ones are in use."""
        room = self.blank + self.idle - (self._kept - queue.kept) - len(reused)
        if queue.quota is not None:
            own = queue.idle - sum(self.owner[block] is queue for block in reused)
            room = min(room, queue.quota - queue.held + own)
        return max(0, room)

    def take(self, queue: TenantQueue, count: int) -> Taken:
        """`count` blocks, from now on this tenant's. The caller asked `available` before."""
        taken = Taken([], [])
        missing = count
        if queue.quota is not None and queue.held + count > queue.quota:
            missing -= self._evict(queue, min(count, queue.held + count - queue.quota), taken)
        taken.blank.extend(self._pop(self.capacity, min(missing, self.blank)))
        self.blank -= len(taken.blank)
        missing -= len(taken.blank)
        if missing:
            missing -= self._evict_oldest(missing, taken)
        if missing:
            missing -= self._evict(queue, missing, taken)
        if missing:
            raise ValueError("more blocks were taken than are available")
        owner = self.owner
        for block in taken.blocks:
            owner[block] = queue
        queue.held += count
        self._settle(queue)
        return taken

    def use(self, blocks: Sequence[int]) -> None:
        """Take these cached blocks out of their lists: somebody uses them again."""
        after, before = self._after, self._before
        for block in blocks:
            left, right = before[block], after[block]
            after[left] = right
            before[right] = left
        for queue, count in self._owners(blocks):
            queue.idle -= count
            self.idle -= count
            self._settle(queue)

    def cache(self, blocks: Sequence[int]) -> None:
        """Put these blocks behind all others of their owners, the first to be evicted first."""
        self._clock += 1
        clock, stamp = self._clock, self._stamp
        after, before = self._after, self._before
        for queue, run in groupby(blocks, self.owner.__getitem__):
            assert queue is not None
            last = before[queue.end]
            count = 0
            for block in run:
                after[last] = block
                before[block] = last
                stamp[block] = clock
                last = block
                count += 1
            after[last] = queue.end
            before[queue.end] = last
            queue.idle += count
            self.idle += count
            self._settle(queue)

    def discard(self, blocks: Sequence[int]) -> None:
        """Make these used blocks blank and nobody's; the first of them is given out next."""
        for queue, count in self._owners(blocks):
            queue.held -= count
            self._settle(queue)
        after, before, end = self._after, self._before, self.capacity
        for block in reversed(blocks):
            first = after[end]
            after[end] = before[first] = block
            after[block] = first
            before[block] = end
            self.owner[block] = None
        self.blank += len(blocks)

    def discard_cached(self) -> None:
        """Make all cached blocks blank."""
        for queue in self._queues:
            cached = self.cached(queue)
            self.use(cached)
            self.discard(cached)

    def move(self, blocks: Sequence[int], queue: TenantQueue) -> None:
        """Give these used blocks another owner."""
        for owner, count in self._owners(blocks):
            owner.held -= count
            self._settle(owner)
        for block in blocks:
            self.owner[block] = queue
        queue.held += len(blocks)
        self._settle(queue)

    def order(self) -> list[int]:
        """All free blocks in the order in which they go, if no floor or quota steps in."""
        cached = [block for queue in self._queues for block in self.cached(queue)]
        return [*self._walk(self.capacity), *sorted(cached, key=self._stamp.__getitem__)]

    def cached(self, queue: TenantQueue) -> list[int]:
        """The tenant's idle blocks, oldest first."""
        return self._walk(queue.end)

    def check_integrity(self) -> None:
        """Raise `AssertionError` if lists, counts or the heap contradict each other."""
        assert len(self._walk(self.capacity)) == self.blank, "blank blocks"
        for end in (self.capacity, *(queue.end for queue in self._queues)):
            listed = [end, *self._walk(end)]
            assert [self._before[self._after[block]] for block in listed] == listed, "links"
        assert sum(queue.idle for queue in self._queues) == self.idle, "idle blocks"
        assert sum(queue.kept for queue in self._queues) == self._kept, "kept blocks"
        held = Counter(queue for queue in self.owner if queue is not None)
        entries = {end: stamp for stamp, end in self._oldest}
        assert len(entries) == len(self._oldest), "a queue is twice in the heap"
        for queue in self._queues:
            cached = self.cached(queue)
            stamps = [self._stamp[block] for block in cached]
            surplus = min(queue.idle, max(0, queue.held - queue.floor))
            assert held[queue] == queue.held, f"{queue.name}: held"
            assert len(cached) == queue.idle, f"{queue.name}: idle"
            assert queue.kept == queue.idle - surplus, f"{queue.name}: kept"
            assert all(self.owner[block] is queue for block in cached), f"{queue.name}: owner"
            assert stamps == sorted(stamps), f"{queue.name}: order"
            assert queue.offered == (queue.end in entries), f"{queue.name}: offered"
            assert queue.offered or not surplus, f"{queue.name}: not offered"
            if queue.offered and stamps:
                assert entries[queue.end] <= stamps[0], f"{queue.name}: its oldest is hidden"

    def _walk(self, end: int) -> list[int]:
        found = []
        block = self._after[end]
        while block != end:
            found.append(block)
            block = self._after[block]
        return found

    def _pop(self, end: int, count: int, until: int = sys.maxsize) -> list[int]:
        """At most `count` blocks off a list's head, none stamped later than `until`."""
        after, stamp = self._after, self._stamp
        popped: list[int] = []
        block = after[end]
        while count and block != end and stamp[block] <= until:
            popped.append(block)
            block = after[block]
            count -= 1
        after[end] = block
        self._before[block] = end
        return popped

    def _evict(self, queue: TenantQueue, count: int, taken: Taken, until: int = sys.maxsize) -> int:
        blocks = self._pop(queue.end, count, until)
        if blocks:
            taken.evicted.append((queue, blocks))
            queue.held -= len(blocks)
            queue.idle -= len(blocks)
            self.idle -= len(blocks)
            queue.counters.evictions += len(blocks)
            self._settle(queue)
        return len(blocks)

    def _evict_oldest(self, count: int, taken: Taken) -> int:
        heap, missing = self._oldest, count
        while missing and heap:
            stamp, end = heap[0]
            queue = self._queues[end - self.capacity - 1]
            surplus = queue.idle - queue.kept
            if not surplus:
                heappop(heap)
                queue.offered = False
            elif self._stamp[self._after[end]] > stamp:
                heapreplace(heap, (self._stamp[self._after[end]], end))
            else:
                until = min(heap[1:3], default=(sys.maxsize, 0))[0]
                missing -= self._evict(queue, min(missing, surplus), taken, until)
        return count - missing

    def _owners(self, blocks: Iterable[int]) -> Iterator[tuple[TenantQueue, int]]:
        """Who owns how many of these blocks: in nearly all cases one tenant does."""
        owners = [*map(self.owner.__getitem__, blocks)]
        for queue in set(owners):
            assert queue is not None
            yield queue, owners.count(queue)

    def _settle(self, queue: TenantQueue) -> None:
        """Bring what a queue keeps and offers up to date; after each change of `held` or `idle`."""
        kept = queue.kept
        if queue.floor:
            kept = queue.idle - min(queue.idle, max(0, queue.held - queue.floor))
            self._kept += kept - queue.kept
            queue.kept = kept
        if queue.idle > kept and not queue.offered:
            heappush(self._oldest, (self._stamp[self._after[queue.end]], queue.end))
            queue.offered = True

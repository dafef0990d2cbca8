"""The pool of KV blocks and the cache of prefixes in it.

A block is blank, then allocated to one sequence, then committed once its KV is computed: only then
can others share it. A committed block that nobody uses is cached, until it is evicted and so blank
again, or used again. Whoever uses a block uses all blocks before it, so a parent is never evicted
before its child.

Not for several threads: the scheduler calls it between the steps of the model. Nothing here waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from trivet.errors import OutOfBlocks
from trivet.prefix.pool.block_table import BlockTable
from trivet.prefix.pool.counters import TenantCounters
from trivet.prefix.pool.events import BlocksCleared, BlocksRemoved, BlocksStored, Emit, ignore
from trivet.prefix.pool.free_queue import FreeBlockQueue, TenantQueue
from trivet.prefix.pool.hashing import BlockChain, BlockHash
from trivet.prefix.pool.index import BlockIndex, Parent
from trivet.prefix.pool.integrity import check_pool
from trivet.prefix.pool.lookup import Found, PrefixMatch, find, why
from trivet.prefix.pool.offload import OffloadTier
from trivet.prefix.pool.shares import PLATFORM, Shares


@dataclass(frozen=True, slots=True)
class PoolState:
    """Blocks by what they are: the four sum up to the capacity."""

    used: int
    """By running sequences."""
    pinned: int
    """Of platform prefixes, used or not."""
    cached: int
    blank: int


class BlockPool:
    """Blocks `0..capacity-1` of `block_size` tokens each.

    `shares` bounds tenants, `offload` takes what is evicted, `emit` is told what may be shared.
    """

    def __init__(
        self,
        capacity: int,
        block_size: int = 16,
        *,
        shares: Shares | None = None,
        offload: OffloadTier | None = None,
        emit: Emit = ignore,
    ) -> None:
        self.capacity = capacity
        self.block_size = block_size
        self.queue = FreeBlockQueue(capacity, shares or Shares())
        self.index = BlockIndex(capacity)
        self.offload = offload
        self.tables: set[BlockTable] = set()
        """The tables that were not released yet."""
        self.users = [0] * capacity
        """How many tables hold each block; a pin counts as one."""
        self.pinned: set[int] = set()
        self.computing: dict[BlockHash, BlockTable] = {}
        """Which running sequence will commit a block that is not there yet."""
        self._emit = emit
        self._epoch = 0
        self._identity = 0
        if offload is not None:
            offload.watched(emit, block_size)

    def match(self, chain: BlockChain) -> PrefixMatch:
        """What `admit` would find. Changes nothing, not even the order of eviction."""
        found = find(self.index, self.offload, chain)
        at = start = len(found.blocks) + found.slots
        stop = chain.matchable
        while at < stop and chain.hashes[at] in self.computing:
            at += 1
        size = self.block_size
        pending = (at - start) * size
        return PrefixMatch(start * size, found.slots * size, pending, why(chain, start, at))

    def admit(
        self, chain: BlockChain, tenant: str, *, resumed: bool = False, reuse: bool = True
    ) -> BlockTable | None:
        """Blocks for all tokens of the chain, the cached ones shared; None if too few are free now.

        All or nothing: a refusal leaves everything as it was. A chain is of one table at a time,
        which makes it grow; after a preemption it is admitted again, `resumed`, which keeps it out
        of the hit rate. Without `reuse` all KV is computed anew, as prompt logprobs need it.
        Raises `OutOfBlocks` for a prompt that no wait will fit in, `ValueError` for an empty one.
        """
        if not chain.length or chain.block_size != self.block_size:
            raise ValueError("a chain has a token, and the pool's block size")
        queue = self.queue.tenant(tenant)
        found = find(self.index, self.offload, chain) if reuse else Found([], [])
        self._refuse_what_never_fits(queue, chain, len(found.blocks))
        users = self.users
        idle = [block for block in found.blocks if not users[block]]
        missing = chain.blocks - len(found.blocks)
        if missing > self.queue.available(queue, idle):
            queue.counters.refusals += 1
            return None
        self.queue.use(idle)
        for block in found.blocks:
            users[block] += 1
        table = BlockTable(queue, chain, self._epoch)
        table.blocks = found.blocks
        table.committed = len(found.blocks)
        self._fill(table, missing, found.saved)
        self._started(table, resumed=resumed, reuse=reuse)
        return table

    def append(self, table: BlockTable, tokens: Sequence[int]) -> bool:
        """Add decoded tokens, with blocks for them; False, and nothing added, if too few are free.

        Raises `ValueError` for a released table and for tokens that `pack` refuses.
        """
        if table not in self.tables:
            raise ValueError("the table was released")
        chain = table.chain
        missing = -(-(chain.length + len(tokens)) // self.block_size) - len(table.blocks)
        if missing > 0 and missing > self.queue.available(table.queue):
            table.queue.counters.refusals += 1
            return False
        chain.extend(tokens)
        if missing > 0:
            table.blocks += self._take(table.queue, missing)
        return True

    def commit(self, table: BlockTable, computed: int) -> list[int]:
        """The KV of the first `computed` tokens is written: offer the blocks that are full.

        Returns the places in `table.blocks` where a block was replaced by one of the same content
        that another sequence committed first; the sequence goes on with that one.
        """
        start = table.committed
        stop = min(computed // self.block_size, len(table.chain.hashes), len(table.blocks))
        if stop <= start or not self.is_current(table):
            return []
        replaced: list[int] = []
        hashes = table.chain.hashes[start:stop]
        if self.index.has_none_of(hashes):
            self._publish(table, start, stop)
        else:
            replaced = self._merge(table, start, stop)
        self._finish(table, hashes)
        return replaced

    def release(self, table: BlockTable, *, preempted: bool = False) -> None:
        """Give all blocks back; the second time nothing happens.

        Committed blocks stay cached, the tail of the chain to be evicted before its parents.
        """
        if table not in self.tables:
            return
        self.tables.remove(table)
        self._finish(table, table.chain.hashes[table.committed :])
        if preempted:
            table.queue.counters.preemptions += 1
        users, hashes = self.users, self.index.hashes
        unused = []
        for block in reversed(table.blocks):
            users[block] = left = users[block] - 1
            if not left:
                unused.append(block)
        table.blocks = []
        self.queue.discard([block for block in unused if hashes[block] is None])
        self.queue.cache([block for block in unused if hashes[block] is not None])

    def clear(self) -> None:
        """Forget all cached prefixes, pinned ones and the second tier's too.

        Running sequences keep their blocks and share them no more. Needed when the weights change.
        """
        self._epoch += 1
        self.computing.clear()
        self.index.drop(range(self.capacity))
        for block in self.pinned:
            self.users[block] -= 1
        self.queue.discard([block for block in self.pinned if not self.users[block]])
        self.pinned.clear()
        self.queue.discard_cached()
        if self.offload is not None:
            self.offload.clear()
        self._emit(BlocksCleared())

    def ceiling(self, tenant: str) -> int:
        """The most blocks that one sequence of the tenant can hold, pinned ones apart."""
        return self.queue.ceiling(self.queue.tenant(tenant), len(self.pinned))

    def counters(self) -> dict[str, TenantCounters]:
        """Running totals by tenant; not copies."""
        return {queue.name: queue.counters for queue in self.queue.tenants()}

    def is_current(self, table: BlockTable) -> bool:
        """Whether the table was admitted since the last `clear`."""
        return table.epoch == self._epoch

    def check_integrity(self) -> None:
        """Raise `AssertionError` if what is kept here contradicts itself. For tests: it is slow."""
        check_pool(self)

    def state(self) -> PoolState:
        """How the blocks are used now."""
        cached, blank, pinned = self.queue.idle, self.queue.blank, len(self.pinned)
        return PoolState(self.capacity - cached - blank - pinned, pinned, cached, blank)

    def _refuse_what_never_fits(self, queue: TenantQueue, chain: BlockChain, found: int) -> None:
        needed = chain.blocks - min(found, chain.shared)
        ceiling = self.queue.ceiling(queue, len(self.pinned))
        if needed > ceiling:
            raise OutOfBlocks(
                f"{chain.length} tokens take {needed} blocks of {self.block_size};"
                f" this tenant can have {ceiling}"
            )

    def _fill(
        self, table: BlockTable, count: int, saved: Sequence[tuple[OffloadTier, list[int]]]
    ) -> None:
        """Add `count` blocks; copy into the first of them what the second tier saved."""
        for tier, slots in saved:
            tier.hold(slots)
        table.blocks += self._take(table.queue, count)
        going_on = True
        for tier, slots in saved:
            start, stop = table.committed, table.committed + len(slots)
            if not going_on or not self.index.has_none_of(table.chain.hashes[start:stop]):
                tier.let_go(slots)
                going_on = False
            elif tier.load(slots, table.blocks[start:stop]):
                identities = [tier.index.identities[slot] for slot in slots]
                self._publish(table, start, stop, identities)
            else:
                going_on = False
        table.cached_tokens = table.committed * self.block_size
        table.offloaded_tokens = (table.committed - len(table.blocks) + count) * self.block_size

    def _take(self, queue: TenantQueue, count: int) -> list[int]:
        taken = self.queue.take(queue, count)
        for owner, evicted in taken.evicted:
            if self.offload is not None:
                self.offload.store(self.index, evicted, owner.name)
            self._emit(BlocksRemoved(self.index.drop(evicted), "device"))
        blocks = taken.blocks
        for block in blocks:
            self.users[block] = 1
        return blocks

    def _started(self, table: BlockTable, *, resumed: bool, reuse: bool) -> None:
        self.tables.add(table)
        self.computing.update(dict.fromkeys(table.chain.hashes[table.committed :], table))
        if reuse:
            table.queue.counters.admitted(
                table.chain.length, table.cached_tokens, table.offloaded_tokens, resumed=resumed
            )

    def _finish(self, table: BlockTable, hashes: Iterable[BlockHash]) -> None:
        """The table computes these blocks no more."""
        computing = self.computing
        for name in hashes:
            if computing.get(name) is table:
                del computing[name]

    def _publish(
        self, table: BlockTable, start: int, stop: int, identities: Sequence[int] = ()
    ) -> None:
        chain, blocks = table.chain, table.blocks[start:stop]
        parent = self._parent(table, start)
        identities = identities or self._identities(chain, start, stop, parent)
        self.index.put(blocks, chain, start, parent, identities)
        table.committed = stop
        before = chain.hashes[start - 1] if start else None
        hashes = tuple(chain.hashes[start:stop])
        self._emit(BlocksStored(before, hashes, self.block_size, "device"))
        if start < chain.shared:
            self._pin(blocks[: chain.shared - start])

    def _merge(self, table: BlockTable, start: int, stop: int) -> list[int]:
        """Commit one by one, where some hashes are known already."""
        replaced = []
        for at in range(start, stop):
            twin = self.index.by_hash.get(table.chain.hashes[at])
            if twin is None:
                self._publish(table, at, at + 1)
            elif self.index.holds(twin, table.chain.contents[at], self._parent(table, at)):
                self._replace(table, at, twin)
                replaced.append(at)
            elif self.users[twin]:
                # Another content under this hash, in use: the sequence goes on unshared.
                self._finish(table, table.chain.hashes[at:])
                break
            else:
                self._forget(twin)
                self._publish(table, at, at + 1)
        return replaced

    def _forget(self, idle: int) -> None:
        """Make room under a hash whose block cannot be reached or has another content."""
        self.queue.use([idle])
        self._emit(BlocksRemoved(self.index.drop([idle]), "device"))
        self.queue.discard([idle])

    def _replace(self, table: BlockTable, at: int, twin: int) -> None:
        own = table.blocks[at]
        if not self.users[twin]:
            self.queue.use([twin])
        self.users[twin] += 1
        table.blocks[at] = twin
        table.committed = at + 1
        self.users[own] = 0
        self.queue.discard([own])

    def _pin(self, blocks: Sequence[int]) -> None:
        self.queue.move(blocks, self.queue.tenant(PLATFORM))
        self.pinned.update(blocks)
        for block in blocks:
            self.users[block] += 1

    def _parent(self, table: BlockTable, at: int) -> Parent:
        return self.index.identities[table.blocks[at - 1]] if at else table.chain.root

    def _identities(
        self, chain: BlockChain, start: int, stop: int, parent: Parent
    ) -> Sequence[int]:
        """New ones, but for content that the second tier knows: its children stay reachable."""
        first = self._identity + 1
        self._identity += stop - start
        fresh = range(first, first + stop - start)
        if self.offload is None:
            return fresh
        found: list[int] = []
        for at, new in zip(range(start, stop), fresh, strict=True):
            known = self.offload.identity(chain.hashes[at], chain.contents[at], parent)
            parent = new if known is None else known
            found.append(parent)
        return found

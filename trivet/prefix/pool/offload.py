"""The second tier: evicted blocks go to slots in host memory, and from there to slots on disk.

This is the bookkeeping alone. The KV bytes are moved by a `KvMover`, which knows what a block and a
slot are; a disk tier is one whose slots lie in a file. A slot keeps its copy while the block is on
the device again, so that the next eviction costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from trivet.prefix.pool.events import BlocksRemoved, BlocksStored, Emit, Medium, ignore
from trivet.prefix.pool.free_queue import FreeBlockQueue, TenantQueue
from trivet.prefix.pool.hashing import BlockChain, BlockHash
from trivet.prefix.pool.index import BlockIndex, Parent
from trivet.prefix.pool.shares import Shares


class KvMover(Protocol):
    """Moves KV bytes between the media of one tier.

    Both return once the sources may be overwritten. If they raise, whatever it is, the targets are
    taken to hold nothing.
    """

    def copy_out(self, sources: Sequence[int], slots: Sequence[int]) -> None:
        """From the medium above (device blocks for host memory, its slots for a disk) to slots."""
        ...

    def copy_in(self, slots: Sequence[int], blocks: Sequence[int]) -> None:
        """From slots to device blocks."""
        ...


class OffloadTier:
    """Slots `0..slots-1` of one medium, least recently used content going first.

    `shares` bounds tenants in slots. What is pushed out goes to `below`, if there is one.
    """

    def __init__(
        self,
        slots: int,
        mover: KvMover,
        *,
        medium: Medium = "host",
        shares: Shares | None = None,
        below: OffloadTier | None = None,
    ) -> None:
        self.medium = medium
        self.below = below
        self.index = BlockIndex(slots)
        self.queue = FreeBlockQueue(slots, shares or Shares())
        self.failures = 0
        """Copies that failed: each cost cached blocks, and nothing else."""
        self._mover = mover
        self._emit: Emit = ignore
        self._block_size = 0
        self._held: set[int] = set()

    def watched(self, emit: Emit, block_size: int) -> None:
        """Tell `emit` what comes and goes, here and below. The pool calls this once."""
        self._emit, self._block_size = emit, block_size
        if self.below is not None:
            self.below.watched(emit, block_size)

    def tiers(self) -> Iterator[OffloadTier]:
        """This tier and those below it."""
        tier: OffloadTier | None = self
        while tier is not None:
            yield tier
            tier = tier.below

    def identity(self, name: BlockHash, content: bytes, parent: Parent) -> int | None:
        """The identity under which this content is kept here or below."""
        for tier in self.tiers():
            slot = tier.index.by_hash.get(name)
            if slot is not None and tier.index.holds(slot, content, parent):
                return tier.index.identities[slot]
        return None

    def find(self, chain: BlockChain, start: int, stop: int, parent: Parent) -> list[int]:
        """The slots of the longest run of blocks `start..stop` of the chain behind `parent`."""
        return self.index.find(chain, start, stop, parent)

    def store(self, source: BlockIndex, sources: Sequence[int], tenant: str) -> None:
        """Keep what the `sources` of the medium above hold; tails of chains come first.

        Where room is short the last ones are kept, which others hang on. With a tier below, as many
        as there is room for pass through at a time, and the first ones end there.
        """
        step = len(sources) or 1
        if self.below is not None:
            step = max(1, self.queue.available(self.queue.tenant(tenant)))
        for at in range(0, len(sources), step):
            self._keep(source, sources[at : at + step], tenant)

    def _keep(self, source: BlockIndex, sources: Sequence[int], tenant: str) -> None:
        places = self._known(source, sources)
        self.queue.use([*places.values()])
        queue = self.queue.tenant(tenant)
        new = [block for block in sources if self._is_new(source, block)]
        room = min(self.queue.available(queue), len(new))
        new = new[len(new) - room :]
        slots = self._take(queue, room)
        if self._copied_out(new, slots):
            for block, slot in zip(new, slots, strict=True):
                self.index.copy(source, block, slot)
                places[block] = slot
            self._stored(slots)
        self.queue.cache([places[block] for block in sources if block in places])

    def _known(self, source: BlockIndex, sources: Sequence[int]) -> dict[int, int]:
        """Where sources are kept already. What an outdated slot kept under their hash goes."""
        places: dict[int, int] = {}
        for block in sources:
            slot = self._slot(source, block)
            if slot is None or slot in self._held:
                continue
            if self.index.identities[slot] == source.identities[block]:
                places[block] = slot
            else:
                self.forget([slot])
        return places

    def _is_new(self, source: BlockIndex, block: int) -> bool:
        return source.hashes[block] is not None and self._slot(source, block) is None

    def _slot(self, source: BlockIndex, block: int) -> int | None:
        name = source.hashes[block]
        return None if name is None else self.index.by_hash.get(name)

    def _take(self, queue: TenantQueue, count: int) -> list[int]:
        taken = self.queue.take(queue, count)
        for owner, slots in taken.evicted:
            if self.below is not None:
                self.below.store(self.index, slots, owner.name)
            self._removed(self.index.drop(slots))
        return taken.blocks

    def _copied_out(self, sources: Sequence[int], slots: Sequence[int]) -> bool:
        if not slots:
            return True
        try:
            self._mover.copy_out(sources, slots)
        except Exception:  # The engine's code and its driver: it costs cached blocks only.
            self.failures += 1
            self.queue.discard(slots)
            return False
        return True

    def hold(self, slots: Sequence[int]) -> None:
        """Keep these slots from being given to another use until `let_go` or `load`."""
        self.queue.use(slots)
        self._held.update(slots)

    def let_go(self, slots: Sequence[int]) -> None:
        """End `hold`: the slots were used just now, the parent of the others last."""
        self._held.difference_update(slots)
        self.queue.cache(slots[::-1])

    def load(self, slots: Sequence[int], blocks: Sequence[int]) -> bool:
        """End `hold` and copy to device blocks. False if that failed: the slots are dropped."""
        self.let_go(slots)
        try:
            self._mover.copy_in(slots, blocks)
        except Exception:  # As above: the request computes these blocks instead.
            self.failures += 1
            self.forget(slots)
            return False
        return True

    def forget(self, slots: Sequence[int]) -> None:
        """Drop cached slots: what they hold is wrong or outdated."""
        self.queue.use(slots)
        self._removed(self.index.drop(slots))
        self.queue.discard(slots)

    def clear(self) -> None:
        """Drop everything, here and below, without a word to routers."""
        self.index.drop(range(self.queue.capacity))
        self.queue.discard_cached()
        if self.below is not None:
            self.below.clear()

    def _removed(self, gone: tuple[BlockHash, ...]) -> None:
        if gone:
            self._emit(BlocksRemoved(gone, self.medium))

    def _stored(self, slots: Sequence[int]) -> None:
        index = self.index
        for run in index.runs(slots[::-1]):
            hashes = tuple(filter(None, map(index.hashes.__getitem__, run)))
            before = index.before[run[0]]
            self._emit(BlocksStored(before, hashes, self._block_size, self.medium))


class BytesMover:
    """Moves KV that is bytes: `device[block]` and `slots[slot]`. For tests and small stores."""

    def __init__(self, above: list[bytes], slots: int, device: list[bytes] | None = None) -> None:
        self.above = above
        self.device = above if device is None else device
        self.slots = [b""] * slots

    def copy_out(self, sources: Sequence[int], slots: Sequence[int]) -> None:
        for source, slot in zip(sources, slots, strict=True):
            self.slots[slot] = self.above[source]

    def copy_in(self, slots: Sequence[int], blocks: Sequence[int]) -> None:
        for slot, block in zip(slots, blocks, strict=True):
            self.device[block] = self.slots[slot]

"""Which block caches which content: the committed blocks of one medium, found by hash.

A hash only proposes a block. It is the one that was asked for if its content (tokens and extras) is
equal and its parent is the very block that was found before it. Every committed content has an
identity, a number that is never given twice: it stands for block id and generation at once, and
stays with the content when that moves between media.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile

from trivet.prefix.pool.hashing import BlockChain, BlockHash, RootHash

Parent = RootHash | int
"""The identity of the block before; the chain's root for a first block."""


class BlockIndex:
    """What the blocks `0..capacity-1` hold. Each block with a hash is the one `by_hash` names."""

    __slots__ = ("before", "by_hash", "contents", "hashes", "identities", "parents")

    def __init__(self, capacity: int) -> None:
        self.by_hash: dict[BlockHash, int] = {}
        self.hashes: list[BlockHash | None] = [None] * capacity
        """None for a block that holds nothing to share; its other fields then mean nothing."""
        self.before: list[BlockHash | None] = [None] * capacity
        """The hash of the block before; None for a first block."""
        self.contents = [b""] * capacity
        self.parents: list[Parent] = [0] * capacity
        self.identities = [0] * capacity

    def find(self, chain: BlockChain, start: int, stop: int, parent: Parent) -> list[int]:
        """The longest run of blocks `start..stop` of the chain that is here, behind `parent`."""
        names = chain.hashes[start:stop]
        if not names or names[0] not in self.by_hash:
            return []
        found = self._proposed(names)
        parents = [parent, *map(self.identities.__getitem__, found)]
        parents.pop()
        if (
            list(map(self.contents.__getitem__, found))
            == chain.contents[start : start + len(found)]
            and list(map(self.parents.__getitem__, found)) == parents
        ):
            return found
        return found[: self._equal(chain, start, found, parent)]

    def _proposed(self, names: Sequence[BlockHash]) -> list[int]:
        """The blocks of the leading hashes that are here."""
        by_hash = self.by_hash
        try:
            return [by_hash[name] for name in names]
        except KeyError:
            return [by_hash[name] for name in takewhile(by_hash.__contains__, names)]

    def _equal(self, chain: BlockChain, start: int, found: list[int], parent: Parent) -> int:
        for count, block in enumerate(found):
            if not self.holds(block, chain.contents[start + count], parent):
                return count
            parent = self.identities[block]
        return len(found)

    def holds(self, block: int, content: bytes, parent: Parent) -> bool:
        """Whether a block that has a hash is this content behind this parent."""
        return self.contents[block] == content and self.parents[block] == parent

    def has_none_of(self, hashes: Sequence[BlockHash]) -> bool:
        """Whether all of these hashes are new here, and different."""
        names = set(hashes)
        return len(names) == len(hashes) and self.by_hash.keys().isdisjoint(names)

    def put(
        self,
        blocks: Sequence[int],
        chain: BlockChain,
        start: int,
        parent: Parent,
        identities: Sequence[int],
    ) -> None:
        """Blocks hold consecutive contents of the chain from `start` on, the first behind `parent`.

        The hashes are new here: `has_none_of` was asked.
        """
        hashes = chain.hashes[start : start + len(blocks)]
        contents = chain.contents[start : start + len(blocks)]
        self.by_hash.update(zip(hashes, blocks, strict=True))
        before = chain.hashes[start - 1] if start else None
        for block, name, content, identity in zip(
            blocks, hashes, contents, identities, strict=True
        ):
            self.before[block] = before
            self.hashes[block] = before = name
            self.contents[block] = content
            self.parents[block] = parent
            self.identities[block] = parent = identity

    def copy(self, source: BlockIndex, block: int, to: int) -> None:
        """Block `to` holds what `block` of another index holds. The hash is new here."""
        name = source.hashes[block]
        assert name is not None
        self.by_hash[name] = to
        self.hashes[to] = name
        self.before[to] = source.before[block]
        self.contents[to] = source.contents[block]
        self.parents[to] = source.parents[block]
        self.identities[to] = source.identities[block]

    def runs(self, blocks: Sequence[int]) -> Iterator[list[int]]:
        """The blocks, as runs in which each is the parent of the next one."""
        run: list[int] = []
        for block in blocks:
            if run and self.before[block] != self.hashes[run[-1]]:
                yield run
                run = []
            run.append(block)
        if run:
            yield run

    def drop(self, blocks: Sequence[int]) -> tuple[BlockHash, ...]:
        """Blocks hold nothing from now on. Returns the hashes that are gone."""
        gone = []
        for block in blocks:
            name = self.hashes[block]
            if name is not None:
                del self.by_hash[name]
                gone.append(name)
            self.hashes[block] = None
        return tuple(gone)

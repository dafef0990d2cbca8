"""What is true of a block pool between two calls."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from trivet.prefix.pool.block_table import BlockTable
from trivet.prefix.pool.index import BlockIndex
from trivet.prefix.pool.offload import OffloadTier
from trivet.prefix.pool.shares import PLATFORM

if TYPE_CHECKING:
    from trivet.prefix.pool.blocks import BlockPool


def check_pool(pool: BlockPool) -> None:
    """Raise `AssertionError` naming the first contradiction."""
    pool.queue.check_integrity()
    check_index(pool.index)
    users = Counter(block for table in pool.tables for block in table.blocks)
    users.update(pool.pinned)
    free = pool.queue.order()
    assert len(set(free)) == len(free), "a block is free twice"
    assert [users[block] for block in range(pool.capacity)] == pool.users, "user counts"
    assert {block for block in range(pool.capacity) if not users[block]} == set(free), "free blocks"
    blank = set(free[: pool.queue.blank])
    for block in free:
        assert (pool.queue.owner[block] is None) == (block in blank), f"{block}: owner"
        assert (pool.index.hashes[block] is None) == (block in blank), f"{block}: free and hashed"
    for block in pool.pinned:
        owner = pool.queue.owner[block]
        assert owner is not None, f"{block}: pinned and blank"
        assert owner.name == PLATFORM, f"{block}: pinned for {owner.name}"
    for name, table in pool.computing.items():
        assert table in pool.tables, "computed by a sequence that is gone"
        assert name not in table.chain.hashes[: table.committed], "computed and committed"
    for table in pool.tables:
        _check_table(pool, table, users)
    if pool.offload is not None:
        for tier in pool.offload.tiers():
            check_tier(tier)


def check_index(index: BlockIndex) -> None:
    """Each hash names one block, and that block has this hash."""
    hashed = {name: block for block, name in enumerate(index.hashes) if name is not None}
    assert hashed == index.by_hash, "hashes and blocks"
    identities = [index.identities[block] for block in hashed.values()]
    assert len(set(identities)) == len(identities), "an identity is given twice"


def check_tier(tier: OffloadTier) -> None:
    """Between two calls of the pool no slot is held."""
    tier.queue.check_integrity()
    check_index(tier.index)
    assert tier.queue.blank + tier.queue.idle == tier.queue.capacity, f"{tier.medium}: a slot leaks"
    cached = set(tier.queue.order()[tier.queue.blank :])
    assert cached == set(tier.index.by_hash.values()), f"{tier.medium}: slots and hashes"


def _check_table(pool: BlockPool, table: BlockTable, users: Counter[int]) -> None:
    chain, index = table.chain, pool.index
    assert len(table.blocks) == chain.blocks, "a table has a block for each of its tokens"
    assert len(set(table.blocks)) == len(table.blocks), "a block is in a table twice"
    committed = table.committed if pool.is_current(table) else 0
    for at, block in enumerate(table.blocks):
        if at < committed:
            assert index.hashes[block] == chain.hashes[at], f"{block}: committed under its hash"
            assert index.contents[block] == chain.contents[at], f"{block}: committed content"
        elif pool.is_current(table):
            assert users[block] == 1, f"{block}: shared and not committed"
            assert index.hashes[block] is None, f"{block}: offered and not committed"

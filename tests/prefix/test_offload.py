from __future__ import annotations

from collections.abc import Sequence

import pytest
from prefix_builders import SIZE, admitted, cached, chain, prompt, warmed

from trivet.errors import StoreError
from trivet.prefix.pool.block_table import BlockTable
from trivet.prefix.pool.blocks import BlockPool
from trivet.prefix.pool.hashing import BlockHash
from trivet.prefix.pool.offload import BytesMover, OffloadTier
from trivet.prefix.pool.shares import Share, Shares


class Rig:
    """A pool whose KV is bytes, over host slots and, if asked, disk slots."""

    def __init__(
        self, blocks: int, host: int, disk: int = 0, *, shares: Shares | None = None
    ) -> None:
        self.device = [b""] * blocks
        self.host = FailingMover(self.device, host)
        below = None
        if disk:
            self.disk = FailingMover(self.host.slots, disk, self.device)
            below = OffloadTier(disk, self.disk, medium="disk")
        self.tier = OffloadTier(host, self.host, shares=shares, below=below)
        self.pool = BlockPool(blocks, SIZE, offload=self.tier)

    def warm(self, tokens: Sequence[int], tenant: str = "acme") -> BlockTable:
        table = admitted(self.pool, tokens, tenant)
        self.compute(table)
        self.pool.release(table)
        self.pool.check_integrity()
        return table

    def compute(self, table: BlockTable) -> None:
        for at in range(table.committed, len(table.chain.hashes)):
            self.device[table.blocks[at]] = table.chain.hashes[at]
        self.pool.commit(table, table.chain.length)

    def kv(self, table: BlockTable) -> list[bytes]:
        return [self.device[block] for block in table.blocks[: table.committed]]


class FailingMover(BytesMover):
    failing = False

    def copy_out(self, sources: Sequence[int], slots: Sequence[int]) -> None:
        if self.failing:
            for slot in slots:
                self.slots[slot] = b"half a copy"
            raise StoreError("memory")
        super().copy_out(sources, slots)

    def copy_in(self, slots: Sequence[int], blocks: Sequence[int]) -> None:
        if self.failing:
            for block in blocks:
                self.device[block] = b"half a copy"
            raise RuntimeError("the driver")
        super().copy_in(slots, blocks)


def test_an_evicted_prefix_comes_back_with_its_kv() -> None:
    rig = Rig(blocks=4, host=8)
    rig.warm(prompt(3))
    rig.warm(prompt(3, first=500))
    match = rig.pool.match(chain(prompt(3)))
    assert (match.cached_tokens, match.offloaded_tokens) == (12, 12)
    table = admitted(rig.pool, prompt(3))
    assert (table.cached_tokens, table.offloaded_tokens) == (12, 12)
    assert rig.kv(table) == table.chain.hashes
    counters = rig.pool.counters()["acme"]
    assert (counters.hits, counters.offload_hits) == (12, 12)
    rig.pool.check_integrity()


def test_a_prefix_is_put_together_from_the_device_and_the_host() -> None:
    rig = Rig(blocks=5, host=8)
    rig.warm(prompt(3))
    rig.warm(prompt(2, first=500))
    match = rig.pool.match(chain(prompt(3)))
    assert (match.cached_tokens, match.offloaded_tokens) == (12, 4)
    table = admitted(rig.pool, prompt(3))
    assert rig.kv(table) == table.chain.hashes


def test_a_block_that_came_back_is_shared_at_once() -> None:
    rig = Rig(blocks=6, host=8)
    rig.warm(prompt(2))
    rig.warm(prompt(5, first=500))
    admitted(rig.pool, prompt(2))
    match = rig.pool.match(chain(prompt(2)))
    assert (match.cached_tokens, match.offloaded_tokens) == (8, 0)


def test_what_the_host_pushes_out_goes_to_the_disk() -> None:
    rig = Rig(blocks=4, host=3, disk=8)
    for first in (100, 500, 900):
        rig.warm(prompt(3, first=first))
    table = admitted(rig.pool, prompt(3, first=100))
    assert table.offloaded_tokens == 12
    assert rig.kv(table) == table.chain.hashes
    rig.pool.check_integrity()


def test_a_host_that_is_too_small_keeps_the_head_of_a_prefix() -> None:
    rig = Rig(blocks=4, host=2)
    rig.warm(prompt(3))
    rig.warm(prompt(3, first=500))
    assert cached(rig.pool, prompt(3)) == 8


def held(rig: Rig) -> list[BlockHash | None]:
    """The hashes in the host's slots, the one that goes first first."""
    queue = rig.tier.queue
    return [rig.tier.index.hashes[slot] for slot in queue.order()[queue.blank :]]


def test_what_was_read_goes_last_and_its_tail_before_its_parents() -> None:
    rig = Rig(blocks=4, host=8)
    rig.warm(prompt(3))
    rig.warm(prompt(3, first=500))
    admitted(rig.pool, prompt(3))
    first, second = chain(prompt(3)).hashes, chain(prompt(3, first=500)).hashes
    assert held(rig) == [*second[::-1], *first[::-1]]


def test_a_tail_that_is_known_goes_between_its_child_and_its_parent() -> None:
    rig = Rig(blocks=4, host=8)
    table = admitted(rig.pool, prompt(3))
    rig.compute(table)
    first, middle, last, _ = table.blocks
    rig.tier.store(rig.pool.index, [middle], "acme")
    rig.tier.store(rig.pool.index, [last, middle, first], "acme")
    assert held(rig) == chain(prompt(3)).hashes[::-1]
    rig.pool.check_integrity()


def test_a_slot_that_is_held_is_left_alone_when_its_content_comes_again() -> None:
    rig = Rig(blocks=4, host=8)
    table = admitted(rig.pool, prompt(1))
    rig.compute(table)
    rig.tier.store(rig.pool.index, table.blocks[:1], "acme")
    slots = list(rig.tier.index.by_hash.values())
    rig.tier.hold(slots)
    rig.tier.store(rig.pool.index, table.blocks[:1], "acme")
    rig.tier.let_go(slots)
    rig.pool.check_integrity()


def test_without_a_disk_the_host_forgets_the_oldest() -> None:
    rig = Rig(blocks=4, host=3)
    for first in (100, 500, 900):
        rig.warm(prompt(3, first=first))
    found = [cached(rig.pool, prompt(3, first=first)) for first in (100, 500, 900)]
    assert found == [0, 12, 12]


def test_a_copy_that_is_there_already_is_not_made_again() -> None:
    rig = Rig(blocks=4, host=8)
    rig.warm(prompt(3))
    rig.warm(prompt(3, first=500))
    rig.warm(prompt(3))
    rig.host.failing = True
    rig.warm(prompt(3, first=500))
    assert rig.tier.failures == 1
    rig.host.failing = False
    assert admitted(rig.pool, prompt(3)).offloaded_tokens == 12


def test_a_copy_out_that_fails_costs_the_prefix_and_nothing_else() -> None:
    rig = Rig(blocks=4, host=8)
    rig.warm(prompt(3))
    rig.host.failing = True
    rig.warm(prompt(3, first=500))
    assert cached(rig.pool, prompt(3)) == 0
    assert (rig.tier.failures, rig.tier.queue.blank) == (1, 8)


def test_a_copy_in_that_fails_is_computed_instead() -> None:
    rig = Rig(blocks=4, host=8)
    rig.warm(prompt(3))
    rig.warm(prompt(3, first=500))
    rig.host.failing = True
    table = admitted(rig.pool, prompt(3))
    assert (table.cached_tokens, table.committed) == (0, 0)
    assert rig.tier.index.by_hash == {}
    rig.pool.check_integrity()
    rig.compute(table)
    rig.pool.check_integrity()
    assert cached(rig.pool, prompt(3)) == 12


def test_where_the_host_fails_the_disk_is_not_read_behind_the_gap() -> None:
    rig = Rig(blocks=4, host=2, disk=8)
    rig.warm(prompt(3))
    rig.warm(prompt(3, first=500))
    match = rig.pool.match(chain(prompt(3)))
    assert match.offloaded_tokens == 12
    rig.host.failing = True
    table = admitted(rig.pool, prompt(3))
    assert table.cached_tokens < 12
    rig.pool.check_integrity()


def test_slots_that_are_about_to_be_read_are_not_given_away() -> None:
    """The admission that reads two slots evicts two blocks, for which there is no other slot."""
    rig = Rig(blocks=3, host=2)
    rig.warm(prompt(2))
    rig.warm(prompt(2, first=500))
    table = admitted(rig.pool, prompt(2))
    assert table.offloaded_tokens == 8
    assert rig.kv(table) == table.chain.hashes
    rig.pool.check_integrity()


def test_children_on_the_host_stay_reachable_when_their_parent_is_computed_anew() -> None:
    rig = Rig(blocks=4, host=8)
    rig.warm(prompt(3))
    rig.warm(prompt(3, first=500))
    table = rig.pool.admit(chain(prompt(1)), "acme", reuse=False)
    assert table is not None
    rig.compute(table)
    rig.pool.release(table)
    match = rig.pool.match(chain(prompt(3)))
    assert (match.cached_tokens, match.offloaded_tokens) == (12, 8)


def test_another_tenants_slots_are_bounded_by_shares() -> None:
    shares = Shares({"acme": Share(floor=2), "flood": Share(quota=3)})
    rig = Rig(blocks=4, host=6, shares=shares)
    rig.warm(prompt(2))
    for first in range(500, 1500, 100):
        rig.warm(prompt(3, first=first), "flood")
    assert cached(rig.pool, prompt(2)) == 8
    assert rig.tier.queue.tenant("flood").held == 3


def test_another_salt_reads_no_slot() -> None:
    rig = Rig(blocks=4, host=8)
    rig.warm(prompt(3))
    rig.warm(prompt(3, first=500))
    assert cached(rig.pool, prompt(3), "globex") == 0


def test_an_equal_hash_reads_no_slot_of_other_tokens() -> None:
    rig = Rig(blocks=4, host=8)
    rig.warm(prompt(3))
    rig.warm(prompt(3, first=500))
    forged = chain(prompt(3, first=700))
    forged.hashes[:] = chain(prompt(3)).hashes
    assert rig.pool.match(forged).cached_tokens == 0


def test_an_outdated_slot_under_the_same_hash_is_replaced() -> None:
    rig = Rig(blocks=4, host=8)
    rig.warm(prompt(3))
    rig.warm(prompt(3, first=500))
    forged = chain(prompt(3, first=700))
    forged.hashes[:] = chain(prompt(3)).hashes
    table = rig.pool.admit(forged, "acme")
    assert table is not None
    rig.pool.commit(table, 13)
    rig.pool.release(table)
    rig.warm(prompt(3, first=500))
    rig.pool.check_integrity()
    assert cached(rig.pool, prompt(3)) == 0
    assert rig.pool.match(forged).offloaded_tokens == 12


def test_a_refused_admission_leaves_the_slots_as_they_were() -> None:
    rig = Rig(blocks=4, host=8)
    rig.warm(prompt(3))
    rig.warm(prompt(3, first=500))
    running = admitted(rig.pool, [1, 2])
    before = rig.tier.queue.order()
    assert rig.pool.admit(chain(prompt(3)), "acme") is None
    assert rig.tier.queue.order() == before
    rig.pool.release(running)
    rig.pool.check_integrity()


def test_clearing_reaches_every_tier() -> None:
    rig = Rig(blocks=4, host=3, disk=8)
    for first in (100, 500, 900):
        rig.warm(prompt(3, first=first))
    rig.pool.clear()
    rig.pool.check_integrity()
    found = [cached(rig.pool, prompt(3, first=first)) for first in (100, 500, 900)]
    assert found == [0, 0, 0]


def test_a_tier_needs_a_slot() -> None:
    with pytest.raises(ValueError, match="at least 1 block"):
        OffloadTier(0, BytesMover([], 0))


def test_a_pool_without_second_tier_forgets_what_it_evicts() -> None:
    pool = BlockPool(4, SIZE)
    warmed(pool, prompt(3))
    warmed(pool, prompt(3, first=500))
    assert cached(pool, prompt(3)) == 0

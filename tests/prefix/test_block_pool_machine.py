"""Random admissions, appends, commits and releases, beside a plain model of the same."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from naive_pool import NaivePool, NaiveTable
from prefix_builders import SIZE, chain

from trivet.errors import OutOfBlocks
from trivet.prefix.pool.block_table import BlockTable
from trivet.prefix.pool.blocks import BlockPool
from trivet.prefix.pool.events import BlocksCleared, BlocksStored, KvEvent
from trivet.prefix.pool.hashing import BlockHash
from trivet.prefix.pool.shares import Share, Shares

TENANTS = ("acme", "globex", "initech")

PROMPTS = st.builds(
    lambda kinds, tail: [kind for kind in kinds for _ in range(SIZE)] + [7] * tail,
    st.lists(st.sampled_from([0, 1, 2]), min_size=1, max_size=4),
    st.integers(0, SIZE),
)
"""Prompts out of three kinds of block and a tail, so that many of them share prefixes."""

SHARES = st.fixed_dictionaries(
    {},
    optional={
        "acme": st.sampled_from([Share(floor=2), Share(quota=4), Share(quota=6, floor=3)]),
        "globex": st.sampled_from([Share(floor=3), Share(quota=3)]),
    },
)


class PoolBesideModel(RuleBasedStateMachine):
    pairs: list[tuple[BlockTable, NaiveTable]]

    @initialize(capacity=st.integers(6, 10), shares=SHARES)
    def start(self, capacity: int, shares: dict[str, Share]) -> None:
        self.known: set[BlockHash] = set()
        self.pool = BlockPool(capacity, SIZE, shares=Shares(shares), emit=self._learn)
        self.model = NaivePool(capacity, SIZE, shares)
        self.pairs = []
        for tenant in TENANTS:
            self.pool.queue.tenant(tenant)

    def _learn(self, event: KvEvent) -> None:
        """What a router makes of the events."""
        if isinstance(event, BlocksCleared):
            self.known.clear()
        elif isinstance(event, BlocksStored):
            assert event.parent is None or event.parent in self.known
            assert self.known.isdisjoint(event.hashes)
            self.known.update(event.hashes)
        else:
            assert self.known.issuperset(event.hashes)
            self.known.difference_update(event.hashes)

    @rule(tenant=st.sampled_from(TENANTS), tokens=PROMPTS)
    def admit(self, tenant: str, tokens: list[int]) -> None:
        self._admit(tenant, tokens)

    def _admit(self, tenant: str, tokens: list[int]) -> None:
        made = chain(tokens, f"{tenant}-salt")
        expected = len(self.model.lookup(tenant, tokens)) * SIZE
        assert self.pool.match(made).cached_tokens == expected
        try:
            table = self.pool.admit(made, tenant)
        except OutOfBlocks:
            assert made.blocks > self.model.ceiling(tenant)
            return
        assert made.blocks <= self.model.ceiling(tenant)
        twin = self.model.admit(tenant, tokens)
        assert (table is None) == (twin is None)
        if table is not None and twin is not None:
            assert table.cached_tokens == expected
            self.pairs.append((table, twin))

    @rule(tenant=st.sampled_from(TENANTS), tokens=PROMPTS)
    def serve_whole(self, tenant: str, tokens: list[int]) -> None:
        before = len(self.pairs)
        self._admit(tenant, tokens)
        for table, twin in self.pairs[before:]:
            self.pool.commit(table, len(tokens))
            self.model.commit(twin, len(tokens))
            self.pool.release(table)
            self.model.release(twin)
        del self.pairs[before:]

    @precondition(lambda self: self.pairs)
    @rule(data=st.data(), tokens=st.lists(st.sampled_from([0, 1]), min_size=1, max_size=6))
    def append(self, data: st.DataObject, tokens: list[int]) -> None:
        table, twin = data.draw(st.sampled_from(self.pairs))
        assert self.pool.append(table, tokens) == self.model.append(twin, tokens)

    @precondition(lambda self: self.pairs)
    @rule(data=st.data(), share=st.floats(0, 1))
    def commit(self, data: st.DataObject, share: float) -> None:
        table, twin = data.draw(st.sampled_from(self.pairs))
        computed = round(share * table.chain.length)
        self.pool.commit(table, computed)
        self.model.commit(twin, computed)

    @precondition(lambda self: self.pairs)
    @rule(data=st.data(), again=st.booleans())
    def release_or_preempt(self, data: st.DataObject, again: bool) -> None:
        pair = data.draw(st.sampled_from(self.pairs))
        self.pairs.remove(pair)
        self.pool.release(pair[0], preempted=again)
        self.model.release(pair[1])
        if again:
            self._admit(pair[1].tenant, pair[1].tokens)

    @rule(seldom=st.integers(0, 15))
    def clear(self, seldom: int) -> None:
        if seldom != 15:
            return
        self.pool.clear()
        self.model.clear()

    @invariant()
    def agree(self) -> None:
        if not hasattr(self, "pool"):
            return
        self.pool.check_integrity()
        assert self.pool.queue.order() == [*self.model.blank, *self.model.idle]
        assert [table.blocks for table, _ in self.pairs] == [twin.blocks for _, twin in self.pairs]
        assert [table.committed for table, _ in self.pairs] == [
            twin.committed for _, twin in self.pairs
        ]
        assert self.known == set(self.pool.index.by_hash)
        counted = {name: each.evictions for name, each in self.pool.counters().items()}
        assert {name: n for name, n in counted.items() if n} == self.model.evictions

    @invariant()
    def parents_stay_with_their_children(self) -> None:
        if not hasattr(self, "pool"):
            return
        index = self.pool.index
        for block in index.by_hash.values():
            before = index.before[block]
            if before is not None:
                parent = index.by_hash[before]
                assert index.parents[block] == index.identities[parent]
                assert self.pool.users[parent] >= self.pool.users[block]

    def teardown(self) -> None:
        if hasattr(self, "pool"):
            for table, _ in self.pairs:
                self.pool.release(table)
            self.pool.check_integrity()
            assert self.pool.state().used == 0


TestPoolBesideModel: Any = PoolBesideModel.TestCase
TestPoolBesideModel.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)

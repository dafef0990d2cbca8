"""Random use of a pool over two more tiers whose copies fail at times: KV is always the right one.

The KV of a block is text that names the salt and every token up to its end, so that a block of
another tenant, another prefix, or a half-made copy shows at once.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from prefix_builders import SIZE, chain
from test_block_pool_machine import PROMPTS, SHARES, TENANTS
from test_offload import FailingMover

from trivet.errors import OutOfBlocks
from trivet.prefix.pool.block_table import BlockTable
from trivet.prefix.pool.blocks import BlockPool
from trivet.prefix.pool.events import BlocksCleared, BlocksStored, KvEvent, Medium
from trivet.prefix.pool.hashing import BlockHash, pack
from trivet.prefix.pool.offload import OffloadTier
from trivet.prefix.pool.shares import Share, Shares

PLATFORM = [pack([0] * SIZE)]


class PoolOverTwoTiers(RuleBasedStateMachine):
    @initialize(
        capacity=st.integers(6, 9),
        host=st.integers(3, 6),
        disk=st.integers(3, 6),
        shares=SHARES,
        bounded=st.booleans(),
        platform=st.booleans(),
    )
    def start(
        self,
        capacity: int,
        host: int,
        disk: int,
        shares: dict[str, Share],
        bounded: bool,
        platform: bool,
    ) -> None:
        self.device = [b""] * capacity
        self.movers = [FailingMover(self.device, host)]
        self.movers.append(FailingMover(self.movers[0].slots, disk, self.device))
        below = OffloadTier(disk, self.movers[1], medium="disk")
        bounds = Shares({"acme": Share(quota=2)}) if bounded else None
        tier = OffloadTier(host, self.movers[0], shares=bounds, below=below)
        self.known: dict[Medium, set[BlockHash]] = {"device": set(), "host": set(), "disk": set()}
        self.pool = BlockPool(capacity, SIZE, shares=Shares(shares), offload=tier, emit=self._learn)
        self.platform = PLATFORM if platform else []
        self.running: list[tuple[BlockTable, str, list[int]]] = []

    def _learn(self, event: KvEvent) -> None:
        if isinstance(event, BlocksCleared):
            for known in self.known.values():
                known.clear()
        elif isinstance(event, BlocksStored):
            assert self.known[event.medium].isdisjoint(event.hashes)
            self.known[event.medium].update(event.hashes)
        else:
            assert self.known[event.medium].issuperset(event.hashes)
            self.known[event.medium].difference_update(event.hashes)

    @rule(tenant=st.sampled_from(TENANTS), tokens=PROMPTS, whole=st.booleans())
    def admit(self, tenant: str, tokens: list[int], whole: bool) -> None:
        made = chain(tokens, f"{tenant}-salt", self.platform)
        match = self.pool.match(made)
        try:
            table = self.pool.admit(made, tenant)
        except OutOfBlocks:
            return
        if table is not None:
            failing = any(mover.failing for mover in self.movers)
            assert table.cached_tokens == match.cached_tokens or failing
            assert table.cached_tokens < len(tokens)
            self.running.append((table, tenant, list(tokens)))
            if whole:
                self._compute(self.running[-1], len(tokens))
                self.pool.release(table)
                self.running.pop()

    @precondition(lambda self: self.running)
    @rule(data=st.data(), tokens=st.lists(st.sampled_from([0, 1]), min_size=1, max_size=6))
    def append(self, data: st.DataObject, tokens: list[int]) -> None:
        table, _, known = data.draw(st.sampled_from(self.running))
        if self.pool.append(table, tokens):
            known.extend(tokens)

    @precondition(lambda self: self.running)
    @rule(data=st.data(), share=st.floats(0, 1))
    def compute(self, data: st.DataObject, share: float) -> None:
        running = data.draw(st.sampled_from(self.running))
        self._compute(running, round(share * len(running[2])))

    def _compute(self, running: tuple[BlockTable, str, list[int]], computed: int) -> None:
        table, tenant, tokens = running
        for at in range(table.committed, -(-computed // SIZE)):
            self.device[table.blocks[at]] = self._kv(table, tenant, tokens[:computed], at)
        self.pool.commit(table, computed)

    def _kv(self, table: BlockTable, tenant: str, tokens: list[int], at: int) -> bytes:
        owner = "platform" if at < table.chain.shared else tenant
        return f"{owner} {tokens[: (at + 1) * SIZE]}".encode()

    @precondition(lambda self: self.running)
    @rule(data=st.data(), preempted=st.booleans())
    def release(self, data: st.DataObject, preempted: bool) -> None:
        running = data.draw(st.sampled_from(self.running))
        self.running.remove(running)
        self.pool.release(running[0], preempted=preempted)

    @rule(tier=st.sampled_from([0, 1]), failing=st.booleans())
    def break_or_mend(self, tier: int, failing: bool) -> None:
        self.movers[tier].failing = failing

    @rule(seldom=st.integers(0, 15))
    def clear(self, seldom: int) -> None:
        if seldom != 15:
            return
        self.pool.clear()

    @invariant()
    def hold(self) -> None:
        if not hasattr(self, "pool"):
            return
        self.pool.check_integrity()
        for table, tenant, tokens in self.running:
            for at in range(table.committed):
                assert self.device[table.blocks[at]] == self._kv(table, tenant, tokens, at)
        assert self.known["device"] == set(self.pool.index.by_hash)
        assert self.pool.offload is not None
        for tier in self.pool.offload.tiers():
            assert self.known[tier.medium] == set(tier.index.by_hash)

    def teardown(self) -> None:
        if hasattr(self, "pool"):
            for table, _, _ in self.running:
                self.pool.release(table)
            self.pool.check_integrity()
            assert self.pool.state().used == 0


TestPoolOverTwoTiers: Any = PoolOverTwoTiers.TestCase
TestPoolOverTwoTiers.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)

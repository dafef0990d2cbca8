"""The block pool again, as plain as it can be: lists, searches from the start, copies to undo.

It knows no hashes: what a block caches is the whole prefix, salt and all. The property tests
compare it with the real one, block by block and in the order of the free blocks.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field

from trivet.prefix.pool.shares import Share

Prefix = tuple[str, tuple[int, ...]]
"""A salt, and all tokens up to the end of a block."""


@dataclass
class NaiveTable:
    tenant: str
    tokens: list[int]
    blocks: list[int]
    committed: int
    current: bool = True


@dataclass
class NaivePool:
    capacity: int
    size: int
    shares: dict[str, Share]
    blank: list[int] = field(default_factory=list)
    idle: list[int] = field(default_factory=list)
    holds: dict[int, Prefix] = field(default_factory=dict)
    owner: dict[int, str] = field(default_factory=dict)
    users: dict[int, int] = field(default_factory=dict)
    evictions: dict[str, int] = field(default_factory=dict)
    tables: list[NaiveTable] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.blank = list(range(self.capacity))

    def share(self, tenant: str) -> Share:
        return self.shares.get(tenant, Share())

    def held(self, tenant: str) -> int:
        return list(self.owner.values()).count(tenant)

    def where(self, prefix: Prefix) -> int | None:
        return next((block for block, held in self.holds.items() if held == prefix), None)

    def lookup(self, tenant: str, tokens: list[int]) -> list[int]:
        found: list[int] = []
        while (len(found) + 1) * self.size < len(tokens):
            block = self.where((tenant, tuple(tokens[: (len(found) + 1) * self.size])))
            if block is None:
                break
            found.append(block)
        return found

    def ceiling(self, tenant: str) -> int:
        others = sum(share.floor for name, share in self.shares.items() if name != tenant)
        most = self.capacity - others
        quota = self.share(tenant).quota
        return most if quota is None else min(most, quota)

    def take(self, tenant: str, count: int) -> list[int] | None:
        """Blocks for the tenant, or None and nothing done."""
        before = copy.deepcopy((self.blank, self.idle, self.holds, self.owner, self.evictions))
        taken: list[int] = []
        quota = self.share(tenant).quota
        over = 0 if quota is None else max(0, self.held(tenant) + count - quota)
        for number in range(count):
            own = [block for block in self.idle if self.owner[block] == tenant]
            if number < over:
                candidates = own
            elif self.blank:
                candidates = [self.blank.pop(0)]
            else:
                spare = [block for block in self.idle if self._is_spare(self.owner[block])]
                candidates = spare or own
            if not candidates:
                self.blank, self.idle, self.holds, self.owner, self.evictions = before
                return None
            taken.append(candidates[0])
            self._evict(candidates[0])
        for block in taken:
            self.owner[block] = tenant
            self.users[block] = 1
        # The real pool lists blank blocks before evicted ones.
        return sorted(taken, key=lambda block: block not in before[0])

    def _is_spare(self, tenant: str) -> bool:
        return self.held(tenant) > self.share(tenant).floor

    def _evict(self, block: int) -> None:
        if block in self.idle:
            self.idle.remove(block)
            del self.holds[block]
            name = self.owner.pop(block)
            self.evictions[name] = self.evictions.get(name, 0) + 1

    def admit(self, tenant: str, tokens: list[int]) -> NaiveTable | None:
        found = self.lookup(tenant, tokens)
        idle = list(self.idle)
        self.idle = [block for block in self.idle if block not in found]
        new = self.take(tenant, -(-len(tokens) // self.size) - len(found))
        if new is None:
            self.idle = idle
            return None
        for block in found:
            self.users[block] = self.users.get(block, 0) + 1
        table = NaiveTable(tenant, list(tokens), found + new, len(found))
        self.tables.append(table)
        return table

    def append(self, table: NaiveTable, tokens: list[int]) -> bool:
        total = len(table.tokens) + len(tokens)
        new = self.take(table.tenant, max(0, -(-total // self.size) - len(table.blocks)))
        if new is None:
            return False
        table.tokens += tokens
        table.blocks += new
        return True

    def commit(self, table: NaiveTable, computed: int) -> None:
        while table.current and (table.committed + 1) * self.size <= computed:
            at = table.committed
            prefix = (table.tenant, tuple(table.tokens[: (at + 1) * self.size]))
            twin, own = self.where(prefix), table.blocks[at]
            if twin is None:
                self.holds[own] = prefix
            else:
                if twin in self.idle:
                    self.idle.remove(twin)
                self.users[twin] = self.users.get(twin, 0) + 1
                table.blocks[at] = twin
                self.users[own] = 0
                del self.owner[own]
                self.blank.insert(0, own)
            table.committed += 1

    def release(self, table: NaiveTable) -> None:
        self.tables.remove(table)
        blank = []
        for block in reversed(table.blocks):
            self.users[block] -= 1
            if self.users[block]:
                continue
            if block in self.holds:
                self.idle.append(block)
            else:
                del self.owner[block]
                blank.append(block)
        self.blank = blank + self.blank

    def clear(self) -> None:
        for table in self.tables:
            table.current = False
        for tenant in sorted(set(self.owner.values())):
            gone = [block for block in self.idle if self.owner[block] == tenant]
            for block in gone:
                del self.owner[block]
                self.idle.remove(block)
            self.blank = gone + self.blank
        self.holds = {}

"""The store in memory."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar, cast

import pytest
from entries import NOW, Clock, entry, key
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from store_contract import FREE, StoreContract, held

from trivet.exact.entry import Entry
from trivet.exact.memory import MemoryStore
from trivet.exact.store import Bound

SIZE = entry().size
T = TypeVar("T")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(clock: Clock) -> MemoryStore:
    return MemoryStore(1 << 20, 1000, clock=clock)


class TestMemoryStore(StoreContract):
    """The contract, in memory."""


async def test_it_holds_at_most_its_entries(clock: Clock) -> None:
    store = MemoryStore(1 << 30, 10, clock=clock)
    for number in range(100):
        await store.put(entry(f"n{number}"), FREE)
    usage = await store.usage(None)
    assert (usage.entries, usage.bytes, usage.evictions) == (10, usage.bytes, 90)


async def test_it_holds_at_most_its_bytes(clock: Clock) -> None:
    store = MemoryStore(5 * SIZE, 1000, clock=clock)
    for number in range(20):
        await store.put(entry(f"n{number}", tenant=f"t{number % 3}"), FREE)
        usage = await store.usage(None)
        assert usage.bytes is not None
        assert usage.bytes <= 5 * SIZE


async def test_an_entry_larger_than_the_store_evicts_nothing(store: MemoryStore) -> None:
    await store.put(entry("a"), FREE)
    await store.put(entry("b", body=b"x" * (2 << 20)), FREE)
    assert await held(store, "a", "b") == ["a"]


async def test_a_scan_does_not_flush_what_is_asked_for_often(clock: Clock) -> None:
    store = MemoryStore(1 << 30, 20, clock=clock)
    popular = [f"hot{number}" for number in range(10)]
    for name in popular:
        await store.put(entry(name), FREE)
    await held(store, *popular)
    for number in range(500):
        await store.put(entry(f"scan{number}"), FREE)
    assert await held(store, *popular) == popular


async def test_a_tenant_at_its_bound_keeps_what_was_asked_for(store: MemoryStore) -> None:
    for name in "abc":
        await store.put(entry(name), Bound(entries=3))
    await held(store, "a")
    await store.put(entry("d"), Bound(entries=3))
    assert await held(store, *"abcd") == ["a", "c", "d"]


async def test_expired_entries_leave_although_nobody_asks_for_them(
    store: MemoryStore, clock: Clock
) -> None:
    for number in range(50):
        await store.put(entry(f"n{number}", stale_until=NOW + number), FREE)
    clock.now = NOW + 200
    await store.put(entry("last", stale_until=NOW + 300), FREE)
    assert (await store.usage(None)).entries == 1


async def test_renderings_count_against_the_bytes_from_the_next_hit_on(clock: Clock) -> None:
    store = MemoryStore(10 * SIZE, 100, clock=clock)
    for name in "abcde":
        await store.put(entry(name), FREE)
    found = await store.get("t1", key("a"))
    assert found is not None
    found.memo["stream"] = b"x" * (7 * SIZE)
    assert await store.get("t1", key("a")) is found
    usage = await store.usage(None)
    assert usage.bytes is not None
    assert usage.bytes <= 10 * SIZE
    assert found.memo != {}


async def test_renderings_beyond_the_tenants_bytes_are_dropped_and_the_entry_stays(
    store: MemoryStore,
) -> None:
    await store.put(entry("a"), Bound(bytes=2 * SIZE))
    found = await store.get("t1", key("a"))
    assert found is not None
    found.memo["stream"] = b"x" * (3 * SIZE)
    assert await held(store, "a") == ["a"]
    assert found.memo == {}
    assert (await store.usage("t1")).bytes == SIZE


async def test_a_copy_from_another_store_respects_the_tenants_last_bound(
    store: MemoryStore,
) -> None:
    await store.put(entry("a"), Bound(entries=2))
    for name in "bcd":
        store.fill(entry(name))
    assert (await store.usage("t1")).entries == 2


async def test_tombstones_are_bounded_and_still_refuse_what_they_forgot(
    store: MemoryStore,
) -> None:
    store._tombstones._limit = 10
    for number in range(100):
        await store.purge("t1", f"tag:{number}", NOW + number)
    assert len(store._tombstones) == 10
    await store.put(entry("old", created=NOW, labels=frozenset({"tag:0"})), FREE)
    await store.put(entry("new", created=NOW + 95, labels=frozenset({"tag:0"})), FREE)
    assert await held(store, "old", "new") == ["new"]


async def test_short_lives_leave_no_timers_behind(clock: Clock) -> None:
    store = MemoryStore(1 << 30, 1, clock=clock)
    for number in range(2000):
        until = NOW + 60 * (number % 977) + 1
        await store.put(entry(f"n{number}", stale_until=until), FREE)
    assert len(store._soonest) <= 70
    assert len(store._buckets) == 1


NAMES = st.sampled_from([f"n{number}" for number in range(12)])
TENANTS = st.sampled_from(["t1", "t2"])
LABELS = st.sets(st.sampled_from(["tag:x", "tag:y"])).map(frozenset)
BOUNDS = st.builds(
    Bound,
    st.one_of(st.none(), st.integers(0, 4)),
    st.one_of(st.none(), st.integers(0, 5000)),
)


class MemoryMachine(RuleBasedStateMachine):
    """Against a plain model: it may forget, but never invent, and never outgrow its bounds."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.store = MemoryStore(8 * SIZE, 6, clock=self.clock)
        self.model: dict[tuple[str, str], Entry] = {}
        self.purged: dict[tuple[str, str | None], float] = {}
        self.bounds: dict[str, Bound] = {}

    @rule(
        name=NAMES,
        tenant=TENANTS,
        labels=LABELS,
        bound=BOUNDS,
        age=st.integers(0, 30),
        life=st.integers(1, 200),
        size=st.integers(0, 1500),
    )
    def put(
        self,
        name: str,
        tenant: str,
        labels: frozenset[str],
        bound: Bound,
        age: int,
        life: int,
        size: int,
    ) -> None:
        created = self.clock.now - age
        made = entry(
            name,
            tenant,
            labels=labels,
            created=created,
            expires=created + life,
            stale_until=created + life,
            body=b"x" * size,
        )
        _run(self.store.put(made, bound))
        names: list[str | None] = [None, *labels]
        if all(created > self.purged.get((tenant, label), -1.0) for label in names):
            self.model[tenant, name] = made
            self.bounds[tenant] = bound

    @rule(name=NAMES, tenant=TENANTS, memo=st.integers(0, 2000))
    def get(self, name: str, tenant: str, memo: int) -> None:
        found = _run(self.store.get(tenant, key(name)))
        if found is not None:
            assert found is self.model.get((tenant, name))
            assert found.stale_until > self.clock.now
            found.memo[str(memo)] = b"m" * memo

    @rule(name=NAMES, tenant=TENANTS)
    def delete(self, name: str, tenant: str) -> None:
        _run(self.store.delete(tenant, key(name)))
        self.model.pop((tenant, name), None)

    @rule(tenant=TENANTS, label=st.sampled_from([None, "tag:x", "tag:y"]), ago=st.integers(0, 20))
    def purge(self, tenant: str, label: str | None, ago: int) -> None:
        at = self.clock.now - ago
        _run(self.store.purge(tenant, label, at))
        self.purged[tenant, label] = max(at, self.purged.get((tenant, label), at))
        for name, made in list(self.model.items()):
            hit = label is None or label in made.labels
            if name[0] == tenant and hit and made.created <= at:
                del self.model[name]

    @rule(seconds=st.integers(1, 90))
    def wait(self, seconds: int) -> None:
        self.clock.now += seconds

    @invariant()
    def it_is_within_its_bounds(self) -> None:
        store = self.store
        nodes = [node for shelf in store._shelves.values() for node in shelf.nodes.values()]
        assert len(nodes) == len(store._order) <= 6
        assert sum(node.size for node in nodes) == store._bytes <= 8 * SIZE
        assert store._order._probation_bytes == sum(n.size for n in nodes if not n.main)
        assert {node for bucket in store._buckets.values() for node in bucket} == set(nodes)
        for tenant, shelf in store._shelves.items():
            assert shelf.nodes
            assert shelf.bytes == sum(node.size for node in shelf.nodes.values())
            assert shelf.has_room(0, 0), (tenant, shelf.bound)
            labelled = {(label, n) for n in shelf.nodes.values() for label in n.entry.labels}
            assert labelled == {(lb, n) for lb, some in shelf.labels.items() for n in some}


def _run(work: Coroutine[Any, Any, T]) -> T:
    """Drive a coroutine that never waits."""
    try:
        work.send(None)
    except StopIteration as stop:
        return cast("T", stop.value)
    raise AssertionError("the store waited")


MemoryMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestMemoryMachine = MemoryMachine.TestCase

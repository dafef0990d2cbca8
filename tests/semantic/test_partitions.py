"""All partitions together: bounds, purges, and who sees what."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from index_parts import DIMENSION, NOW, Clock, brute_force, entry, partition, vector

from trivet.semantic.partitions import IndexStats, PartitionedIndex, entry_bytes
from trivet.semantic.tombstones import Tombstones
from trivet.semantic.types import Record


def _index(most: int = 1000, **given: object) -> PartitionedIndex:
    bound: Callable[[str], int] = lambda tenant: most  # noqa: E731
    return PartitionedIndex(bound, **{"clock": Clock(), **given})  # type: ignore[arg-type]


def _texts(index: PartitionedIndex, tenant: str = "t1", now: float = NOW) -> set[str]:
    found = index.nearest(partition(f"{tenant} p"), vector(1), 1000, now)
    return {one.record.text.removeprefix("question ") for one in found}


def test_a_partition_finds_its_own_records_only() -> None:
    index = _index()
    index.add(entry("a"))
    index.add(entry("b", partition=partition("other")))
    index.add(entry("c", tenant="t2"))
    index.check_integrity()
    assert _texts(index) == {"a"}
    assert _texts(index, "t2") == {"c"}
    assert index.nearest(partition("none"), vector(1), 1, NOW) == []


def test_a_record_of_another_tenant_does_not_enter_a_partition() -> None:
    index = _index()
    index.add(entry("a"))
    assert not index.add(entry("b", tenant="t2", partition=partition("t1 p")))
    assert _texts(index) == {"a"}
    index.check_integrity()


def test_a_vector_of_another_length_is_refused_and_asks_in_vain() -> None:
    index = _index()
    assert index.add(entry("a"))
    assert not index.add(entry("b", vector=vector(1, 4).tobytes()))
    assert not index.add(entry("a", vector=b""))
    assert not index.add(entry("c", partition=partition("new"), vector=b"12345"))
    assert not index.add(entry("d", vector=np.full(DIMENSION, np.inf, "<f4").tobytes()))
    assert index.nearest(partition("t1 p"), vector(1, 4), 1, NOW) == []
    assert _texts(index) == {"a"}
    index.check_integrity()


def test_a_confirmed_record_takes_the_place_of_itself() -> None:
    index = _index()
    index.add(entry("a", confirmed=False))
    index.add(entry("a"))
    index.check_integrity()
    assert index.find("t1", entry("a").id) == entry("a")
    assert len(index) == 1


def test_a_record_that_changes_its_partition_leaves_the_old_one() -> None:
    index = _index()
    index.add(entry("a"))
    index.add(entry("a", partition=partition("other")))
    index.check_integrity()
    assert _texts(index) == set()
    assert index.stats() == IndexStats(1, entry_bytes(entry("a")), 1, 0)


def test_over_its_bound_a_tenant_loses_what_was_used_least_recently() -> None:
    index = _index(most=3)
    for name in "abc":
        index.add(entry(name))
    index.add(entry("z", tenant="t2"))
    index.touch("t1", entry("a").id)
    index.add(entry("d"))
    index.check_integrity()
    assert _texts(index) == {"a", "c", "d"}
    assert _texts(index, "t2") == {"z"}
    assert index.stats("t1").evictions == 1


def test_a_bound_of_nothing_takes_nothing() -> None:
    index = _index(most=0)
    assert not index.add(entry("a"))
    assert len(index) == 0


def test_over_all_bytes_the_largest_tenant_loses() -> None:
    size = entry_bytes(entry("a00"))
    index = _index(most_bytes=20 * size)
    for number in range(5):
        index.add(entry(f"b{number:02}", tenant="t2"))
    for number in range(40):
        index.add(entry(f"a{number:02}"))
    index.check_integrity()
    assert index.stats("t2").entries == 5
    assert _texts(index) >= {f"a{number:02}" for number in range(30, 40)}
    assert index.stats().bytes <= 20 * size


def test_a_purge_of_a_label_takes_what_was_created_by_then_and_refuses_what_comes_late() -> None:
    index = _index()
    docs = frozenset({"tag:docs"})
    index.add(entry("a", labels=docs))
    index.add(entry("b"))
    index.add(entry("c", labels=docs, created=NOW + 1))
    index.add(entry("d", tenant="t2", labels=docs))
    assert index.purge("t1", "tag:docs", NOW) == 1
    assert not index.add(entry("e", labels=docs, created=NOW))
    assert index.add(entry("f", labels=docs, created=NOW + 2))
    index.check_integrity()
    assert _texts(index) == {"b", "c", "f"}
    assert _texts(index, "t2") == {"d"}


def test_a_purge_of_a_tenant_takes_all_its_partitions() -> None:
    index = _index()
    index.add(entry("a"))
    index.add(entry("b", partition=partition("other")))
    index.add(entry("c", tenant="t2"))
    assert index.purge("t1", None, NOW) == 2
    assert not index.add(entry("a"))
    index.check_integrity()
    assert index.stats("t1") == IndexStats(0, 0, 0, 0)
    assert _texts(index, "t2") == {"c"}


def test_a_removed_record_does_not_come_back() -> None:
    index = _index()
    index.add(entry("a"))
    assert index.remove("t1", entry("a").id)
    assert not index.remove("t1", entry("a").id)
    assert not index.add(entry("a"))
    assert index.find("t1", entry("a").id) is None


def test_another_tenant_cannot_remove_or_touch_or_find_a_record() -> None:
    index = _index()
    index.add(entry("a"))
    index.touch("t2", entry("a").id)
    assert not index.remove("t2", entry("a").id)
    assert index.find("t2", entry("a").id) is None
    assert _texts(index) == {"a"}


def test_expired_records_are_refused_and_swept() -> None:
    clock = Clock()
    index = _index(clock=clock)
    index.add(entry("a", expires=NOW + 1))
    index.add(entry("b", expires=NOW + 5))
    assert not index.add(entry("c", expires=NOW))
    clock.now = NOW + 1
    index.sweep()
    assert index.sweep() == 1
    index.check_integrity()
    assert _texts(index, now=NOW) == {"b"}


def test_a_cleared_index_still_refuses_what_was_purged() -> None:
    index = _index()
    index.add(entry("a"))
    index.purge("t1", None, NOW)
    index.clear()
    assert not index.add(entry("a"))
    assert index.stats() == IndexStats(0, 0, 0, 0)
    index.check_integrity()


def test_work_is_due_only_where_a_partition_is_large() -> None:
    index = _index(exact_most=20)
    for number in range(20):
        index.add(entry(str(number)))
    assert index.due() is None
    index.add(entry("20"))
    while (job := index.due()) is not None:
        job()()
    index.check_integrity()
    assert index.due() is None
    assert len(_texts(index)) == 21


def test_ten_entries_each_of_many_tenants_are_kept_apart() -> None:
    index = _index()
    for tenant in range(500):
        for number in range(10):
            index.add(entry(str(number), tenant=f"t{tenant}"))
    assert index.stats().partitions == 500
    assert len(_texts(index, "t77")) == 10
    assert index.purge("t77", None, NOW) == 10
    assert len(index) == 4990
    index.check_integrity()


def test_tombstones_beyond_the_most_become_a_floor_for_everybody() -> None:
    tombstones = Tombstones(most=2)
    for number, at in enumerate((10.0, 20.0, 30.0)):
        tombstones.purge(f"t{number}", None, at)
    assert tombstones.cover(entry(tenant="x", created=10.0))
    assert not tombstones.cover(entry(tenant="x", created=11.0))
    assert tombstones.cover(entry(tenant="t1", created=20.0))


def test_an_earlier_purge_does_not_shorten_a_later_one() -> None:
    tombstones = Tombstones()
    tombstones.purge("t1", None, 20.0)
    tombstones.purge("t1", None, 10.0)
    assert tombstones.cover(entry(created=20.0))


class _Machine(RuleBasedStateMachine):
    """Any order of calls by two tenants, against a list."""

    def __init__(self) -> None:
        super().__init__()
        self.index = _index(exact_most=6)
        self.records: dict[tuple[str, str], Record] = {}

    tenants = st.sampled_from(["t1", "t2"])
    names = st.sampled_from("abcdefghijklmn")
    labels = st.sampled_from(["x", "y"])

    @rule(tenant=tenants, name=names, label=labels, created=st.integers(0, 9), where=names)
    def add(self, tenant: str, name: str, label: str, created: int, where: str) -> None:
        record = entry(
            name,
            tenant,
            created=NOW + created,
            labels=frozenset({label}),
            partition=partition(f"{tenant} {'p' if where < 'k' else 'q'}"),
        )
        if self.index.add(record):
            self.records[tenant, record.id] = record

    @rule(tenant=tenants, name=names)
    def remove(self, tenant: str, name: str) -> None:
        record_id = entry(name, tenant).id
        assert self.index.remove(tenant, record_id) == ((tenant, record_id) in self.records)
        self.records.pop((tenant, record_id), None)

    @rule(tenant=tenants, label=st.none() | labels, at=st.integers(0, 9))
    def purge(self, tenant: str, label: str | None, at: int) -> None:
        doomed = [
            key
            for key, record in self.records.items()
            if key[0] == tenant
            and record.created <= NOW + at
            and (label is None or label in record.labels)
        ]
        assert self.index.purge(tenant, label, NOW + at) == len(doomed)
        for key in doomed:
            del self.records[key]

    @rule()
    def work(self) -> None:
        job = self.index.due()
        if job is not None:
            job()()

    @rule(tenant=tenants, seed=st.integers(0, 9))
    def ask(self, tenant: str, seed: int) -> None:
        where = partition(f"{tenant} p")
        found = self.index.nearest(where, vector(seed), 2, NOW)
        inside = [record for record in self.records.values() if record.partition == where]
        assert [one.record.id for one in found] == brute_force(inside, vector(seed), 2, NOW)
        assert all(one.record == self.records[tenant, one.record.id] for one in found)

    @invariant()
    def sound(self) -> None:
        assert len(self.index) == len(self.records)
        self.index.check_integrity()


_Machine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestPartitionedIndex = _Machine.TestCase


def test_the_records_of_an_index_are_found_by_id_with_their_vectors() -> None:
    index = _index()
    record = replace(entry("a"), seen=("u1",), answers=2)
    index.add(record)
    assert index.find("t1", record.id) == record

"""A partition that grows past exact search, against brute force."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule
from index_parts import DIMENSION, NOW, brute_force, entry, vector, vectors

from trivet.semantic.index import PartitionIndex

if TYPE_CHECKING:
    from trivet.semantic.types import Record, Vectors

_EXACT = 32
_SIZE = 2_000
_WIDE = 32


def _near(one: Vectors, seed: int, noise: float = 0.05) -> Vectors:
    made: Vectors = one + noise * vector(seed, len(one))
    made /= np.linalg.norm(made)
    return made


def _large(count: int = _SIZE) -> tuple[PartitionIndex, list[Record]]:
    index = PartitionIndex(_WIDE, _EXACT)
    rows = vectors(count, _WIDE)
    records = [entry(str(at), vector=row.tobytes()) for at, row in enumerate(rows)]
    for record in records:
        index.add(record)
    index.settle()
    index.check_integrity()
    assert index.due() is None
    return index, records


def _best(index: PartitionIndex, asked: Vectors, now: float = NOW) -> str:
    return index.nearest(asked, 1, now)[0].record.id


def test_a_large_partition_finds_what_is_near_as_brute_force_does() -> None:
    index, records = _large()
    same = 0
    for seed in range(200):
        asked = _near(np.frombuffer(records[seed * 7].vector, "<f4"), seed)
        same += _best(index, asked) == brute_force(records, asked, 1, NOW)[0]
    assert same == 200


def test_cosines_of_a_large_partition_are_exact() -> None:
    index, records = _large()
    row = np.frombuffer(records[3].vector, "<f4")
    found = index.nearest(_near(row, 1), 1, NOW)[0]
    assert found.cosine == np.float32(found.cosine)
    assert abs(found.cosine - float(row @ _near(row, 1))) < 1e-6
    assert found.record == records[3]


def test_a_removed_row_never_wins_and_the_row_that_took_its_place_is_found() -> None:
    index, records = _large()
    gone, moved = records[0], records[-1]
    asked = np.frombuffer(gone.vector, "<f4")
    second = entry("second", vector=_near(asked, 1, 0.1).tobytes())
    index.add(second)
    index.remove(gone.id)
    index.check_integrity()
    assert _best(index, asked) == second.id
    assert _best(index, np.frombuffer(moved.vector, "<f4")) == moved.id


def test_expired_rows_never_win_however_many_lie_around_the_question() -> None:
    index, records = _large()
    asked = np.frombuffer(records[5].vector, "<f4")
    for number in range(300):
        near = entry(f"near {number}", vector=_near(asked, number, 0.02).tobytes(), expires=NOW)
        index.add(near)
    index.add(replace(records[5], expires=NOW))
    live = entry("live", vector=_near(asked, 1, 0.2).tobytes())
    index.add(live)
    index.settle()
    index.check_integrity()
    assert _best(index, asked) == live.id
    assert index.nearest(asked, 1, NOW - 1)[0].cosine > 0.999


def test_what_is_added_to_a_large_partition_is_found_at_once() -> None:
    index, records = _large()
    fresh = entry("fresh", vector=_near(np.frombuffer(records[1].vector, "<f4"), 1).tobytes())
    index.add(fresh)
    index.check_integrity()
    assert _best(index, np.frombuffer(fresh.vector, "<f4")) == fresh.id


def test_a_replaced_vector_is_found_where_it_is_and_not_where_it_was() -> None:
    index, records = _large()
    before = np.frombuffer(records[1].vector, "<f4")
    index.add(replace(records[1], vector=(-before).tobytes()))
    index.check_integrity()
    assert _best(index, -before) == records[1].id
    assert _best(index, before) != records[1].id


def test_changes_while_the_cells_are_filled_are_not_lost() -> None:
    index = PartitionIndex(_WIDE, _EXACT)
    rows = vectors(_SIZE, _WIDE)
    records = {str(at): entry(str(at), vector=row.tobytes()) for at, row in enumerate(rows)}
    for record in records.values():
        index.add(record)
    turn = 0
    while (job := index.due()) is not None:
        finish = job()
        for name in (f"{turn}", f"{turn + 500}"):
            index.remove(records.pop(name).id)
        name = str(turn + 900)
        records[name] = replace(records[name], vector=vector(turn + 1000, _WIDE).tobytes())
        index.add(records[name])
        records[f"new {turn}"] = entry(f"new {turn}", vector=vector(turn + 5000, _WIDE).tobytes())
        index.add(records[f"new {turn}"])
        finish()
        index.check_integrity()
        turn += 1
    assert turn > 2
    for record in records.values():
        assert _best(index, np.frombuffer(record.vector, "<f4")) == record.id


def test_a_partition_four_times_as_large_is_trained_anew_while_the_old_cells_serve() -> None:
    index, records = _large(100)
    for number in range(400):
        index.add(entry(f"more {number}", vector=vector(number + 9, _WIDE).tobytes()))
    assert index.due() is not None
    asked = np.frombuffer(records[1].vector, "<f4")
    assert _best(index, asked) == records[1].id
    index.settle()
    index.check_integrity()
    assert index.due() is None
    assert _best(index, asked) == records[1].id


def test_a_partition_that_shrinks_is_searched_exactly_again() -> None:
    index, records = _large(100)
    for record in records[10:]:
        index.remove(record.id)
    index.check_integrity()
    assert index.due() is None
    asked = vector(3, _WIDE)
    found = [one.record.id for one in index.nearest(asked, 10, NOW)]
    assert found == brute_force(records[:10], asked, 10, NOW)


def test_more_neighbours_than_the_cells_propose_are_all_found() -> None:
    index, records = _large(200)
    assert len(index.nearest(vector(1, _WIDE), 500, NOW)) == len(records)


def test_small_partitions_do_not_import_faiss() -> None:
    code = (
        "import sys, trivet.semantic.partitions, trivet.semantic.follower;"
        "assert not {'faiss', 'torch', 'redis', 'sqlite3'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


class _Machine(RuleBasedStateMachine):
    """Any order of additions, removals and jobs: what is found is what brute force finds."""

    ids = Bundle("ids")

    def __init__(self) -> None:
        super().__init__()
        self.index = PartitionIndex(DIMENSION, exact_most=8)
        self.records: dict[str, Record] = {}

    @rule(target=ids, seed=st.integers(0, 40), life=st.sampled_from([-1, 0, 1, 60]))
    def add(self, seed: int, life: int) -> str:
        record = entry(str(seed), vector=vector(seed).tobytes(), expires=NOW + life)
        self.records[record.id] = record
        self.index.add(record)
        return record.id

    @rule(record_id=consumes(ids))
    def remove(self, record_id: str) -> None:
        assert self.index.remove(record_id) == (self.records.pop(record_id, None) is not None)

    @rule()
    def work(self) -> None:
        job = self.index.due()
        if job is not None:
            job()()

    @rule(seed=st.integers(0, 99), k=st.integers(1, 4), later=st.sampled_from([-5, 0, 30]))
    def ask(self, seed: int, k: int, later: int) -> None:
        asked, now = vector(seed), NOW + later
        found = self.index.nearest(asked, k, now)
        expected = brute_force(self.records.values(), asked, k, now)
        assert [one.record.id for one in found] == expected

    @invariant()
    def sound(self) -> None:
        assert len(self.index) == len(self.records)
        self.index.check_integrity()


_Machine.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestPartitionIndex = _Machine.TestCase

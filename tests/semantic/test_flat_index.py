"""Exact search, while rows come, go and move."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from index_parts import DIMENSION, NOW, brute_force, entry, vector

from trivet.semantic.flat_index import FlatIndex


def test_the_nearest_comes_first_with_its_cosine_and_its_vector() -> None:
    index = FlatIndex(DIMENSION)
    records = [entry(str(number)) for number in range(20)]
    for record in records:
        index.add(record)
    asked = vector(99)
    found = index.nearest(asked, 3, NOW)
    assert [one.record.id for one in found] == brute_force(records, asked, 3, NOW)
    best = next(record for record in records if record.id == found[0].record.id)
    assert found[0].record == best
    assert found[0].cosine == pytest.approx(float(np.frombuffer(best.vector, "<f4") @ asked))


def test_a_question_may_be_a_row_of_a_batch() -> None:
    index = FlatIndex(DIMENSION)
    index.add(entry())
    assert len(index.nearest(vector(1).reshape(1, -1), 1, NOW)) == 1


def test_an_empty_index_has_no_neighbour() -> None:
    assert FlatIndex(DIMENSION).nearest(vector(1), 3, NOW) == []


def test_k_of_nothing_is_nothing() -> None:
    index = FlatIndex(DIMENSION)
    index.add(entry())
    assert index.nearest(vector(1), 0, NOW) == []


def test_an_expired_record_gives_way_to_the_next_live_one() -> None:
    index = FlatIndex(DIMENSION)
    asked = vector(5)
    index.add(entry("near", vector=asked.tobytes(), expires=NOW))
    index.add(entry("far", vector=(-asked).tobytes()))
    assert [one.record.text for one in index.nearest(asked, 2, NOW)] == ["question far"]
    assert [one.record.text for one in index.nearest(asked, 2, NOW - 1)] == [
        "question near",
        "question far",
    ]


def test_removal_moves_the_last_row_into_the_gap() -> None:
    index = FlatIndex(DIMENSION)
    for name in "abc":
        index.add(entry(name))
    assert index.remove(entry("a").id) == (0, 2)
    assert [record.text for record in index.records] == ["question c", "question b"]
    assert index.remove(entry("a").id) is None
    index.check_integrity()


def test_the_matrix_grows_and_shrinks_with_its_rows() -> None:
    index = FlatIndex(DIMENSION)
    records = [entry(str(number)) for number in range(9)]
    for record in records:
        index.add(record)
    assert len(index.matrix) == 16
    for record in records[:5]:
        index.remove(record.id)
    assert len(index.matrix) == 10
    index.check_integrity()


def test_the_same_id_is_replaced_and_says_whether_its_vector_is_another() -> None:
    index = FlatIndex(DIMENSION)
    assert index.add(entry(confirmed=False)) == (0, True)
    assert index.add(entry()) == (0, False)
    assert index.add(entry(vector=vector(7).tobytes())) == (0, True)
    assert len(index) == 1
    found = index.find(entry().id)
    assert found == replace(entry(), vector=vector(7).tobytes())


@pytest.mark.parametrize("broken", [b"", b"123", vector(1, 4).tobytes()])
def test_a_vector_of_another_length_is_refused(broken: bytes) -> None:
    with pytest.raises(ValueError, match="bytes"):
        FlatIndex(DIMENSION).add(entry(vector=broken))


def test_a_vector_that_is_not_finite_is_refused() -> None:
    index = FlatIndex(DIMENSION)
    with pytest.raises(ValueError, match="finite"):
        index.add(entry(vector=np.full(DIMENSION, np.nan, "<f4").tobytes()))
    assert len(index) == 0

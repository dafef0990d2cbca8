"""Splitting pairs: no question and no group on both sides, the same wherever it is done."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trivet.eval.pairs import LabelledPair, question
from trivet.eval.split import components, set_aside

few = st.sampled_from(["a", "b", "C ", "c", "d", "e", "f", "g", "h"])
pairs_of = st.lists(
    st.builds(LabelledPair, few, few, st.booleans(), group=st.sampled_from(["", "", "x", "y"])),
    max_size=40,
)


def pair(a: str, b: str, group: str = "") -> LabelledPair:
    return LabelledPair(a, b, True, group=group)


def test_pairs_that_share_a_question_through_others_are_one_part() -> None:
    one, two, three, other = components(
        [pair("a", "b"), pair("c", "d"), pair("B ", "C"), pair("x", "y")]
    )
    assert one == two == three != other


def test_a_group_holds_pairs_together_that_share_no_question() -> None:
    one, two, other = components([pair("a", "b", "g"), pair("c", "d", "g"), pair("e", "f", "h")])
    assert one == two != other


def test_a_group_and_a_question_that_overlap_are_one_part() -> None:
    assert len(set(components([pair("a", "b", "g"), pair("c", "d", "g"), pair("d", "e")]))) == 1


@given(pairs_of, st.floats(0, 0.99))
def test_no_question_and_no_group_is_on_both_sides(pairs: list[LabelledPair], share: float) -> None:
    marks = set_aside(pairs, share, "salt")
    sides: list[set[str]] = [set(), set()]
    for one, mark in zip(pairs, marks, strict=True):
        sides[mark] |= {f"q {question(one.a)}", f"q {question(one.b)}"}
        sides[mark] |= {f"g {one.group}"} if one.group else set()
    assert not sides[0] & sides[1]
    assert sum(marks) <= share * len(pairs)


@given(pairs_of, st.randoms(use_true_random=False))
def test_the_order_of_the_pairs_makes_no_difference(
    pairs: list[LabelledPair], shuffled: random.Random
) -> None:
    before = dict(zip(pairs, set_aside(pairs, 0.4, "salt"), strict=True))
    again = pairs.copy()
    shuffled.shuffle(again)
    assert dict(zip(again, set_aside(again, 0.4, "salt"), strict=True)) == before


def test_the_share_is_met_as_nearly_as_the_parts_allow() -> None:
    pairs = [pair(f"a{at}", f"b{at}") for at in range(200)]
    assert sum(set_aside(pairs, 0.3, "salt")) == 60


def test_two_salts_split_differently() -> None:
    pairs = [pair(f"a{at}", f"b{at}") for at in range(200)]
    assert set_aside(pairs, 0.3, "one") != set_aside(pairs, 0.3, "two")


def test_a_share_of_all_is_refused() -> None:
    with pytest.raises(ValueError):
        set_aside([], 1.0, "salt")

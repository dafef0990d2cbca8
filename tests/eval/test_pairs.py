"""Labelled pairs: what names a set of them, and what may not be split."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trivet.eval.pairs import Contexts, LabelledPair, canonical_row, digest, split_groups


def pair(a: str, b: str, same: bool = True, group: str = "", id: str = "") -> LabelledPair:
    return LabelledPair(a, b, same, group=group, id=id)


texts = st.text(max_size=8)
pairs = st.builds(
    LabelledPair,
    a=texts,
    b=texts,
    same=st.booleans(),
    slice=texts,
    group=texts,
    context=st.builds(Contexts, texts, texts),
)


class TestDigest:
    def test_the_order_of_the_rows_makes_no_difference(self) -> None:
        one, two = pair("a", "b"), pair("c", "d")
        assert digest([one, two]) == digest([two, one])

    def test_a_row_that_is_there_twice_does(self) -> None:
        assert digest([pair("a", "b")]) != digest([pair("a", "b")] * 2)

    def test_an_id_is_a_name_and_does_not_count(self) -> None:
        assert digest([pair("a", "b", id="1")]) == digest([pair("a", "b", id="2")])

    def test_it_is_64_hex_digits(self) -> None:
        found = digest([pair("a", "b")])
        assert (len(found), int(found, 16) > 0) == (64, True)

    @given(pairs, pairs)
    def test_two_pairs_that_differ_have_two_rows(
        self, one: LabelledPair, two: LabelledPair
    ) -> None:
        assert (canonical_row(one) == canonical_row(two)) == (one == two)


class TestComparable:
    def test_pairs_of_one_context_are_compared(self) -> None:
        assert LabelledPair("a", "b", True, context=Contexts("user 1", "user 1")).comparable

    def test_pairs_of_two_contexts_are_not(self) -> None:
        assert not LabelledPair("a", "a", False, context=Contexts("user 1", "user 2")).comparable


class TestSplitGroups:
    def test_a_group_that_is_given_is_kept(self) -> None:
        assert split_groups([pair("a", "b", group="g"), pair("c", "d", group="h")]) == ["g", "h"]

    def test_pairs_that_share_a_question_are_one_group(self) -> None:
        first, second, third = split_groups([pair("a", "b"), pair("c", "d"), pair("B ", "e")])
        assert first == third
        assert first != second

    def test_sharing_goes_through_others(self) -> None:
        found = split_groups([pair("a", "b"), pair("c", "d"), pair("b", "c")])
        assert len(set(found)) == 1

    def test_the_name_does_not_depend_on_the_order(self) -> None:
        one, two = pair("x", "m"), pair("m", "b")
        assert split_groups([one, two]) == split_groups([two, one])

    @given(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.sampled_from("abcdefgh"))))
    def test_no_question_is_in_two_groups(self, questions: list[tuple[str, str]]) -> None:
        some = [pair(a, b) for a, b in questions]
        homes: dict[str, set[str]] = {}
        for one, group in zip(some, split_groups(some), strict=True):
            homes.setdefault(one.a, set()).add(group)
            homes.setdefault(one.b, set()).add(group)
        assert all(len(groups) == 1 for groups in homes.values())

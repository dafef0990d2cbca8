"""The doctor on 200 pairs with one known break each: the place in all, the cause in 95 %."""

from __future__ import annotations

import pytest
from break_pairs import Pair, pairs

from trivet.prefix.doctor.causes import cause_of
from trivet.prefix.doctor.fingerprint import Maker
from trivet.prefix.doctor.kin import kin_of
from trivet.prefix.doctor.lint import parted
from trivet.prefix.doctor.live import Doctor, Prompted

ALL = pairs()
OF_BLOCK = 32
"""Characters that a live doctor may be off: it compares blocks."""


def placed(pair: Pair, level: object, place: tuple[object, ...]) -> bool:
    return level is pair.level and place[: len(pair.place)] == pair.place


def test_there_are_200() -> None:
    assert len(ALL) == 200
    assert pairs()[:20] == ALL[:20]


def test_lint_names_the_right_place_in_all() -> None:
    wrong = []
    for pair in ALL:
        found = parted(pair.old, pair.new)
        exact = found is not None and pair.char in (-1, found.where.char)
        if found is None or not exact or not placed(pair, found.where.level, found.where.place):
            wrong.append((pair.family, pair.place, pair.char, found))
    assert wrong == []


@pytest.mark.parametrize("seed", [20261130, 1, 2, 3])
def test_lint_names_the_right_cause_in_95_percent(seed: int) -> None:
    right = 0
    for pair in pairs(seed):
        found = parted(pair.old, pair.new)
        right += found is not None and found.cause.name in pair.causes
    assert right >= 190


@pytest.mark.parametrize("seed", [20261130, 4])
def test_without_the_older_text_it_names_both_in_95_percent(seed: int) -> None:
    right = 0
    for pair in pairs(seed):
        doctor = Doctor(b"k" * 16, least=32)
        assert doctor.see(Prompted("t", "r", pair.old, None, 0.0)) is None
        found = doctor.see(Prompted("t", "r", pair.new, None, 1.0))
        if found is None or found.cause not in pair.causes:
            continue
        near = pair.char < 0 or -OF_BLOCK <= found.char - pair.char <= OF_BLOCK
        right += near and placed(pair, found.level, found.place)
    assert right >= 190


def test_from_two_records_the_cause_can_be_told_in_90_percent() -> None:
    """A record keeps no blocks: an edit before a clock may be taken for the clock."""
    right = 0
    maker = Maker(b"k" * 16)
    for pair in ALL:
        old, new = (maker.make(one) for one in (pair.old, pair.new))
        where = kin_of(old, new).where
        right += where is not None and cause_of(old, new, where).name in pair.causes
    assert right >= 180


def test_prompts_that_go_on_are_never_called_broken() -> None:
    for pair in ALL:
        doctor = Doctor(b"k" * 16, least=1)
        for count in range(1, len(pair.old.parts) + 1):
            shorter = pair.old._replace(parts=pair.old.parts[:count])
            assert doctor.see(Prompted("t", "r", shorter, None, float(count))) is None

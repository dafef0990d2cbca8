"""The vectors of recent texts."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from stand_ins import vector_of

from trivet.semantic.recent import RecentVectors, _size

_BOUND = 2000
_asked = st.tuples(st.sampled_from(["a", "b"]), st.text("xy", max_size=3) | st.just("z" * 3000))


@given(st.lists(st.tuples(st.booleans(), _asked), max_size=40))
def test_it_keeps_the_most_recent_within_its_bound(
    steps: list[tuple[bool, tuple[str, str]]],
) -> None:
    recent = RecentVectors(_BOUND)
    order: list[tuple[str, str]] = []
    for put, asked in steps:
        vector = vector_of(asked[1])
        kept = asked in order
        if put:
            recent.put(asked, vector)
            kept = _size(asked, vector) <= _BOUND
        else:
            found = recent.get(asked)
            assert (found is not None) == kept
            assert found is None or np.array_equal(found, vector)
        order = [one for one in order if one != asked] + [asked] * kept
        while sum(_size(one, vector) for one in order) > _BOUND:
            order.pop(0)
        assert len(recent) == len(order)
    assert list(recent._rows) == order


def test_what_was_cleared_is_gone() -> None:
    recent = RecentVectors(_BOUND)
    recent.put(("a", "x"), vector_of("x"))
    recent.clear()
    assert recent.get(("a", "x")) is None
    assert len(recent) == 0

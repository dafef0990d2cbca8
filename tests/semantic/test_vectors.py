"""What all embedders do to texts and vectors."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from trivet.errors import EmbedderError
from trivet.semantic.vectors import checked, clipped, normalised


@given(st.text(st.characters()), st.integers(1, 4))
def test_a_clipped_text_can_be_encoded_and_is_a_start_of_it(text: str, tokens: int) -> None:
    made = clipped(text, tokens)
    assert len(made.encode()) <= 4 * 32 * tokens
    assert text.encode("utf-8", "replace").decode().startswith(made)


@example(np.full((2, 3), 1.9797038e-161))
@given(arrays(np.float64, (2, 3), elements=st.floats()))
def test_what_is_normalised_keeps_the_contract_or_is_refused(values: np.ndarray) -> None:
    reason, made = "", np.zeros((2, 3), np.float32)
    try:
        made = normalised(values.tolist(), 2, 3)
    except EmbedderError as error:
        reason = error.reason
    assert reason in ("", "not-finite")
    assert checked(made, 2, 3) is made


def test_the_zero_vector_is_allowed_where_nothing_is_normalised() -> None:
    zero = np.zeros((1, 3), np.float32)
    assert checked(zero, 1, 3) is zero
    with pytest.raises(EmbedderError):
        normalised(zero, 1, 3)

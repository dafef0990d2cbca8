"""Numbers in sentences."""

from __future__ import annotations

import pytest

from trivet.eval.counted import counted


@pytest.mark.parametrize(
    ("count", "told"), [(0, "0 false hits"), (1, "1 false hit"), (2, "2 false hits")]
)
def test_one_is_told_in_the_singular(count: int, told: str) -> None:
    assert counted(count, "false hit") == told


def test_a_plural_of_its_own() -> None:
    assert [counted(count, "was", "were") for count in (1, 2)] == ["1 was", "2 were"]

"""What a file that cannot be used is refused with."""

from __future__ import annotations

from collections.abc import Sequence

from trivet.errors import ConfigError, Problem
from trivet.eval.counted import counted

SHOWN = 5
"""Findings that are told: a file with another layout has one on every line."""


def refusal_of(file: str, problems: Sequence[Problem], *, all_read: bool = True) -> ConfigError:
    """The first findings, and how many more there are.

    Without `all_read` the file was left at the last of `problems`, so that nobody knows.
    """
    left = len(problems) - SHOWN
    if left <= 0:
        return ConfigError(*problems)
    told = f"{counted(left, 'more finding')} like these" if all_read else "and maybe more"
    return ConfigError(*problems[:SHOWN], Problem(file, 0, 0, "", told))

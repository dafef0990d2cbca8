"""Two texts for a person to compare, in a terminal that they cannot drive."""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Callable, Iterator
from itertools import chain
from typing import NamedTuple

from trivet.terminal import plain_lines


class Word(NamedTuple):
    """A word of one text. `differs`: the other text has another, or none, in its place."""

    text: str
    differs: bool


def differing(a: str, b: str) -> tuple[list[Word], list[Word]]:
    """The words of both texts, as they are shown; case makes no difference."""
    left, right = shown(a).split(), shown(b).split()
    matcher = difflib.SequenceMatcher(
        None, [word.casefold() for word in left], [word.casefold() for word in right], False
    )
    same_left: set[int] = set()
    same_right: set[int] = set()
    for block in matcher.get_matching_blocks():
        same_left.update(range(block.a, block.a + block.size))
        same_right.update(range(block.b, block.b + block.size))
    return (
        [Word(word, at not in same_left) for at, word in enumerate(left)],
        [Word(word, at not in same_right) for at, word in enumerate(right)],
    )


def shown(text: str) -> str:
    """The text with every control and format character escaped: none reaches the terminal.

    White space stays, but for what is no space, tab or line feed.
    """
    return plain_lines(text)


def one_line(text: str) -> str:
    """`shown` on one line, each white space a single blank."""
    return shown(" ".join(text.split()))


def cells(text: str) -> int:
    """Columns that a terminal gives the text (Unicode Standard Annex 11)."""
    return sum(_cells(one) for one in text)


def _cells(one: str) -> int:
    if unicodedata.combining(one) or unicodedata.category(one) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(one) in ("W", "F") else 1


def wrapped(words: list[Word], width: int, mark: Callable[[str], str]) -> Iterator[str]:
    """Lines of at most `width` columns; `mark` adds no columns to what it is given, or two.

    Two are kept free for each marked word. A word longer than a line is broken.
    """
    line: list[str] = []
    used = 0
    for word in chain.from_iterable(_broken(one, max(1, width - 2)) for one in words):
        size = cells(word.text) + (2 if word.differs else 0)
        if line and used + 1 + size > width:
            yield " ".join(line)
            line, used = [], 0
        used += size + (1 if line else 0)
        line.append(mark(word.text) if word.differs else word.text)
    if line:
        yield " ".join(line)


def _broken(word: Word, width: int) -> Iterator[Word]:
    piece, used = "", 0
    for one in word.text:
        size = _cells(one)
        if piece and used + size > width:
            yield Word(piece, word.differs)
            piece, used = "", 0
        piece += one
        used += size
    yield Word(piece, word.differs)

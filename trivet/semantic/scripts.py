"""Which writing systems a text uses, by the Unicode names of its letters."""

from __future__ import annotations

import unicodedata
from collections import Counter
from functools import lru_cache

_NAMES = {"cjk": "han"}
_KINDS = (" LETTER ", " SYLLABLE ", " IDEOGRAPH")
_NOT_A_SCRIPT = frozenset({"modifier", "mathematical", "double-struck", "script", "black-letter"})


def scripts_of(text: str) -> frozenset[str]:
    """Names in lower case: `latin`, `cyrillic`, `han`, `arabic`, ... Empty without letters.

    Letters that every script borrows (micro signs, mathematical alphabets) do not count.
    """
    return frozenset(filter(None, map(_script, set(text))))


def letters_of(text: str) -> Counter[str]:
    """How many letters of each of `scripts_of` there are."""
    return Counter(filter(None, map(_script, text)))


@lru_cache(maxsize=4096)
def _script(letter: str) -> str:
    if not letter.isalpha():
        return ""
    if letter.isascii():
        return "latin"
    name = unicodedata.name(letter, "")
    words = name.lower().replace("fullwidth ", "").replace("halfwidth ", "").split()
    if not words or words[0] in _NOT_A_SCRIPT or not any(kind in f"{name} " for kind in _KINDS):
        return ""
    return _NAMES.get(words[0], words[0])

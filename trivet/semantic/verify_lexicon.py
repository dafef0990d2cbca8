"""What is known about English words: base forms, frequency, senses, opposites, small vectors.

Made by `training/lexicon.py` from WordNet and the vectors of all-MiniLM-L6-v2.
"""

from __future__ import annotations

import math
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trivet.semantic.english import OPPOSITES, SPELLINGS, SYNONYMS

WEIGHTS = Path(__file__).parent / "weights" / "lexicon.npz"
UNKNOWN_RANK = 30_000
_KEY = 1 << 16


class Lexicon:
    """Words by the number of their base form; -1 is a word that is not in it."""

    def __init__(self, path: Path = WEIGHTS) -> None:
        with np.load(path) as table:
            lemmas: list[str] = table["lemmas"].tobytes().decode().split("\n")
            forms = table["forms"].tobytes().decode().split("\n")
            self.rank: list[int] = table["rank"].tolist()
            self.vectors: NDArray[np.int8] = table["vectors"]
            self.number: dict[str, int] = {word: at for at, word in enumerate(lemmas)}
            self.number |= zip(forms, table["form_lemma"].tolist(), strict=True)
            self._senses = _Ragged(table["senses"], table["sense_count"])
            self._parents = _Ragged(table["parents"], table["parent_count"])
            self._antonyms = _keys(table["antonyms"])
            self._near_antonyms = _keys(table["near_antonyms"])
            self._derived = _keys(table["derived"])
        self.lemmas: list[str] = lemmas

    @cached_property
    def _own_opposites(self) -> frozenset[tuple[str, str]]:
        return frozenset((self.base(a), self.base(b)) for a, b in OPPOSITES) | OPPOSITES

    @cached_property
    def _own_synonyms(self) -> frozenset[tuple[str, str]]:
        found = set()
        for group in SYNONYMS:
            found |= {(self.base(a), self.base(b)) for a in group for b in group if a != b}
        return frozenset(found)

    def base(self, word: str) -> str:
        """The base form of a word in lower case; the word itself where it is not known."""
        at = self.number.get(word, -1)
        if at >= 0:
            return self.lemmas[at]
        for ending, new in _ENDINGS:
            if word.endswith(ending) and len(word) - len(ending) > 2:
                stem = word[: len(word) - len(ending)] + new
                if stem in self.number:
                    return self.lemmas[self.number[stem]]
        return _american(word)

    def rarity(self, word: str) -> float:
        """From about 0 for the most frequent words to 1 for those that are not known."""
        at = self.number.get(word, -1)
        rank = UNKNOWN_RANK if at < 0 else self.rank[at]
        return math.log1p(rank) / _MOST

    def synonyms(self, one: str, other: str) -> int:
        """3: a synonym of our list, 2: derived from each other, 1: of one sense; else 0."""
        if (one, other) in self._own_synonyms:
            return 3
        a, b = self.number.get(one, -1), self.number.get(other, -1)
        if a < 0 or b < 0:
            return 0
        if _key(a, b) in self._derived:
            return 2
        return int(bool(self._senses[a] & self._senses[b]))

    def opposites(self, one: str, other: str) -> int:
        """2: antonyms or negated by an affix, 1: near to an antonym; else 0."""
        if (one, other) in self._own_opposites:
            return 2
        if self._negates(one, other) or self._negates(other, one):
            return 2
        a, b = self.number.get(one, -1), self.number.get(other, -1)
        if a < 0 or b < 0:
            return 0
        key = _key(a, b)
        return 2 if key in self._antonyms else int(key in self._near_antonyms)

    def _negates(self, negated: str, plain: str) -> bool:
        """`unsafe` negates `safe` and, by way of `certain`, `uncertain` negates `sure`."""
        if not negated.startswith(_NEGATING) and not negated.endswith("less"):
            return False
        for stem in _stems(negated):
            if stem == plain and (len(stem) > 3 or negated in self.number):
                return stem in self.number
            if len(stem) > 3 and stem in self.number and self.synonyms(stem, plain):
                return negated in self.number or negated.startswith("non")
        return False

    def related(self, one: str, other: str) -> int:
        """2: one is a kind of the other, 1: kinds of the same; else 0."""
        a, b = self.number.get(one, -1), self.number.get(other, -1)
        if a < 0 or b < 0:
            return 0
        if self._parents[a] & self._senses[b] or self._parents[b] & self._senses[a]:
            return 2
        return int(bool(self._parents[a] & self._parents[b]))

    def parents(self, word: str) -> frozenset[int]:
        """What a word is a kind of; empty where it is not known."""
        at = self.number.get(word, -1)
        return self._parents[at] if at >= 0 else frozenset()

    def antonyms(self) -> list[tuple[int, int]]:
        """Numbers of words that are antonyms, sorted."""
        return [divmod(key, _KEY) for key in sorted(self._antonyms)]

    def cosine(self, one: str, other: str) -> float:
        """Of the small vectors; 0 where a word is not known."""
        a, b = self.number.get(one, -1), self.number.get(other, -1)
        if a < 0 or b < 0:
            return 0.0
        product = self.vectors[a].astype(np.int32) @ self.vectors[b].astype(np.int32)
        return float(product) / 16_129.0


class _Ragged:
    """Rows of different length in one array."""

    def __init__(self, values: NDArray[Any], counts: NDArray[Any]) -> None:
        self._values = values
        self._ends = np.cumsum(counts, dtype=np.int64)
        self._counts = counts

    def __getitem__(self, at: int) -> frozenset[int]:
        end = int(self._ends[at])
        return frozenset(self._values[end - int(self._counts[at]) : end].tolist())


_MOST = math.log1p(UNKNOWN_RANK)
_ENDINGS = (("ies", "y"), ("es", ""), ("es", "e"), ("s", ""), ("ing", ""), ("ing", "e"), ("ed", ""),
            ("ed", "e"))  # fmt: skip
_NEGATING = ("un", "non", "in", "im", "il", "ir", "dis", "de", "mis")


def _key(a: int, b: int) -> int:
    return a * _KEY + b if a < b else b * _KEY + a


def _keys(pairs: NDArray[Any]) -> frozenset[int]:
    wide = pairs.astype(np.int64)
    return frozenset((wide[:, 0] * _KEY + wide[:, 1]).tolist())


@lru_cache(maxsize=16_384)
def _stems(word: str) -> list[str]:
    """What is left without a negating affix."""
    found = [word[len(p) :] for p in _NEGATING if word.startswith(p) and len(word) > len(p) + 2]
    if word.endswith("less") and len(word) > 6:
        found += [word[:-4], word[:-4] + "ful", word[:-4] + "e"]
    return found


def _american(word: str) -> str:
    """One spelling for `colour` and `color`, `organise` and `organize`."""
    word = SPELLINGS.get(word, word)
    for british, american in (("isation", "ization"), ("ise", "ize"), ("ising", "izing"),
                              ("ised", "ized"), ("yse", "yze"), ("our", "or")):  # fmt: skip
        if word.endswith(british) and len(word) > len(british) + 2:
            return word[: len(word) - len(british)] + american
    return word


@lru_cache(maxsize=1)
def lexicon() -> Lexicon:
    """The shipped one, read once."""
    return Lexicon()

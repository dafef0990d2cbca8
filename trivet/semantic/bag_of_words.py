"""The built-in embedder without a model: counts of words. For measuring against, not for serving.

Words are runs of a to z in the lower-cased text, less a list of stop words; counts are raw, with
no weighting. It is the crude stand-in that every real embedder has to beat.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from trivet.semantic.types import Vectors

_WORD = re.compile(r"[a-z]+")
_STOP_WORDS = frozenset(
    {"a", "an", "the", "my", "i", "to", "do", "is", "it", "you", "me", "please"}
    | {"for", "of", "in", "on"}
)
_DIMENSION = 1 << 15
_LAYOUT = "bag-of-words/1"
"""Part of the fingerprint: another way to count or to place words is another name."""


class BagOfWords:
    """An `Embedder` of word counts.

    A word's place is its hash; a place that another word of this instance holds is passed over
    for the next free one. So within one instance the cosine of any two texts is exact to float32,
    up to `dimension` different words; words beyond them share the place of their hash. Another
    process may place the few words that meet there otherwise.

    A text without a word gets the zero vector, the one exception to length 1: its dot product
    with every vector, its own included, is 0, and so is the cosine.

    Components are rounded toward zero, so that no cosine comes out above its true value: one that
    equals a threshold on paper is below it in every summation of float64, as in floating point
    `dot / (na * nb)` tends to be.
    """

    name = "bag-of-words"
    dimension = _DIMENSION

    def __init__(self) -> None:
        parts = (_LAYOUT, str(_DIMENSION), *sorted(_STOP_WORDS))
        self.fingerprint = hashlib.sha256("\n".join(parts).encode()).hexdigest()
        self._places: dict[int, int] = {}
        self._taken: set[int] = set()

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Vectors of shape (len(texts), dimension): 128 KiB for each text."""
        vectors = np.zeros((len(texts), _DIMENSION), dtype=np.float32)
        for row, text in zip(vectors, texts, strict=True):
            counts = Counter(w for w in _WORD.findall(text.lower()) if w not in _STOP_WORDS)
            if counts:
                places = [self._place(word) for word in counts]
                _fill(row, places, list(counts.values()))
        return vectors

    def _place(self, word: str) -> int:
        digest = hashlib.blake2b(word.encode(), digest_size=8).digest()
        key = int.from_bytes(digest, "big")
        place = self._places.get(key)
        if place is not None:
            return place
        place = key % _DIMENSION
        if len(self._taken) == _DIMENSION:
            return place
        while place in self._taken:
            place = (place + 1) % _DIMENSION
        self._taken.add(place)
        self._places[key] = place
        return place


def _fill(row: Vectors, places: list[int], counts: list[int]) -> None:
    exact = np.asarray(counts, dtype=np.float64)
    exact /= np.sqrt((exact * exact).sum())
    rounded = exact.astype(np.float32)
    above = rounded > exact
    rounded[above] = np.nextafter(rounded[above], np.float32(0))
    np.add.at(row, places, rounded)

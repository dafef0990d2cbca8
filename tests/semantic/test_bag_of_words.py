"""The built-in embedder of word counts."""

from __future__ import annotations

import math
import re
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trivet.semantic import bag_of_words
from trivet.semantic.bag_of_words import BagOfWords

_STOP = [
    "a",
    "an",
    "the",
    "my",
    "i",
    "to",
    "do",
    "is",
    "it",
    "you",
    "me",
    "please",
    "for",
    "of",
    "in",
    "on",
]


def cosine_on_paper(a: str, b: str) -> float:
    one, two = (
        Counter(word for word in re.findall("[a-z]+", text.lower()) if word not in _STOP)
        for text in (a, b)
    )
    lengths = [math.sqrt(sum(count * count for count in bag.values())) for bag in (one, two)]
    if not all(lengths):
        return 0.0
    return sum(one[word] * two[word] for word in one) / (lengths[0] * lengths[1])


def cosine(a: str, b: str) -> float:
    one, two = BagOfWords().embed([a, b]).astype(np.float64)
    return float(one @ two)


_texts = st.lists(
    st.sampled_from(
        [
            "red",
            "blue",
            "Green",
            "two",
            "the",
            "tree",
            "of",
            "house",
            "tree2house",
            "é",
            "ß",
            "😀",
            "''",
        ]
    ),
    max_size=12,
).map(" ".join)


@given(_texts | st.text(max_size=60), _texts | st.text(max_size=60))
def test_cosines_are_exact_to_float_precision(a: str, b: str) -> None:
    assert cosine(a, b) == pytest.approx(cosine_on_paper(a, b), abs=1e-6)


@given(_texts, _texts)
def test_no_cosine_comes_out_above_its_true_value(a: str, b: str) -> None:
    assert cosine(a, b) <= cosine_on_paper(a, b) + 1e-12


def test_a_cosine_that_equals_a_threshold_on_paper_is_below_it() -> None:
    assert 0.4999 < cosine("seek book", "lend book") < 0.5


def test_many_words_of_one_instance_never_meet() -> None:
    embedder = BagOfWords()
    letters = "abcdefghij"
    words = ["w" + "".join(letters[int(digit)] for digit in str(n)) for n in range(5000)]
    places = {int(np.flatnonzero(row)[0]) for word in words for row in embedder.embed([word])}
    assert len(places) == 5000


def test_words_beyond_the_dimension_share_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bag_of_words, "_DIMENSION", 4)
    vectors = BagOfWords().embed(["ab cd ef gh", "kl mn op qr st uv"])
    assert vectors.shape == (2, 4)
    assert np.count_nonzero(vectors[0]) == 4
    assert np.isfinite(vectors).all()


def test_texts_without_words_are_like_nothing_not_even_themselves() -> None:
    vectors = BagOfWords().embed(["", "the of", "42 \U0001f600", "open"])
    assert (vectors[:3] @ vectors.T == 0).all()


def test_vectors_of_another_call_are_comparable() -> None:
    embedder = BagOfWords()
    first = embedder.embed(["one two three"])[0]
    embedder.embed(["four five"])
    assert float(first @ embedder.embed(["three two one"])[0]) == pytest.approx(1, abs=1e-6)


def test_counts_are_raw() -> None:
    vector = BagOfWords().embed(["red red blue"])[0]
    assert sorted(vector[vector > 0]) == pytest.approx([1 / math.sqrt(5), 2 / math.sqrt(5)])


def test_vectors_have_the_contracts_shape_and_type() -> None:
    embedder = BagOfWords()
    vectors = embedder.embed(["some words", "others"])
    assert vectors.dtype == np.float32
    assert vectors.shape == (2, embedder.dimension)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx([1, 1])
    assert embedder.embed([]).shape == (0, embedder.dimension)


def test_the_fingerprint_is_the_same_in_every_instance() -> None:
    assert BagOfWords().fingerprint == BagOfWords().fingerprint
    assert re.fullmatch("[0-9a-f]{64}", BagOfWords().fingerprint)

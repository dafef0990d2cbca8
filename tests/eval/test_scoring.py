"""Scoring pairs with a chain: what has a score, what has none and why, and how often it embeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from trivet.errors import EmbedderError
from trivet.eval.pairs import Contexts, LabelledPair
from trivet.eval.scoring import cosines, score_pairs
from trivet.policies.intents import Intent
from trivet.semantic.chain import Chain
from trivet.semantic.types import Intention, TextPair, Verdict


class Letters:
    """Embeds a text as the counts of its letters a to c."""

    name = "letters"
    fingerprint = "00"
    dimension = 3

    def __init__(self) -> None:
        self.asked: list[str] = []

    def embed(self, texts: Sequence[str]) -> Any:
        self.asked += texts
        counts = np.array([[text.count(one) for one in "abc"] for text in texts], dtype=np.float32)
        return counts / np.linalg.norm(counts, axis=1, keepdims=True)


class Objecting:
    """Objects to pairs whose stored text has a `c`; scores others by length."""

    name = "objecting"
    fingerprint = "01"

    def verify(self, pairs: Sequence[TextPair]) -> list[Verdict]:
        return [
            Verdict(float(len(pair.asked)), "letter" if "c" in pair.stored else None)
            for pair in pairs
        ]


class Gate:
    """`b...` is an action, `ca` is unsure, all else informational."""

    fingerprint, reads = "02", "00"

    def classify(self, texts: Sequence[str], vectors: Any) -> list[Intention]:
        assert len(vectors) == len(texts)
        return [self._one(text) for text in texts]

    def _one(self, text: str) -> Intention:
        if text.startswith("b"):
            return Intention(Intent.ACTION, True)
        return Intention(Intent.INFORMATIONAL, text != "ca", "unsure" if text == "ca" else "")


def pair(a: str, b: str, *contexts: str) -> LabelledPair:
    return LabelledPair(a, b, True, context=Contexts(*contexts))


class TestScores:
    def test_the_score_of_a_bare_chain_is_the_cosine(self) -> None:
        (one,) = score_pairs(Chain("cosine", Letters()), [pair("a", "ab")])
        assert one.score == one.cosine == pytest.approx(math.sqrt(0.5))
        assert (one.reason, one.intent) == ("", None)

    def test_a_verifier_scores_and_objects(self) -> None:
        chain = Chain("verifier", Letters(), Objecting())
        one, two = score_pairs(chain, [pair("a", "ab"), pair("ac", "a")])
        assert (one.score, one.reason) == (2.0, "")
        assert (two.score, two.reason) == (None, "veto-letter")

    def test_rules_keep_the_cosine_and_object(self) -> None:
        chain = Chain("rules", Letters(), Objecting())
        one, two = score_pairs(chain, [pair("a", "a"), pair("c", "c")])
        assert one.score == pytest.approx(1.0)
        assert (two.score, two.reason) == (None, "veto-letter")

    def test_pairs_of_two_contexts_are_never_compared(self) -> None:
        (one,) = score_pairs(Chain("cosine", Letters()), [pair("a", "a", "u1", "u2")])
        assert (one.score, one.reason) == (None, "context")
        assert math.isnan(one.cosine)

    def test_cosines_look_at_the_texts_alone(self) -> None:
        found = cosines(Letters(), [pair("a", "b"), pair("ab", "ba", "u1", "u2")])
        assert found == [0.0, pytest.approx(1.0)]


class TestGate:
    chain = Chain("cosine", Letters(), gate=Gate())

    @pytest.mark.parametrize(
        ("a", "b", "reason"),
        [
            ("a", "bb", "intent-action"),
            ("bb", "a", "intent-action"),
            ("a", "ca", "unsure"),
            ("a", "aa", ""),
        ],
    )
    def test_either_text_may_be_refused(self, a: str, b: str, reason: str) -> None:
        (one,) = score_pairs(self.chain, [pair(a, b)], {Intent.INFORMATIONAL})
        assert (one.reason, one.score is None) == (reason, bool(reason))

    def test_an_intent_that_is_open_passes(self) -> None:
        (one,) = score_pairs(self.chain, [pair("b", "b")], {Intent.ACTION})
        assert (one.reason, one.intent) == ("", Intent.ACTION)

    def test_without_open_intents_the_gate_is_not_asked(self) -> None:
        (one,) = score_pairs(self.chain, [pair("b", "b")])
        assert (one.reason, one.intent) == ("", None)


class TestEmbedding:
    def test_every_text_is_embedded_once(self) -> None:
        letters = Letters()
        many = [pair("a" * (at % 30 + 1), "b" * (at % 7 + 1)) for at in range(1500)]
        score_pairs(Chain("cosine", letters), many)
        assert len(letters.asked) == len(set(letters.asked)) == 37

    def test_order_and_count_are_kept_across_batches(self) -> None:
        many = [pair("a", "ab" if at % 2 else "a") for at in range(700)]
        found = score_pairs(Chain("cosine", Letters()), many)
        assert [one.pair for one in found] == many
        assert [one.cosine > 0.9 for one in found] == [at % 2 == 0 for at in range(700)]

    def test_wide_vectors_have_the_same_cosine_as_narrow_ones(self) -> None:
        class Wide(Letters):
            def embed(self, texts: Sequence[str]) -> Any:
                return np.pad(super().embed(texts), ((0, 0), (4000, 4000)))

        many = [pair("aab", "abc"), pair("a", "b"), pair("c", "cc")]
        assert cosines(Wide(), many) == pytest.approx(cosines(Letters(), many))

    def test_no_pairs_are_no_scores(self) -> None:
        assert score_pairs(Chain("cosine", Letters()), []) == []

    def test_an_embedder_that_loses_a_text_is_told(self, monkeypatch: pytest.MonkeyPatch) -> None:
        letters = Letters()
        monkeypatch.setattr(letters, "embed", lambda texts: np.ones((1, 3), dtype=np.float32))
        with pytest.raises(EmbedderError, match="another number of vectors"):
            score_pairs(Chain("cosine", letters), [pair("a", "b")])

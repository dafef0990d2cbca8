"""A chain whose models are asked once for each text: see `memo`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from trivet.errors import EmbedderError
from trivet.eval.memo import Memo
from trivet.semantic.chain import Chain
from trivet.semantic.recent import RecentVectors
from trivet.semantic.types import (
    Embedder,
    IntentClassifier,
    Intention,
    TextPair,
    Verdict,
    Verifier,
)

if TYPE_CHECKING:
    from trivet.semantic.types import Vectors

_UNSTEADY = frozenset({"bag-of-words"})
"""Embedders whose vectors are comparable within one process only; these are cheap."""

_RECENT_BYTES = 64 << 20
"""Vectors at hand: those of what comes next, and of what comes again soon."""


class Foreseen:
    """An `Embedder` that embeds texts in batches before they are asked for one by one.

    A vector depends on its text alone, so nothing of the future comes into a replay by it.
    """

    def __init__(self, embedder: Embedder, memo: Memo) -> None:
        self.name, self.fingerprint = embedder.name, embedder.fingerprint
        self.dimension = embedder.dimension
        self._embedder = embedder
        self._memo = None if embedder.name in _UNSTEADY else memo
        self._recent = RecentVectors(_RECENT_BYTES)

    def foresee(self, texts: Iterable[str]) -> None:
        """Have these texts' vectors at hand. Raises `EmbedderError`.

        A text that the embedder refuses is left for `embed` to tell of.
        """
        new: list[str] = []
        for text in dict.fromkeys(texts):
            if self._recent.get(("", text)) is not None:
                continue
            vector = None if self._memo is None else self._memo.vector(text)
            if vector is None:
                new.append(text)
            else:
                self._recent.put(("", text), vector)
        for text, vector in self._embedded(new):
            self._recent.put(("", text), vector)
            if self._memo is not None:
                self._memo.put_vector(text, vector)

    def _embedded(self, texts: list[str]) -> Iterable[tuple[str, Vectors]]:
        if not texts:
            return []
        try:
            return list(zip(texts, self._embedder.embed(texts), strict=True))
        except EmbedderError as error:
            if error.reason != "text":
                raise
        return [pair for text in texts for pair in self._single(text)]

    def _single(self, text: str) -> list[tuple[str, Vectors]]:
        try:
            return [(text, self._embedder.embed([text])[0])]
        except EmbedderError as error:
            if error.reason != "text":
                raise
            return []

    def embed(self, texts: Sequence[str]) -> Vectors:
        """See `Embedder.embed`."""
        known = [self._recent.get(("", text)) for text in texts]
        near = [vector for vector in known if vector is not None]
        return np.stack(near) if len(near) == len(texts) else self._embedder.embed(texts)


class _Gate:
    def __init__(self, gate: IntentClassifier, memo: Memo) -> None:
        self.fingerprint, self.reads = gate.fingerprint, gate.reads
        self._gate = gate
        self._memo = memo

    def classify(self, texts: Sequence[str], vectors: Vectors | None) -> list[Intention]:
        found: list[Intention] = []
        for at, text in enumerate(texts):
            said = self._memo.intention(text)
            if said is None:
                own = None if vectors is None else vectors[at : at + 1]
                (said,) = self._gate.classify([text], own)
                self._memo.put_intention(text, said)
            found.append(said)
        return found


class _Verifier:
    def __init__(self, verifier: Verifier, memo: Memo) -> None:
        self.name, self.fingerprint = verifier.name, verifier.fingerprint
        self._verifier = verifier
        self._memo = memo

    def verify(self, pairs: Sequence[TextPair]) -> list[Verdict]:
        found: list[Verdict] = []
        for pair in pairs:
            said = self._memo.verdict(pair.stored, pair.asked)
            if said is None:
                (said,) = self._verifier.verify([pair])
                self._memo.put_verdict(pair.stored, pair.asked, said)
            found.append(said)
        return found


def remembered(chain: Chain, memo: Memo) -> tuple[Chain, Foreseen]:
    """The chain with its models behind the memo, and its embedder."""
    embedder = Foreseen(chain.embedder, memo)
    gate = None if chain.gate is None else _Gate(chain.gate, memo)
    verifier = None if chain.verifier is None else _Verifier(chain.verifier, memo)
    return replace(chain, embedder=embedder, gate=gate, verifier=verifier), embedder

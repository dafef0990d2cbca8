"""Scores labelled pairs with the very chain that would serve: embedder, verifier, gate."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trivet.errors import EmbedderError
from trivet.eval.pairs import LabelledPair
from trivet.policies.intents import Intent
from trivet.progress import watched
from trivet.semantic.chain import Chain
from trivet.semantic.types import Embedder, Intention, TextPair, Verdict

if TYPE_CHECKING:
    from trivet.semantic.types import Vectors

_BATCH = 256
"""Pairs that are embedded and verified together."""
_WIDE = 4096
"""Dimension from which a vector is kept as its components that are not zero."""


@dataclass(frozen=True, slots=True)
class ScoredPair:
    """What the chain makes of one pair."""

    pair: LabelledPair
    cosine: float
    """Of the two vectors; NaN where the contexts differ, so that nothing was compared."""
    score: float | None
    """None: never served, whatever the threshold, and `reason` says why."""
    reason: str = ""
    """`context`, `veto-NAME`, or the gate's: `intent-action`, ...; empty where there is a score."""
    verdict: Verdict | None = None
    """The chain's, whatever the gate said; None where nothing was compared."""
    stored: Intention | None = None
    """The gate's, of `pair.a`; None where it was not asked."""
    asked: Intention | None = None
    """The gate's, of `pair.b`."""

    @property
    def intent(self) -> Intent | None:
        """Of the asked question; None without a gate."""
        return None if self.asked is None else self.asked.intent


def score_pairs(
    chain: Chain, pairs: Sequence[LabelledPair], admit: Collection[Intent] | None = None
) -> list[ScoredPair]:
    """Score the pairs, in order. Every text is embedded once.

    With `admit`, a pair of which the gate refuses either text has no score: the one would not
    have been stored, or the other not looked up. The chain has to have a gate then.
    Raises `EmbedderError`.
    """
    texts = _Texts(chain, gated=admit is not None)
    scored: list[ScoredPair] = []
    for batch in _batches(pairs, "scoring pairs"):
        texts.learn(batch)
        scored += _scored(chain, batch, texts, admit)
        texts.forget_after(batch)
    return scored


def cosines(embedder: Embedder, pairs: Sequence[LabelledPair]) -> list[float]:
    """The cosine of each pair's texts, contexts aside, in float64. Raises `EmbedderError`."""
    bare = [replace(pair, context=pair.context._replace(b=pair.context.a)) for pair in pairs]
    return [one.cosine for one in score_pairs(Chain("cosine", embedder), bare)]


class _Texts:
    """Vectors and intentions of the texts at hand: a text's vector is kept until its last pair."""

    def __init__(self, chain: Chain, *, gated: bool) -> None:
        self._chain = chain
        self._gated = gated
        self._vectors: dict[str, _Vector] = {}
        self._intentions: dict[str, Intention] = {}

    def learn(self, batch: _Batch) -> None:
        new = [text for text in _texts(batch.pairs) if text not in self._vectors]
        if not new:
            return
        vectors = self._chain.embedder.embed(new)
        if len(vectors) != len(new):
            raise EmbedderError("shape", "The embedder gave another number of vectors than texts.")
        self._vectors.update(zip(new, map(_kept, vectors), strict=True))
        if self._gated and self._chain.gate is not None:
            said = self._chain.classify(new, vectors)
            self._intentions.update(zip(new, said, strict=True))

    def forget_after(self, batch: _Batch) -> None:
        for text in batch.ending:
            self._vectors.pop(text, None)

    def cosine(self, pair: LabelledPair) -> float:
        return _dot(self._vectors[pair.a], self._vectors[pair.b])

    def intention(self, text: str) -> Intention | None:
        return self._intentions.get(text)


class _Vector(NamedTuple):
    """A vector in float64; with places, only its components there, in ascending order."""

    values: NDArray[np.float64]
    places: NDArray[np.int64] | None


def _kept(vector: Vectors) -> _Vector:
    """Word counts are wide and nearly empty: a large set of them would not fit into memory."""
    if len(vector) < _WIDE:
        return _Vector(vector.astype(np.float64), None)
    places = np.flatnonzero(vector)
    return _Vector(vector[places].astype(np.float64), places)


def _dot(one: _Vector, other: _Vector) -> float:
    if one.places is None or other.places is None:
        return float(np.dot(one.values, other.values))
    _, mine, theirs = np.intersect1d(
        one.places, other.places, assume_unique=True, return_indices=True
    )
    return float(np.dot(one.values[mine], other.values[theirs]))


@dataclass(frozen=True, slots=True)
class _Batch:
    pairs: Sequence[LabelledPair]
    ending: Sequence[str]
    """Texts that no later pair has."""


def _texts(pairs: Sequence[LabelledPair]) -> list[str]:
    return list(dict.fromkeys(text for pair in pairs for text in (pair.a, pair.b)))


def _batches(pairs: Sequence[LabelledPair], label: str) -> Iterator[_Batch]:
    last = {text: at for at, pair in enumerate(pairs) for text in (pair.a, pair.b)}
    starts = range(0, len(pairs), _BATCH)
    for start in watched(starts, len(starts), label):
        some = pairs[start : start + _BATCH]
        yield _Batch(some, [text for text in _texts(some) if last[text] < start + _BATCH])


def _scored(
    chain: Chain, batch: _Batch, texts: _Texts, admit: Collection[Intent] | None
) -> list[ScoredPair]:
    pairs = batch.pairs
    asked = [TextPair(pair.a, pair.b, texts.cosine(pair)) for pair in pairs]
    return [
        _judged(
            ScoredPair(
                pair,
                text_pair.cosine if pair.comparable else float("nan"),
                score=None,
                stored=texts.intention(pair.a),
                asked=texts.intention(pair.b),
            ),
            verdict,
            admit,
        )
        for pair, text_pair, verdict in zip(pairs, asked, chain.verify(asked), strict=True)
    ]


def _judged(one: ScoredPair, verdict: Verdict, admit: Collection[Intent] | None) -> ScoredPair:
    reason = "" if verdict.veto is None else f"veto-{verdict.veto}"
    if admit is not None:
        reason = refusal(one, admit) or reason
    if not one.pair.comparable:
        return replace(one, reason="context")
    return replace(one, score=None if reason else verdict.score, reason=reason, verdict=verdict)


def refusal(one: ScoredPair, admit: Collection[Intent]) -> str:
    """Why the gate would not have looked up the one text or stored the other; else empty."""
    for intention in (one.asked, one.stored):
        if intention is None:
            continue
        if not intention.admitted:
            return intention.reason or f"intent-{intention.intent}"
        if intention.intent not in admit:
            return f"intent-{intention.intent}"
    return ""


def rescored(
    chain: Chain, scored: Sequence[ScoredPair], admit: Collection[Intent] | None = None
) -> list[ScoredPair]:
    """The same pairs by another chain over the same embedder and gate; nothing is embedded."""
    found: list[ScoredPair] = []
    for start in range(0, len(scored), _BATCH):
        some = scored[start : start + _BATCH]
        compared = [one for one in some if one.pair.comparable]
        texts = [TextPair(one.pair.a, one.pair.b, one.cosine) for one in compared]
        verdicts = iter(chain.verify(texts))
        found += [
            _judged(one, next(verdicts), admit) if one.pair.comparable else one for one in some
        ]
    return found

"""Nearest-neighbour pairs out of recorded traffic: what a semantic cache would have compared.

A question is paired with the nearest one that was asked earlier and answered by a stored answer,
of the same tenant, with all but the text equal.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from trivet.canonical import digest
from trivet.eval.pairs import question
from trivet.eval.remembered import Foreseen
from trivet.policies.intents import Intent
from trivet.policies.traffic import Traffic
from trivet.semantic.chain import Chain
from trivet.semantic.partitions import PartitionedIndex
from trivet.semantic.types import Intention, Neighbour, Partition, Record, TextPair

if TYPE_CHECKING:
    from trivet.semantic.types import Vectors

_AHEAD = 64
_STEPS = (-0.15, -0.08, -0.04, -0.02, 0.0, 0.02, 0.04, 0.08)
"""Edges of the strata, as distances of the score from the threshold: narrow where it matters."""
_FAR = frozenset({0, len(_STEPS)})
_FAR_EVERY = 4
"""A far stratum gives one pair where a near one gives so many."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """Two questions of one tenant that have not been labelled. `a` was asked earlier."""

    tenant: str
    a: str
    b: str
    context: str
    """Digest of all but the texts."""
    score: float | None
    """Of the chain; None where a rule speaks against the pair."""
    cosine: float
    answers: tuple[str, str] | None = None
    """What was answered to `a` and to `b`, where it is known."""

    @property
    def id(self) -> str:
        """16 hex digits that only this pair has, whichever of the two was asked first."""
        return pair_id(self.context, self.a, self.b)


def pair_id(context: str, *questions: str) -> str:
    """Names a pair of questions in a context; their order makes no difference."""
    parts = (context, *sorted(question(text) for text in questions))
    return digest(*(part.encode("utf-8", "surrogatepass") for part in parts))[:8].hex()


class Gate(NamedTuple):
    """What is let through; a pair that a gate refuses is never served, so never labelled."""

    intents: Collection[Intent]

    def admits(self, intention: Intention) -> bool:
        """Whether a question of this intention is looked up and stored."""
        return intention.admitted and intention.intent in self.intents


def find_candidates(
    rows: Iterable[Traffic], chain: Chain, embedder: Foreseen, gate: Gate | None = None
) -> list[Candidate]:
    """All pairs, each once, in the order of the later question. Raises `EmbedderError`."""
    finder = _Finder(chain, gate)
    waiting: list[Traffic] = []
    for row in rows:
        if row.text is None or row.rest is None or row.unasked:
            continue
        waiting.append(row)
        if len(waiting) == _AHEAD:
            finder.take(waiting, embedder)
            waiting = []
    finder.take(waiting, embedder)
    return list(finder.found.values())


class _Finder:
    def __init__(self, chain: Chain, gate: Gate | None) -> None:
        self.found: dict[str, Candidate] = {}
        self._chain = chain
        self._gate = gate
        self._index = PartitionedIndex(lambda tenant: 1 << 60, most_bytes=1 << 40, clock=lambda: 0)
        self._seen: set[tuple[bytes, str]] = set()

    def take(self, rows: Sequence[Traffic], embedder: Foreseen) -> None:
        if not rows:
            return
        texts = [row.text or "" for row in rows]
        embedder.foresee(texts)
        vectors = embedder.embed(texts)
        for row, vector in zip(rows, vectors, strict=True):
            self._take(row, row.text or "", vector)
        while (job := self._index.due()) is not None:
            job()()

    def _take(self, row: Traffic, text: str, vector: Vectors) -> None:
        partition = Partition(digest(row.tenant.encode(), (row.rest or "").encode()))
        place = partition, question(text)
        if place in self._seen or not self._admits(text, vector):
            return
        near = self._index.nearest(partition, vector, 1, 0.0)
        if near:
            self._note(row, text, near[0])
        if row.answer.plain and (row.answer.tier == "semantic" or not row.answer.reason):
            self._seen.add(place)
            self._index.add(_record(row, text, vector, partition))

    def _admits(self, text: str, vector: Vectors) -> bool:
        if self._gate is None:
            return True
        (intention,) = self._chain.classify([text], vector.reshape(1, -1))
        return self._gate.admits(intention)

    def _note(self, row: Traffic, text: str, near: Neighbour) -> None:
        stored = near.record.text
        (verdict,) = self._chain.verify([TextPair(stored, text, near.cosine)])
        score = None if verdict.veto is not None else verdict.score
        found = Candidate(row.tenant, stored, text, row.rest or "", score, near.cosine)
        self.found.setdefault(found.id, found)


def _record(row: Traffic, text: str, vector: Vectors, partition: Partition) -> Record:
    return Record(
        id=hashlib.sha256(partition + text.encode()).hexdigest()[:32],
        tenant=row.tenant,
        partition=partition,
        key=bytes.fromhex(row.key),
        text=text,
        vector=vector.astype("<f4").tobytes(),
        intent=Intent.INFORMATIONAL,
        created=row.at,
        expires=float("inf"),
    )


def stratum_of(score: float | None, near: float) -> int:
    """Which stratum a score lies in, from 0 (far below the threshold, or vetoed) upward."""
    if score is None:
        return 0
    return sum(score - near >= step for step in _STEPS)


def stratum_name(stratum: int) -> str:
    """A stratum by its edges: `-0.02..+0.00` from the threshold."""
    low = f"{_STEPS[stratum - 1]:+.2f}" if stratum else ""
    high = f"{_STEPS[stratum]:+.2f}" if stratum < len(_STEPS) else ""
    return f"{low}..{high}"


def stratified(
    candidates: Iterable[Candidate], near: float, count: int, labelled: Collection[str] = ()
) -> list[Candidate]:
    """At most `count` pairs that are not labelled yet, spread over the strata.

    Strata take turns, so that each gives alike until it has no more; the two far ones give a
    quarter of that. Within a stratum the order is that of the pairs' ids: random, and the same
    each time.
    """
    strata: dict[int, list[Candidate]] = {}
    for one in sorted(candidates, key=lambda one: one.id, reverse=True):
        if one.id not in labelled:
            strata.setdefault(stratum_of(one.score, near), []).append(one)
    chosen: list[Candidate] = []
    turn = 0
    while strata and len(chosen) < count:
        for stratum in sorted(strata):
            if stratum in _FAR and turn % _FAR_EVERY and len(strata.keys() - _FAR):
                continue
            chosen.append(strata[stratum].pop())
            if not strata[stratum]:
                del strata[stratum]
        turn += 1
    return chosen[:count]

"""Labelled data as a stream of questions, what a cache made of it, and Trivet's chains on it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from trivet.eval.pairs import LabelledPair, question
from trivet.eval.split import components
from trivet.semantic.chain import Chain
from trivet.semantic.types import TextPair

if TYPE_CHECKING:
    from trivet.semantic.types import Vectors

STEPS = 150
"""Thresholds that are tried on traffic, where what is stored depends on what was served."""


class Question(NamedTuple):
    """One line of the stream. `answer` names the right answer: a number, as text."""

    text: str
    answer: str
    asked: bool
    """False: it is stored and not asked."""
    keep: bool
    """Whether it is stored after a miss."""


class Counts(NamedTuple):
    """What a cache made of a stream. Both rates are fractions."""

    asked: int
    answerable: int
    """Questions asked of which one with the same answer came before."""
    hits: int
    """Served with the right answer."""
    false_hits: int

    @property
    def among_hits(self) -> float:
        """False hits among all that was served; 0 where nothing was."""
        served = self.hits + self.false_hits
        return self.false_hits / served if served else 0.0

    @property
    def over_all(self) -> float:
        """False hits over all questions asked."""
        return self.false_hits / self.asked if self.asked else 0.0


def answers_by_pair(pairs: Sequence[LabelledPair]) -> dict[str, str]:
    """An answer for each text: texts that pairs call the same share one, directly or through
    others, and no others do."""
    same = [replace(pair, group="") for pair in pairs if pair.same]
    names = {
        question(text): name
        for pair, name in zip(same, components(same), strict=True)
        for text in (pair.a, pair.b)
    }
    return {
        text: names.get(question(text), question(text))
        for pair in pairs
        for text in (pair.a, pair.b)
    }


def answers_by_intent(pairs: Sequence[LabelledPair]) -> dict[str, str]:
    """An answer for each text: its intent. The group of two that differ is `INTENT|INTENT`."""
    found: dict[str, str] = {}
    for pair in pairs:
        first, _, second = pair.group.partition("|")
        found.setdefault(pair.a, first)
        found.setdefault(pair.b, second or first)
    return found


def in_pairs(pairs: Sequence[LabelledPair], answers: dict[str, str]) -> list[Question]:
    """Of each pair, in order, the first text is stored and the second asked.

    A text that came before is not asked, nor one stored twice: an exact cache would serve it.
    """
    lines = ((text, asked) for pair in pairs for text, asked in ((pair.a, False), (pair.b, True)))
    numbers = _Numbers()
    return [
        Question(text, numbers.of(answers[text]), asked, keep=False)
        for text, asked in _first_times(lines)
    ]


def as_traffic(texts: Iterable[str], answers: dict[str, str]) -> list[Question]:
    """Every text is asked, once, and stored after a miss."""
    numbers = _Numbers()
    return [
        Question(text, numbers.of(answers[text]), asked=True, keep=True)
        for text, _ in _first_times((text, True) for text in texts)
    ]


def count(questions: Sequence[Question], served: Sequence[str | None]) -> Counts:
    """Count what was served; `served` has one item for each question that was asked."""
    asked = [one for one in questions if one.asked]
    found = list(zip(asked, served, strict=True))
    hits = sum(answer == one.answer for one, answer in found)
    false_hits = sum(answer is not None for _, answer in found) - hits
    return Counts(len(asked), _answerable(questions), hits, false_hits)


def together(runs: Sequence[Counts]) -> Counts:
    """The sums of several runs."""
    return Counts(*map(sum, zip(*runs, strict=True)))


def most_hits(curve: Iterable[Counts], among_hits: float) -> Counts:
    """The point with the most hits at no more false hits among hits; no hits where none fits."""
    fitting = [one for one in curve if one.among_hits <= among_hits]
    return max(fitting, key=lambda one: one.hits, default=Counts(0, 0, 0, 0))


@dataclass(frozen=True, slots=True)
class Looked:
    """One look-up: the answer of the nearest question, and the chain's score; None: a veto."""

    answer: str
    score: float | None


class Replay:
    """A chain of Trivet over one stream: the nearest stored question, served from a score on."""

    def __init__(self, chain: Chain, questions: Sequence[Question], vectors: Vectors) -> None:
        self._chain = chain
        self._questions = questions
        self._cosines = vectors @ vectors.T
        self._scores: dict[tuple[int, int], float | None] = {}

    def curve(self) -> list[Counts]:
        """Counts at many thresholds, the highest first."""
        looked = self._looked(float("inf"))
        scores = sorted({one.score for one in looked if one and one.score is not None})[::-1]
        if any(one.keep for one in self._questions):
            scores = thinned(scores)
            return [self._counted(self._looked(score), score) for score in scores]
        return [self._counted(looked, score) for score in scores]

    def _counted(self, looked: Sequence[Looked | None], threshold: float) -> Counts:
        served = [
            one.answer if one and one.score is not None and one.score >= threshold else None
            for one in looked
        ]
        return count(self._questions, served)

    def _looked(self, threshold: float) -> list[Looked | None]:
        """One item for each question asked, with only misses stored; None: nothing was there."""
        stored = np.zeros(len(self._questions), dtype=bool)
        found: list[Looked | None] = []
        for at, one in enumerate(self._questions):
            looked = self._look(at, stored) if one.asked else None
            served = looked is not None and looked.score is not None and looked.score >= threshold
            stored[at] = not one.asked or (one.keep and not served)
            if one.asked:
                found.append(looked)
        return found

    def _look(self, at: int, stored: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Looked | None:
        places = np.flatnonzero(stored[:at])
        if not len(places):
            return None
        near = int(places[self._cosines[at, places].argmax()])
        return Looked(self._questions[near].answer, self._score(near, at))

    def _score(self, near: int, at: int) -> float | None:
        if (near, at) not in self._scores:
            pair = TextPair(
                self._questions[near].text, self._questions[at].text, float(self._cosines[at, near])
            )
            (verdict,) = self._chain.verify([pair])
            self._scores[near, at] = verdict.score if verdict.veto is None else None
        return self._scores[near, at]


def thinned(scores: Sequence[float], steps: int = STEPS) -> list[float]:
    """At most `steps` of the scores, by rank, the first ones denser: few hits, few false ones."""
    if len(scores) <= steps:
        return list(scores)
    ranks = {round((len(scores) - 1) * (at / (steps - 1)) ** 2) for at in range(steps)}
    return [scores[rank] for rank in sorted(ranks)]


class _Numbers:
    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def of(self, name: str) -> str:
        return self._known.setdefault(name, str(len(self._known)))


def _first_times(lines: Iterable[tuple[str, bool]]) -> Iterator[tuple[str, bool]]:
    """What is asked has not come before; what is stored has not been stored."""
    stored: set[str] = set()
    seen: set[str] = set()
    for text, asked in lines:
        name = question(text)
        if name not in (seen if asked else stored):
            yield text, asked
        seen.add(name)
        if not asked:
            stored.add(name)


def _answerable(questions: Sequence[Question]) -> int:
    there: set[str] = set()
    found = 0
    for one in questions:
        found += one.asked and one.answer in there
        if not one.asked or one.keep:
            there.add(one.answer)
    return found

"""The chain `fitted`: a logistic layer of the tenant's own over what the shipped verifier sees.

Its weights are in a calibration (`trivet.policies.fitted`), which `trivet eval calibrate` writes.
A command against a question, and a text that is too long, stay vetoed whatever the weights. A
number that is contradicted has a weight of its own in place of the verifier's veto: in some
tenants' pairs half of the questions that differ in a number ask the same.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from trivet.errors import ConfigError, Problem
from trivet.policies.fitted import FeatureSet, Fitted
from trivet.semantic.features import GROUPS, analyse, features
from trivet.semantic.types import TextPair, Verdict
from trivet.semantic.verify import TrainedVerifier, blend, first, objections_to, squash

_FEW = 2
_NUMBER = "number"
_VETOES = frozenset({"act", "length"})
_WIDEST = 5.0
"""In scales: how far from the mean a number can be and still count for more."""

Numbers = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Evidence:
    """What there is to see of n pairs."""

    numbers: Numbers
    """Of shape (n, numbers): whether a rule objects, the cosine, and the other `features`."""
    odds: Numbers
    """The verifier's log odds, before they come in steps. Of shape (n,)."""
    vetoes: tuple[str | None, ...]
    """What no weight can undo."""
    contradicted: NDArray[np.bool_]
    """Whether the verifier vetoes a pair for its numbers. Of shape (n,)."""

    def some(self, which: Sequence[int] | NDArray[np.intp]) -> Evidence:
        """That about the pairs at these places."""
        at = np.asarray(which, dtype=np.intp)
        vetoes = tuple(self.vetoes[n] for n in at)
        return Evidence(self.numbers[at], self.odds[at], vetoes, self.contradicted[at])


class Reader(TrainedVerifier):
    """The shipped verifier, which tells all that it sees in place of a verdict."""

    def read(self, pairs: Sequence[TextPair]) -> Evidence:
        """The evidence about each pair, in order."""
        analysed = [analyse(pair) for pair in pairs]
        if not analysed:
            nothing = np.zeros((0, len(number_groups())))
            return Evidence(nothing, np.zeros(0), (), np.zeros(0, dtype=bool))
        seen = np.stack([features(pair) for pair in analysed])
        margins = self._trees.margin(seen)
        raised = [blend(pair, margin) for pair, margin in zip(analysed, margins, strict=True)]
        objections = [objections_to(pair) for pair in analysed]
        objects = [float(bool(found)) for found in objections]
        contradicted = [
            self._verdict(pair, margin).veto == _NUMBER
            for pair, margin in zip(analysed, margins, strict=True)
        ]
        return Evidence(
            np.column_stack([objects, seen.astype(np.float64)]),
            self._slope * np.array(raised) + self._offset,
            tuple(first(name for name in found if name in _VETOES) for found in objections),
            np.array(contradicted),
        )


@cache
def reader() -> Reader:
    """The one of this process: all fitted chains share its weights."""
    return Reader()


@cache
def number_groups() -> tuple[str, ...]:
    """For each of the numbers, the group that it belongs to."""
    pair = analyse(TextPair("a", "a", 1.0))
    names = [group.__name__.strip("_") for group in GROUPS for _ in group(pair)]
    return ("objections", *names)


def first_numbers(numbers: Numbers, which: FeatureSet) -> Numbers:
    """The columns of a set of features."""
    return numbers[:, :_FEW] if which == "few" else numbers


def standardised(numbers: Numbers, layer: Fitted) -> Numbers:
    """The layer's numbers as it weighs them, of shape (n, weights)."""
    found = first_numbers(numbers, layer.features)
    z = (found - np.array(layer.means)) / np.array(layer.scales)
    return np.asarray(np.clip(z, -_WIDEST, _WIDEST))


def fitted_odds(evidence: Evidence, layer: Fitted) -> Numbers:
    """The layer's log odds of each pair."""
    z = standardised(evidence.numbers, layer)
    odds = layer.intercept + layer.trust * evidence.odds + z @ np.array(layer.weights)
    return np.asarray(odds + layer.contradicted * evidence.contradicted)


def heaviest(layer: Fitted) -> list[tuple[str, float]]:
    """The groups of numbers by the length of their weights, the longest first; without zeros.

    A weight is log odds for each standard deviation, so groups can be compared.
    """
    squares: dict[str, float] = {}
    for group, weight in zip(number_groups(), layer.weights, strict=False):
        squares[group] = squares.get(group, 0.0) + weight**2
    found = [(group, math.sqrt(square)) for group, square in squares.items() if square]
    return sorted(found, key=lambda one: -one[1])


class FittedVerifier:
    """The shipped verifier behind a tenant's own layer; the score is its probability."""

    name = "fitted"

    def __init__(self, layer: Fitted) -> None:
        """Raises `ConfigError` for weights that are not as many as the verifier has numbers."""
        expected = _FEW if layer.features == "few" else len(number_groups())
        if len(layer.weights) != expected:
            told = f"{len(layer.weights)} weights, and the verifier has {expected} numbers"
            raise ConfigError(Problem("", 0, 0, "fitted.weights", f"{told}: calibrate again"))
        self.layer = layer
        self._reader = reader()
        own = f"{self._reader.fingerprint} {layer.model_dump_json()}"
        self.fingerprint = hashlib.sha256(own.encode()).hexdigest()

    def verify(self, pairs: Sequence[TextPair]) -> list[Verdict]:
        """A probability for each pair; a veto for an act, or a text that is too long."""
        evidence = self._reader.read(pairs)
        scores = map(squash, fitted_odds(evidence, self.layer).tolist())
        return [Verdict(score, veto) for score, veto in zip(scores, evidence.vetoes, strict=True)]

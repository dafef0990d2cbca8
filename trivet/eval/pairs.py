"""Labelled pairs of questions: what one is, and how a set of them is named and split.

A pair says of two questions whether one answer is right for both. Reading files is `pair_files`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from trivet import canonical


class Contexts(NamedTuple):
    """Everything beside the compared text, on either side: the partition that it lies in."""

    a: str = ""
    b: str = ""


NO_CONTEXT = Contexts()


@dataclass(frozen=True, slots=True)
class LabelledPair:
    """Two questions and whether they want the same answer.

    `a` is the stored question and `b` the one that is asked. `slice` names a kind of pair
    (`negation`, `paraphrase`), `group` what has to stay on one side of a split.
    """

    a: str
    b: str
    same: bool
    slice: str = ""
    group: str = ""
    context: Contexts = NO_CONTEXT
    id: str = ""

    @property
    def comparable(self) -> bool:
        """False where the contexts differ: other partitions are never compared, nor served."""
        return self.context.a == self.context.b


def canonical_row(pair: LabelledPair) -> bytes:
    """The pair as bytes, injectively. `id` is a name and does not count."""
    same = "same" if pair.same else "different"
    parts = (pair.a, pair.b, same, pair.slice, pair.group, *pair.context)
    return canonical.join(*(part.encode("utf-8", "surrogatepass") for part in parts))


def digest(pairs: Iterable[LabelledPair]) -> str:
    """SHA-256 of the set, in hex: of the digests of its canonical rows, sorted.

    The order of the rows makes no difference; a row that is there twice does.
    """
    rows = sorted(canonical.sha256(canonical_row(pair)) for pair in pairs)
    return canonical.digest(*rows).hex()


def question(text: str) -> str:
    """A text as splits compare it: case and white space make no other question."""
    return " ".join(text.casefold().split())


def split_groups(pairs: Sequence[LabelledPair]) -> list[str]:
    """For each pair, the name of what must not be split.

    That is its own `group`, and where it has none, its connected component: pairs that share a
    question, directly or through others, are one component, named by a hash of its first
    question in code point order. Components are made over the pairs without a group.
    """
    parents: dict[str, str] = {}
    for pair in pairs:
        if not pair.group:
            _unite(parents, question(pair.a), question(pair.b))
    return [pair.group or _component_name(_root(parents, question(pair.a))) for pair in pairs]


def _root(parents: dict[str, str], text: str) -> str:
    parents.setdefault(text, text)
    root = text
    while parents[root] != root:
        root = parents[root]
    while parents[text] != root:
        parents[text], text = root, parents[text]
    return root


def _unite(parents: dict[str, str], one: str, other: str) -> None:
    first, second = sorted((_root(parents, one), _root(parents, other)))
    parents[second] = first


def _component_name(first: str) -> str:
    return "c-" + hashlib.sha256(first.encode("utf-8", "surrogatepass")).hexdigest()[:16]

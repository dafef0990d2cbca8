"""Numbers about two texts: what the trained verifier sees of a pair."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trivet.semantic.english import word_list, word_set
from trivet.semantic.types import TextPair
from trivet.semantic.verify_align import Alignment, Link, align
from trivet.semantic.verify_rules import Differences, compare
from trivet.semantic.verify_text import Reading, read

_SAME = frozenset({"equal", "typo", "joined", "synonym", "derived"})
_KNOWN_KINDS = frozenset({"fragment", "yes-no-fragment"})
_DEFINITE = word_set(
    "who where when why how-to how-much how-many how-long how-often how-far how-big how-old"
)
_ALIKE_KINDS = frozenset(
    frozenset(pair.split("/"))
    for pair in word_list(
        "what/how-much what/how-many what/when how-long/how-many what/who which/what "
        "which/who what/how-big what/how-long where/how-to when/how-long yes-no/how-to "
        "how-much/yes-no "
        "what/how-to which/where what/where what/how-often what/how-far what/how-old what/why "
        "which/how-much how-long/when"
    )
)


@dataclass(frozen=True, slots=True)
class Pair:
    """Two analysed texts."""

    a: Reading
    b: Reading
    cosine: float
    alignment: Alignment
    differences: Differences


def analyse(pair: TextPair) -> Pair:
    """Everything that rules and features need, computed once."""
    a, b = read(pair.stored), read(pair.asked)
    alignment = align(a, b)
    return Pair(a, b, pair.cosine, alignment, compare(a, b, alignment))


def _lexical(pair: Pair) -> list[float]:
    links = pair.alignment.links
    total_a = sum(term.weight for term in pair.a.terms) or 0.5
    total_b = sum(term.weight for term in pair.b.terms) or 0.5
    same = [link for link in links if link.how in _SAME]
    return [
        *_ordered(
            sum(link.a.weight for link in same) / total_a,
            sum(link.b.weight for link in same) / total_b,
        ),
        *_ordered(
            sum(link.a.weight * link.similarity for link in links) / total_a,
            sum(link.b.weight * link.similarity for link in links) / total_b,
        ),
        sum(link.how == "equal" for link in links) / max(1, len(links)),
        float(len(same)),
        *(float(sum(link.how == how for link in same)) for how in ("typo", "synonym", "derived")),
    ]


def _ordered(one: float, other: float) -> tuple[float, float]:
    """The order of the texts makes no difference."""
    return (one, other) if one <= other else (other, one)


def _leftovers(pair: Pair) -> list[float]:
    a, b = pair.alignment.left_a, pair.alignment.left_b
    found: list[float] = []
    few, many = sorted((a, b), key=lambda terms: sum(term.weight for term in terms))
    for terms in (few, many):
        found += [
            float(len(terms)),
            sum(term.weight for term in terms),
            max((term.weight for term in terms), default=0.0),
        ]
    found.append(float(any(term.role for term in many)))
    return found


def _substitutions(pair: Pair) -> list[float]:
    weak = [link for link in pair.alignment.links if link.how not in _SAME]
    worst = min(weak, key=lambda link: link.similarity, default=None)
    by_kind = [sum(link.how == how for link in weak)
               for how in ("sense", "near-opposite", "kind", "sibling", "near", "far")]  # fmt: skip
    return [
        float(len(weak)),
        worst.similarity if worst else 1.0,
        sum(1 - link.similarity for link in weak),
        max((_weight(link) for link in weak), default=0.0),
        *map(float, by_kind),
    ]


def _weight(link: Link) -> float:
    return max(link.a.weight, link.b.weight)


def _names(pair: Pair) -> list[float]:
    """Names that only one text has, and names replaced by each other."""
    weak = [link for link in pair.alignment.links if link.how not in _SAME]
    return [
        *_ordered(
            float(sum(term.named for term in pair.alignment.left_a)),
            float(sum(term.named for term in pair.alignment.left_b)),
        ),
        float(sum(link.a.named and link.b.named for link in weak)),
        float(sum(link.a.named != link.b.named for link in weak)),
        float(sum(link.a.named and link.how in _SAME for link in pair.alignment.links)),
    ]


def _kinds(pair: Pair) -> list[float]:
    a, b = pair.a.kind, pair.b.kind
    return [
        float(a == b),
        float(frozenset((a, b)) in _ALIKE_KINDS),
        float(a in _KNOWN_KINDS or b in _KNOWN_KINDS),
        float((a == "command") != (b == "command")),
        float((a == "yes-no") != (b == "yes-no")),
        float("why" in (a, b) and a != b),
        float(a != b and a in _DEFINITE and b in _DEFINITE),
    ]


def _rules(pair: Pair) -> list[float]:
    d = pair.differences
    return [
        float(d.number_conflict), float(d.number_extra), float(d.number_shared),
        float(d.negation), float(d.opposites), float(d.odd_polarity), float(d.odd_near_polarity),
        float(d.quantifiers),
        float(d.comparatives), float(d.scopes), float(d.prepositions_swapped),
        float(d.preposition_changes), float(d.inversions), float(d.role_swaps), float(d.possessors),
        float(d.relatives),
    ]  # fmt: skip


def _shape(pair: Pair) -> list[float]:
    """The part of the words that differs, between what the texts begin and end with alike."""
    a, b = pair.a.bases, pair.b.bases
    start = 0
    while start < min(len(a), len(b)) and a[start] == b[start]:
        start += 1
    end = 0
    while end < min(len(a), len(b)) - start and a[-1 - end] == b[-1 - end]:
        end += 1
    middle_a, middle_b = len(a) - start - end, len(b) - start - end
    longest = max(len(a), len(b), 1)
    common = len(set(a) & set(b)) / max(1, len(set(a) | set(b)))
    return [
        (start + end) / longest,
        float(min(middle_a, middle_b)),
        float(max(middle_a, middle_b)),
        common,
        float(sorted(a) == sorted(b)),
        len(a) / longest if len(a) < len(b) else len(b) / longest,
        float(min(longest, 40)),
        *_ordered(float(len(pair.a.terms)), float(len(pair.b.terms))),
        _bigrams(pair),
    ]


def _bigrams(pair: Pair) -> float:
    """Dice's coefficient of the letter pairs."""
    one, other = pair.a.letters, pair.b.letters
    return 2 * len(one & other) / max(1, len(one) + len(other))


def _cosines(pair: Pair) -> list[float]:
    return [pair.cosine]


GROUPS: tuple[Callable[[Pair], list[float]], ...] = (
    _cosines, _lexical, _leftovers, _substitutions, _names, _kinds, _rules, _shape,
)  # fmt: skip


def features(pair: Pair) -> NDArray[np.float32]:
    """A vector of fixed length; its first number is the cosine."""
    return np.array([value for group in GROUPS for value in group(pair)], dtype=np.float32)

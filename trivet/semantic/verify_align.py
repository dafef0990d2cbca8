"""Which content words of two texts stand for each other, and what is left on either side."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trivet.semantic.english import word_set
from trivet.semantic.verify_lexicon import Lexicon, lexicon
from trivet.semantic.verify_text import Reading, Term

MAX_LEFT = 12
"""Content words without an equal that are compared with each other, on either side."""


@dataclass(frozen=True, slots=True)
class Link:
    """Two words that stand in for each other."""

    a: Term
    b: Term
    how: str
    """`equal`, `typo`, `joined`, `synonym`, `derived`, `sense`, `opposite`, `near-opposite`,
    `kind`, `sibling`, `near`, `far`."""
    similarity: float


@dataclass(frozen=True, slots=True)
class Alignment:
    """All links, and what has none."""

    links: tuple[Link, ...]
    left_a: tuple[Term, ...]
    left_b: tuple[Term, ...]


_SIMILARITY = {"typo": 0.95, "joined": 0.95, "synonym": 0.9, "derived": 0.9, "sense": 0.75}


def align(one: Reading, other: Reading) -> Alignment:
    """Equal words first, then the most similar pairs of the rest, each word once."""
    links, rest_a, rest_b = _equal(one.terms, other.terms)
    rest_a = _joined(rest_a, other, links)
    rest_b = _joined(rest_b, one, links)
    if not rest_a or not rest_b:
        return Alignment(tuple(links), tuple(rest_a), tuple(rest_b))
    known = lexicon()
    near_a, near_b = rest_a[:MAX_LEFT], rest_b[:MAX_LEFT]
    cosines = _cosines(near_a, near_b, known)
    found = []
    for i, a in enumerate(near_a):
        for j, b in enumerate(near_b):
            how, similarity = relation(a, b, float(cosines[i, j]), known)
            found.append((similarity, -abs(i - j), i, j, how))
    found.sort(reverse=True)
    taken_a: set[int] = set()
    taken_b: set[int] = set()
    for similarity, _, i, j, how in found:
        if similarity < 0.3 or i in taken_a or j in taken_b:
            continue
        taken_a.add(i)
        taken_b.add(j)
        links.append(Link(near_a[i], near_b[j], how, similarity))
    left_a = tuple(term for i, term in enumerate(rest_a) if i not in taken_a)
    left_b = tuple(term for j, term in enumerate(rest_b) if j not in taken_b)
    return Alignment(tuple(links), left_a, left_b)


def _equal(a: tuple[Term, ...], b: tuple[Term, ...]) -> tuple[list[Link], list[Term], list[Term]]:
    links: list[Link] = []
    places: dict[str, list[Term]] = {}
    for term in b:
        places.setdefault(term.base, []).append(term)
    rest_a = []
    for term in a:
        if places.get(term.base):
            links.append(Link(term, places[term.base].pop(0), "equal", 1.0))
        else:
            rest_a.append(term)
    taken = {id(link.b) for link in links}
    return links, rest_a, [term for term in b if id(term) not in taken]


def _joined(rest: list[Term], other: Reading, links: list[Link]) -> list[Term]:
    """Without words that the other text writes in two or one: `log in` and `login`."""
    kept = []
    for term in rest:
        if term.word in other.joined or any(x in other.words for x in _pairs_with(term, rest)):
            links.append(Link(term, term, "joined", 0.95))
        else:
            kept.append(term)
    return kept


def _pairs_with(term: Term, rest: list[Term]) -> list[str]:
    return [term.word + x.word if x.at > term.at else x.word + term.word
            for x in rest if abs(x.at - term.at) == 1]  # fmt: skip


def relation(a: Term, b: Term, cosine: float, known: Lexicon) -> tuple[str, float]:
    """How two different words relate, and how likely they stand for the same."""
    opposite = known.opposites(a.base, b.base) or known.opposites(a.word, b.word)
    synonym = known.synonyms(a.base, b.base)
    if opposite == 2 and synonym != 3:
        return "opposite", 0.6
    if misspelt(a, b):
        return "typo", 0.95
    if synonym == 3 or _short_for(a.base, b.base):
        return "synonym", 0.9
    if synonym == 2 or _one_stem(a.base, b.base):
        return "derived", 0.9
    if opposite:
        return "near-opposite", 0.5
    if synonym == 1:
        return "sense", 0.55 + 0.35 * max(0.0, cosine)
    related = known.related(a.base, b.base)
    if related == 2:
        return "kind", 0.3 + 0.5 * max(0.0, cosine)
    if related == 1:
        return "sibling", 0.25 + 0.4 * max(0.0, cosine)
    return ("near" if cosine > 0.45 else "far"), 0.75 * max(0.0, cosine)


def _cosines(a: list[Term], b: list[Term], known: Lexicon) -> NDArray[np.float32]:
    return np.asarray(_vectors(a, known) @ _vectors(b, known).T, dtype=np.float32)


def _vectors(terms: list[Term], known: Lexicon) -> NDArray[np.float32]:
    rows = np.array([known.number.get(term.base, -1) for term in terms])
    vectors = known.vectors[rows].astype(np.float32) / 127.0
    return np.where(rows[:, None] < 0, np.float32(0), vectors)


def misspelt(a: Term, b: Term) -> bool:
    """Whether one is a slip of the pen for the other: a known word for an unknown one."""
    if a.known and b.known:
        return False
    short, long = sorted((len(a.word), len(b.word)))
    if short < 4 or long - short > 2:
        return False
    allowed = 1 if short < 7 or not (a.known or b.known) else 2
    return distance(a.word, b.word, allowed) <= allowed


def distance(a: str, b: str, most: int) -> int:
    """Insertions, deletions, changes and swaps of neighbours; `most + 1` if more than `most`."""
    if abs(len(a) - len(b)) > most or max(len(a), len(b)) > 40:
        return most + 1
    before: list[int] = []
    row = list(range(len(b) + 1))
    for i, one in enumerate(a, 1):
        row, before, last = [i], row, before
        for j, other in enumerate(b, 1):
            best = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (one != other))
            if last and j > 1 and one == b[j - 2] and a[i - 2] == other:
                best = min(best, last[j - 2] + 1)
            row.append(best)
        if min(row) > most:
            return most + 1
    return row[-1]


def _short_for(a: str, b: str) -> bool:
    """`repo` for `repository`, `app` for `application`."""
    short, long = (a, b) if len(a) < len(b) else (b, a)
    return 3 <= len(short) <= 5 and len(long) >= len(short) + 4 and long.startswith(short)


def _one_stem(a: str, b: str) -> bool:
    """`install` and `installation`, `wireless` and `wirelessly`."""
    short, long = (a, b) if len(a) < len(b) else (b, a)
    if len(short) < 4 or not long.startswith(short[: max(4, len(short) - 1)]):
        return False
    return long[max(4, len(short) - 1) :].removeprefix(short[-1]) in _SUFFIXES


_SUFFIXES = word_set(
    "s es ed ing er ers or al ation ations ition tion ment ments ly ity ness y ion ions ive able "
    "ance ence al d n e ization izing ize ied ier iest ies"
)

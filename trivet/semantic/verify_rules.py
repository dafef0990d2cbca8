"""What two texts differ in, by rules: polarity, quantities, scope, comparison, order, possessor."""

from __future__ import annotations

from dataclasses import dataclass

from trivet.semantic.english import (
    COMPARATIVES,
    NEGATIONS,
    PREPOSITIONS,
    RELATIVES,
    word_list,
    word_set,
)
from trivet.semantic.verify_align import Alignment, Link
from trivet.semantic.verify_lexicon import lexicon
from trivet.semantic.verify_numbers import Quantity
from trivet.semantic.verify_text import Reading

_SAME = frozenset({"equal", "typo", "joined", "synonym", "derived"})
_WEAK = frozenset({Quantity(1.0, ""), Quantity(1.0, "th")})
"""`one` is often a pronoun, and `first` a place in an order."""
_DIRECTED = ("from", "to", "into", "than", "with", "by", "for")
_STRONG_PREPOSITIONS = word_set(
    "before after under over above below with without from to until since against inside outside "
    "up down off during within out"
)


@dataclass(frozen=True, slots=True)
class Differences:
    """Counts of what differs between two texts; all 0 where nothing was found."""

    number_conflict: int
    """Quantities that each text has and the other lacks, on both sides."""
    number_extra: int
    number_shared: int
    negation: int
    opposites: int
    odd_polarity: bool
    """Negations and opposites do not cancel out."""
    odd_near_polarity: bool
    """The same, with words near to an opposite counted too."""
    quantifiers: int
    comparatives: int
    scopes: int
    prepositions_swapped: int
    preposition_changes: int
    inversions: int
    role_swaps: int
    possessors: int
    relatives: int
    act_against_ask: bool
    """A command on one side, a question whether something is possible on the other."""
    names: int

    other_question: bool
    """Who against when, how against why, ..."""

    @property
    def inverted(self) -> bool:
        """Whether numbers or polarity speak against each other, or might."""
        return self.number_conflict > 0 or self.negation > 0 or self.opposites > 0

    @property
    def exchanged(self) -> bool:
        """Whether names, their order or the question are exchanged."""
        swapped = self.role_swaps > 1 and self.inversions > 0
        return self.names > 0 or swapped or self.other_question


def compare(a: Reading, b: Reading, alignment: Alignment) -> Differences:
    """All differences of two analysed texts."""
    conflict, extra, shared = _numbers(a, b)
    opposites = sum(link.how == "opposite" for link in alignment.links)
    opposites += _opposite_words(a, b)
    near = sum(link.how == "near-opposite" for link in alignment.links)
    negation = abs(a.negations - b.negations)
    unlike = int(a.negations != b.negations)
    unlike_words = a.vocabulary ^ b.vocabulary
    inversions, swaps = _order(alignment.links)
    return Differences(
        number_conflict=conflict,
        number_extra=extra,
        number_shared=shared,
        negation=negation,
        opposites=opposites,
        odd_polarity=bool((unlike + opposites) % 2),
        odd_near_polarity=bool((unlike + opposites + near) % 2),
        quantifiers=len(a.quantifiers ^ b.quantifiers),
        comparatives=len(unlike_words & COMPARATIVES),
        scopes=len(a.scopes ^ b.scopes),
        prepositions_swapped=_opposite_prepositions(a, b),
        preposition_changes=len((a.prepositions ^ b.prepositions) & _STRONG_PREPOSITIONS),
        inversions=inversions,
        role_swaps=swaps,
        possessors=_possessors(a, b),
        relatives=len(unlike_words & RELATIVES),
        act_against_ask={a.kind, b.kind} == {"command", "yes-no"},
        names=_exchanged_names(alignment),
        other_question=frozenset((a.kind, b.kind)) in _OTHER_QUESTIONS,
    )  # fmt: skip


def _exchanged_names(alignment: Alignment) -> int:
    """Names that stand where the other text has another one."""
    linked = sum(
        link.how not in _SAME and link.a.named and link.b.named for link in alignment.links
    )
    left = (sum(term.named for term in side) for side in (alignment.left_a, alignment.left_b))
    return linked + min(left)


def _numbers(a: Reading, b: Reading) -> tuple[int, int, int]:
    one, other = frozenset(a.quantities), frozenset(b.quantities)
    only_a, only_b = _unlike(one - other, other - one)
    conflict = min(len(only_a), len(only_b))
    extra = len((only_a if len(only_a) > len(only_b) else only_b) - _WEAK) - conflict
    return conflict, max(0, extra), len(one & other)


def _unlike(
    one: frozenset[Quantity], other: frozenset[Quantity]
) -> tuple[frozenset[Quantity], frozenset[Quantity]]:
    """Without what is the same but for a unit that one of them leaves out: at 18, 18 years old."""
    pairs = [
        (a, b) for a in one for b in other if a.written == b.written and "" in (a.unit, b.unit)
    ]
    return one - {a for a, _ in pairs}, other - {b for _, b in pairs}


def _opposite_words(a: Reading, b: Reading) -> int:
    """Opposites among function words that the alignment does not see: more and less."""
    known = lexicon()
    content = {term.word for term in (*a.terms, *b.terms)}
    only_a = [word for word in dict.fromkeys(a.words) if word not in b.vocabulary]
    only_b = [word for word in dict.fromkeys(b.words) if word not in a.vocabulary]
    rest_b = [word for word in only_b[:20] if word not in NEGATIONS]
    return sum(
        known.opposites(one, other) == 2
        for one in only_a[:20]
        if one not in NEGATIONS
        for other in rest_b
        if not (one in content and other in content)
        and not (one in PREPOSITIONS and other in PREPOSITIONS)
    )


def _opposite_prepositions(a: Reading, b: Reading) -> int:
    known = lexicon()
    return sum(
        known.opposites(one, other) == 2
        for one in a.prepositions - b.prepositions
        for other in b.prepositions - a.prepositions
    )


def _order(links: tuple[Link, ...]) -> tuple[int, int]:
    """Pairs of shared words in the other order, and shared words under another preposition."""
    same = sorted((link for link in links if link.how in _SAME), key=lambda link: link.a.at)[:16]
    inversions = sum(
        one.b.at > other.b.at for at, one in enumerate(same) for other in same[at + 1 :]
    )
    swaps = sum(
        link.a.role != link.b.role and (link.a.role in _DIRECTED or link.b.role in _DIRECTED)
        for link in same
    )
    return inversions, swaps


def _possessors(a: Reading, b: Reading) -> int:
    one, other = a.possessors - {"you"}, b.possessors - {"you"}
    if one and other:
        return 2 * len(one ^ other)
    return len(one ^ other)


def objections(a: Reading, b: Reading, alignment: Alignment, d: Differences) -> tuple[str, ...]:
    """Names of what speaks against one answer for both texts, the gravest first."""
    weak = [link for link in alignment.links if link.how not in _SAME]
    left = (*alignment.left_a, *alignment.left_b)
    found = {
        "number": d.number_conflict > 0,
        "negation": d.negation > 0 and d.odd_polarity,
        "antonym": d.opposites > 0 and d.odd_polarity,
        "act": d.act_against_ask,
        "order": d.prepositions_swapped > 0 or (d.role_swaps > 1 and d.inversions > 0),
        "entity": d.names > 0 or any(link.how == "sibling" for link in weak),
        "scope": d.number_extra > 0 or d.scopes > 0 or any(term.named for term in left),
        "quantifier": d.quantifiers > 0,
        "comparative": d.comparatives > 0,
        "possessor": d.possessors > 1 or d.relatives > 0,
        "question": d.other_question,
    }
    return tuple(name for name, holds in found.items() if holds)


_OTHER_QUESTIONS = frozenset(
    frozenset(pair.split("/"))
    for pair in word_list(
        "who/when who/where when/where when/why where/why how-to/why how-to/how-much "
        "how-to/how-long how-to/who how-much/how-long how-many/how-long how-much/when"
    )
)

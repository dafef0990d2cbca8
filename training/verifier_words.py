"""Words of the lexicon that traps are made of: kinds of the same, and opposites."""

from __future__ import annotations

from trivet.semantic.english import OPPOSITES, STOP
from trivet.semantic.verify_lexicon import lexicon

_KINDS_OF: dict[int, list[str]] = {}
_SIBLINGS: dict[str, list[str]] = {}


def siblings(base: str) -> list[str]:
    """Frequent words that share a parent with this one in WordNet."""
    known = lexicon()
    if not _KINDS_OF:
        for at, word in enumerate(known.lemmas):
            if known.rank[at] < 14_000 and word not in STOP:
                for parent in known.parents(word):
                    _KINDS_OF.setdefault(parent, []).append(word)
    if base not in _SIBLINGS:
        found = {word for parent in known.parents(base) for word in _KINDS_OF.get(parent, ())}
        _SIBLINGS[base] = sorted(
            word
            for word in found - {base}
            if known.related(base, word) == 1 and not known.synonyms(base, word)
        )
    return _SIBLINGS[base]


_ALL: list[tuple[str, str]] = []


def opposites() -> list[tuple[str, str]]:
    if not _ALL:
        known = lexicon()
        frequent = [w for at, w in enumerate(known.lemmas) if known.rank[at] < 12_000]
        words = [(w, known.number[w]) for w in frequent]
        numbers = {at: w for w, at in words}
        for a, b in known.antonyms():
            if a in numbers and b in numbers:
                _ALL.extend(((numbers[a], numbers[b]), (numbers[b], numbers[a])))
        _ALL.extend(sorted(OPPOSITES))
    return _ALL

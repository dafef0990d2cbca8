"""One text as the verifier reads it: words, content words, quantities, question, polarity."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from trivet.semantic.english import (
    COMMANDS,
    CONTRACTIONS,
    FILLERS,
    NEGATIONS,
    POSSESSORS,
    PREPOSITIONS,
    QUANTIFIERS,
    SCOPES,
    STOP,
    word_set,
)
from trivet.semantic.verify_lexicon import lexicon
from trivet.semantic.verify_numbers import Quantity, quantities

MAX_CHARACTERS = 1_000
"""What is read of a text. Two longer texts are the same only if they are equal."""
MAX_TERMS = 48

_TOKEN = re.compile(r"[£$€¥%°]|\d+:\d\d|\d[\d,.]*\d|[^\W_]+(?:['.][^\W_]+)*[+#]*", re.UNICODE)
_GLUED = re.compile(r"^(\d[\d,.]*)([a-z]+)$")
_ALIKE = str.maketrans({"’": "'", "‘": "'", "ʼ": "'", "`": "'", "–": "-", "—": "-", "‑": "-"})
_FIRST_FILLERS = sorted(FILLERS, key=len, reverse=True)
_ASKING = word_set("what which who whom whose when where why how")
_AUXILIARY = word_set(
    "do does did is are was were am can could may might will would shall should must have has had"
)
_SPANS = word_set("days hours minutes weeks months years seconds")
_GOOD = word_set("best good right correct proper easiest quickest simplest usual better")
_MEASURES = {
    "when": word_set("time hour day date year hours deadline"),
    "how-long": word_set("time hour minute day week month duration length"),
    "how-much": word_set("price cost fee charge much pricing"),
    "how-many": word_set("number count amount many"),
    "why": word_set("reason cause make"),
    "how-often": word_set("frequency time"),
}
"""What the kind of question says already, so that it is no content word."""
_PRONOUNS = word_set("i you he she it we they")
_HOW = {
    "much": "how-much", "many": "how-many", "long": "how-long", "often": "how-often",
    "frequently": "how-often", "far": "how-far", "big": "how-big", "large": "how-big",
    "old": "how-old", "soon": "when", "quickly": "how-long", "fast": "how-long", "early": "when",
    "late": "when", "come": "why", "tall": "how-big", "high": "how-big", "deep": "how-big",
}  # fmt: skip
_PHRASES = (
    (("what", "time"), "when"), (("which", "day"), "when"), (("what", "day"), "when"),
    (("by", "when"), "when"), (("until", "when"), "when"), (("what", "year"), "when"),
    (("opening", "hours"), "when"), (("opening", "times"), "when"), (("deadline",), "when"),
    (("way", "to"), "how-to"), (("way", "of"), "how-to"), (("ways", "to"), "how-to"),
    (("way", "for"), "how-to"), (("process",), "how-to"), (("procedure",), "how-to"),
    (("steps",), "how-to"), (("how", "to"), "how-to"), (("what", "do", "i", "do"), "how-to"),
    (("what", "should", "i", "do"), "how-to"), (("what", "can", "i", "do"), "how-to"),
    (("what", "now"), "how-to"), (("instructions",), "how-to"), (("reason",), "why"),
    (("what", "causes"), "why"), (("what", "makes"), "why"), (("price",), "how-much"),
    (("cost",), "how-much"), (("costs",), "how-much"), (("fee",), "how-much"),
    (("fees",), "how-much"), (("prices",), "how-much"),
    (("pricing",), "how-much"), (("duration",), "how-long"),
    (("how", "is", "it", "that"), "why"), (("number", "of"), "how-many"),
    (("what", "place"), "where"), (("which", "person"), "who"), (("which", "country"), "where"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Term:
    """A content word."""

    word: str
    base: str
    weight: float
    """From 0 for the most frequent words to 1 for unknown ones."""
    at: int
    """Its place among the words."""
    role: str
    """The preposition that governs it; empty if none."""
    known: bool
    named: bool
    """Written with a capital inside a sentence, or unknown: likely a name."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A text, analysed once."""

    words: tuple[str, ...]
    vocabulary: frozenset[str]
    bases: tuple[str, ...]
    """The words, content words in their base form."""
    letters: frozenset[tuple[str, str]]
    """Neighbouring letters, over the ends of words."""
    terms: tuple[Term, ...]
    quantities: tuple[Quantity, ...]
    kind: str
    """`how-to`, `when`, `yes-no`, `command`, ...; `fragment` where nothing tells."""
    negations: int
    quantifiers: frozenset[str]
    scopes: frozenset[str]
    possessors: frozenset[str]
    prepositions: frozenset[str]
    joined: frozenset[str]
    """Neighbouring words written as one: `check out` as `checkout`."""
    whole: str
    """All of the text, folded, for texts that are cut."""
    cut: bool


def fold(text: str) -> str:
    """One form of characters, quotes and case."""
    plain = unicodedata.normalize("NFKC", text).translate(_ALIKE)
    parts = unicodedata.normalize("NFKD", plain.casefold())
    return "".join(c for c in parts if not "\u0300" <= c <= "\u036f")


def tokens(text: str) -> list[str]:
    """Words in lower case: contractions in full, number and unit apart, no possessive 's."""
    found: list[str] = []
    for match in _TOKEN.finditer(fold(text)):
        found += _split(match.group())
    return found


def _split(token: str) -> list[str]:
    if token in CONTRACTIONS:
        return CONTRACTIONS[token].split()
    glued = _GLUED.match(token)
    if glued and glued[2] not in ("st", "nd", "rd", "th"):
        return [glued[1], glued[2]]
    stem, mark, ending = token.rpartition("'")
    if not mark:
        return [token]
    if ending == "t" and stem.endswith("n"):
        return [stem[:-1], "not"]
    if ending == "s":
        return [stem, "is"] if stem in _ASKING or stem in ("it", "that", "there") else [stem]
    full = {"re": "are", "ve": "have", "ll": "will", "d": "would", "m": "am"}.get(ending)
    return [stem, full] if full else [stem + ending]


@lru_cache(maxsize=4096)
def _fillers_at(first: str, last: str) -> tuple[tuple[str, ...], ...]:
    return tuple(x for x in _FIRST_FILLERS if x[0] == first or x[-1] == last)


def strip_fillers(words: list[str]) -> list[str]:
    """Without politeness and hesitation at the edges; never empty unless `words` is."""
    start, end = 0, len(words)
    moved = True
    while moved and start < end:
        moved = False
        for filler in _fillers_at(words[start], words[end - 1]):
            size = len(filler)
            if size >= end - start:
                continue
            if tuple(words[start : start + size]) == filler:
                start, moved = start + size, True
                break
            ends = size > 1 or filler[0] not in ("so", "like", "well", "ok")
            if ends and tuple(words[end - size : end]) == filler:
                end, moved = end - size, True
                break
    return [w for w in words[start:end] if w not in ("please", "um", "uh", "er", "erm", "hmm")]


def _plain_way(words: list[str]) -> list[str]:
    """`the way` for `the best way`."""
    return [
        word
        for word, after in zip(words, [*words[1:], ""], strict=False)
        if not (after in ("way", "ways", "method") and word in _GOOD)
    ]


def _strip_tag(words: list[str]) -> list[str]:
    """Without a tag question: "..., isn't it?"."""
    size = 3 if words[-2:-1] == ["not"] else 2
    if len(words) > size + 1 and words[-1] in _PRONOUNS and words[-size] in _AUXILIARY:
        return words[:-size]
    return words


@lru_cache(maxsize=8192)
def read(text: str) -> Reading:
    """Analyse a text: bounded time, whatever it holds; raises nothing."""
    words = _plain_way(_strip_tag(strip_fillers(tokens(text[:MAX_CHARACTERS]))))
    asks = kind(words, "?" in text)
    found, used = quantities(words)
    capitals = _capitals(text[:MAX_CHARACTERS])
    cut = len(text) > MAX_CHARACTERS
    terms = _terms(words, used, capitals, _MEASURES.get(asks, frozenset()))
    bases, glued, vocabulary = list(words), "".join(words), frozenset(words)
    for term in terms:
        bases[term.at] = term.base
    return Reading(
        words=tuple(words),
        vocabulary=vocabulary,
        bases=tuple(bases),
        letters=frozenset(pairwise(glued)),
        terms=tuple(terms),
        quantities=tuple(sorted(found)),
        kind=asks,
        negations=sum(word in NEGATIONS for word in words),
        quantifiers=vocabulary & QUANTIFIERS,
        scopes=vocabulary & SCOPES,
        possessors=frozenset(POSSESSORS[word] for word in words if word in POSSESSORS),
        prepositions=vocabulary & PREPOSITIONS,
        joined=frozenset(a + b for a, b in pairwise(words)),
        whole=" ".join(fold(text).split()) if cut else "",
        cut=cut,
    )


def _terms(
    words: list[str], used: list[bool], capitals: frozenset[str], asked: frozenset[str]
) -> list[Term]:
    found: list[Term] = []
    known = lexicon()
    role, role_at = "", -9
    for at, word in enumerate(words):
        if word in PREPOSITIONS:
            role, role_at = word, at
        if used[at] or word in STOP or word in PREPOSITIONS or len(found) >= MAX_TERMS:
            continue
        if not word[:1].isalnum():
            continue
        base = known.base(word)
        if base in asked:
            continue
        is_known = base in known.number
        found.append(
            Term(word, base, known.rarity(base), at, role if at - role_at <= 4 else "", is_known,
                 word in capitals or not is_known)
        )  # fmt: skip
    return found


def _capitals(text: str) -> frozenset[str]:
    """Folded words with a capital inside a sentence; none where most words have one."""
    words = re.findall(r"[^\W\d_]+", text)
    raised = [word for word in words if word[0].isupper()]
    if len(raised) > max(1, 0.6 * len(words)):
        return frozenset()
    inside = re.findall(r"(?<=[\w,;:\"'(] )[^\W\d_]+", text)
    return frozenset(fold(word) for word in inside if word[0].isupper() and word != "I")


def kind(words: list[str], marked: bool) -> str:
    """What sort of answer is wanted. `marked`: the text has a question mark."""
    if not words:
        return "fragment"
    first = next((w for w in words if w in _ASKING), "")
    found = (_how(words) if first == "how" else "") or _by_phrase(words)
    if found:
        return found
    if words[0] in _ASKING or (first and words[0] not in _AUXILIARY):
        return "how-to" if first == "how" else first
    if words[0] in _AUXILIARY:
        return "command" if _asks_to_act(words, marked) else "yes-no"
    if words[0] in COMMANDS and not marked:
        return "command"
    return "yes-no-fragment" if marked else "fragment"


def _how(words: list[str]) -> str:
    after = words.index("how") + 1
    following = [*words[after : after + 2], "", ""]
    if following[0] == "many" and following[1] in _SPANS:
        return "how-long"
    return _HOW.get(following[0], "")


def _by_phrase(words: list[str]) -> str:
    present = set(words)
    for phrase, name in _PHRASES:
        size = len(phrase)
        if phrase[0] in present and any(
            tuple(words[at : at + size]) == phrase for at in range(len(words) - size + 1)
        ):
            return name
    return ""


def _asks_to_act(words: list[str], marked: bool) -> bool:
    """ "Can you cancel my order?", "do not cancel it"."""
    if words[:2] == ["do", "not"]:
        return not marked
    to_you = words[1:2] == ["you"] and len(words) > 2 and words[2] in COMMANDS
    return to_you and bool({"me", "my"} & set(words[3:]))

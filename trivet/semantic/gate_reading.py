"""Whether the gate can judge a text at all: length, script, language, known words."""

from __future__ import annotations

import re
import unicodedata
import zlib
from collections.abc import Set

from trivet.canonical import digest
from trivet.semantic.gate_features import FUNCTION_WORDS, MAX_READ
from trivet.semantic.poison import hidden

_UNKNOWN_SHARE = 0.6
_SUM = re.compile(r"\d\s*[-+*/x=^%]\s*\d")
_LETTERS = re.compile(r"[^\W\d_]+")
_FOREIGN_WORDS = """
    los las una unos es está son qué cómo cuál cuándo dónde por para con su del como puedo
    cuanto quiero hay le des une est sont quel quelle quels comment où pourquoi quand avec pour
    dans mon mes votre vos je vous nous puis combien der das den dem ein eine einen ist sind wie
    wo warum wann welche welcher ich mein meine mit für auf und nicht kann wird zu il lo gli che
    è sono dove perché quando quanto mio mia della posso os um uma são qual onde meu minha não
    você het een zijn hoe waar waarom wanneer mijn ik kan niet voor met jak jest gdzie kiedy
    dlaczego moje mogę czy nie się på är hur vad när varför jag mitt och att det som hvordan
    hvor hva nasıl nedir ne nerede zaman bir için ve apa bagaimana kapan saya yang dan untuk
    mana berapa как что где когда hogyan hol mikor kuinka mitä missä milloin ako kde kedy cum
    unde când este care pentru sau
"""
_FOREIGN = frozenset(_FOREIGN_WORDS.split())
"""Function words of other languages that no English text is likely to hold."""


def version() -> str:
    """Hex, of what refuses a text unread."""
    return digest(_FOREIGN_WORDS.encode(), f"2 {_UNKNOWN_SHARE} {_SUM.pattern}".encode()).hex()


def word_code(word: str) -> int:
    """CRC-32 of a word: how the words that the training saw are kept."""
    return zlib.crc32(word.encode())


def unreadable(text: str, words: list[str], known: Set[int]) -> str:
    """Why a text cannot be judged, or an empty string.

    `empty`, `long`, `no-words`, `hidden-text` (characters that nobody sees), `script` (not Latin),
    `language` (not English), `unknown-words` (most words are none that the training saw). `words`
    are its normalised words.
    """
    if len(text) > MAX_READ:
        return "long"
    if not text.strip():
        return "empty"
    if hidden(text) and any(letter.isalpha() for letter in text):
        return "hidden-text"
    letters = [letter for letter in text if letter.isalpha()]
    if not letters:
        return "" if _SUM.search(text) else "no-words"
    if any(not unicodedata.name(letter, "").startswith("LATIN") for letter in letters):
        return "script"
    if _foreign(text):
        return "language"
    unknown = sum(word_code(word) not in known for word in words if not word.isdigit())
    return "unknown-words" if unknown > len(words) * _UNKNOWN_SHARE else ""


def _foreign(text: str) -> bool:
    words = _LETTERS.findall(text.lower())
    foreign = sum(word in _FOREIGN for word in words)
    english = sum(word in FUNCTION_WORDS for word in words)
    return foreign > english

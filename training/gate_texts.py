"""Texts that teach the gate: our own templates, expanded by a seeded generator.

`(a|b)` is a choice, `<name>` is a word of the list `name` in `gate_words.json`. Every expansion
keeps the template's intent. `sloppy` types a text the way people do.
"""

from __future__ import annotations

import json
import random
from collections.abc import Set
from dataclasses import dataclass
from pathlib import Path

from trivet.semantic.gate_features import normalised

DATA = Path(__file__).parent / "data"
PER_TEMPLATE = 10
WRAPPED = ("informational", "time", "personal", "permission")
OPENERS = ("how", "what", "when", "where", "why", "who", "which")
MISTYPED = {"you": "u", "your": "ur", "please": "pls", "i": "I", "the": "teh", "want": "wnat"}


@dataclass(frozen=True, slots=True)
class Example:
    """One text, its intent's value, and the group that cross-validation keeps together."""

    text: str
    intent: str
    group: str
    source: str


def own_examples(
    seed: int = 0, per_template: int = PER_TEMPLATE, avoid: Set[str] = frozenset()
) -> list[Example]:
    """Expand every template; the same seed gives the same texts.

    A text whose normalised words, joined, are in `avoid` is left out: no sentence of a data set
    that only measures is learnt by chance.
    """
    words: dict[str, list[str]] = json.loads((DATA / "gate_words.json").read_text())
    rows = [json.loads(line) for line in (DATA / "gate_templates.jsonl").read_text().splitlines()]
    made: dict[str, Example] = {}
    for number, row in enumerate(rows):
        chance = random.Random(f"{seed}:{number}")
        for _ in range(row.get("times", per_template)):
            plain = " ".join(expand(row["text"], words, chance).split())
            text = sloppy(_wrapped(plain, row["intent"], words, chance), chance)
            if " ".join(normalised(text)) not in avoid:
                made.setdefault(text, Example(text, row["intent"], f"own-{number}", "own"))
    return list(made.values())


def expand(template: str, words: dict[str, list[str]], chance: random.Random) -> str:
    """One text of a template. Raises `ValueError` for an unbalanced one, `KeyError` for a list
    that does not exist."""
    text, rest = _sequence(template, words, chance, False)
    if rest:
        raise ValueError(f"unbalanced template: {template}")
    return text


def _sequence(
    template: str, words: dict[str, list[str]], chance: random.Random, inside: bool
) -> tuple[str, str]:
    choices, current = [], ""
    while template:
        letter, template = template[0], template[1:]
        if letter == "(":
            found, template = _sequence(template, words, chance, True)
            current += found
        elif letter == "<":
            name, template = template.split(">", 1)
            current += chance.choice(words[name])
        elif letter == "|" and inside:
            choices.append(current)
            current = ""
        elif letter == ")":
            return chance.choice([*choices, current]), template
        else:
            current += letter
    if inside:
        raise ValueError(f"unbalanced template: {current}")
    return current, ""


def _wrapped(text: str, intent: str, words: dict[str, list[str]], chance: random.Random) -> str:
    first = text.split(" ", 1)[0]
    if first in OPENERS and intent in WRAPPED and chance.random() < 0.12:
        text = f"{chance.choice(words['tellme'])} {text}"
    if intent != "context" and chance.random() < 0.1:
        text = f"{chance.choice(words['polite'])} {text}"
    if intent not in ("context", "creative") and chance.random() < 0.05:
        text = f"{text} {chance.choice(words['tail'])}"
    if first in OPENERS and chance.random() < 0.4:
        text += "?"
    return text


def sloppy(text: str, chance: random.Random) -> str:
    """Now and then a capital, a lost apostrophe, a short form or two letters swapped."""
    if chance.random() < 0.25:
        text = text[0].upper() + text[1:]
    if chance.random() < 0.1:
        text = text.replace("'", "")
    if chance.random() < 0.08:
        text = " ".join(MISTYPED.get(word, word) for word in text.split())
    if chance.random() < 0.08 and len(text) > 12:
        at = chance.randrange(4, len(text) - 2)
        text = text[:at] + text[at + 1] + text[at] + text[at + 2 :]
    return text

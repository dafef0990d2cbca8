"""Our own labelled pairs: from hand-written questions, templates, and changes that keep or alter
what is asked. Deterministic: `pairs()` gives the same rows each time.

`data/slots.txt` has templates whose slot is filled
from `data/fillings.txt` (values with `=` between them are one value).
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from itertools import combinations

from training.verifier_blocks import Row, blocks
from training.verifier_changes import (
    ALTERING,
    DATA,
    KEEPING,
    cased,
    data_lines,
    polite,
    typo,
)
from training.verifier_words import opposites


def from_blocks(rng: random.Random) -> Iterator[Row]:
    for at, (same, traps) in enumerate(blocks()):
        group = f"block-{at}"
        for a, b in combinations(same, 2):
            yield Row(a, b, True, "reworded", group)
        for kind, lines in traps:
            for b in lines:
                for a in [same[0], *rng.sample(same[1:], min(2, len(same) - 1))]:
                    yield Row(a, b, False, kind, group)
            for a, b in combinations(lines, 2):
                yield Row(a, b, True, "reworded", group)
        for (kind, one), (other_kind, other) in combinations(traps, 2):
            if rng.random() < 0.25:
                name = kind if kind == other_kind else "topic"
                yield Row(rng.choice(one), rng.choice(other), False, name, group)


def from_slots(rng: random.Random) -> Iterator[Row]:
    fillings = {
        name: [[value.strip() for value in one.split("=")] for one in rest.split(";")]
        for name, rest in (line.split(": ") for line in data_lines("fillings.txt"))
    }
    for at, block in enumerate(
        (DATA / "slots.txt").read_text("utf-8").split("\n", 1)[1].strip().split("\n\n")
    ):
        name, first = block.split("] ", 1)
        lines = first.split("\n")
        kind = "number" if name[1:] in ("dur money age clock year size version when") else "entity"
        values = fillings[name[1:]]
        for _ in range(10):
            value = rng.choice(values)
            one, other = (rng.choice(lines) for _ in range(2))
            a, b = one.replace("{x}", rng.choice(value)), other.replace("{x}", rng.choice(value))
            if a != b:
                yield Row(a, b, True, "reworded", f"slot-{at}")
        for _ in range(14):
            one_value, other_value = rng.sample(values, 2)
            one = rng.choice(lines)
            other = one if rng.random() < 0.6 else rng.choice(lines)
            a = one.replace("{x}", rng.choice(one_value))
            b = other.replace("{x}", rng.choice(other_value))
            yield Row(a, b, False, kind, f"slot-{at}")


def _changed(text: str, group: str, rng: random.Random) -> Iterator[Row]:
    for change in rng.sample(KEEPING, 2):
        new = change(text, rng)
        if rng.random() < 0.25:
            new = rng.choice((typo, cased, polite))(new, rng)
        if new != text:
            yield Row(text, new, True, "repeat", group)
    for kind in rng.sample(sorted(ALTERING), 3):
        altered = ALTERING[kind](text, rng)
        if altered is not None and altered != text:
            if rng.random() < 0.4:
                altered = rng.choice(KEEPING[:4])(altered, rng)
            yield Row(text, altered, False, kind, group)


def from_changes(rng: random.Random) -> Iterator[Row]:
    """Changes of every hand-written question."""
    for at, (same, traps) in enumerate(blocks()):
        group = f"block-{at}"
        texts = [*same, *(line for _, lines in traps for line in lines)]
        for text in texts:
            yield from _changed(text, group, rng)
        for a, b in combinations(same, 2):
            if rng.random() < 0.3:
                yield Row(
                    rng.choice(KEEPING)(a, rng),
                    rng.choice(KEEPING[:4])(b, rng),
                    True,
                    "reworded",
                    group,
                )
            kind = rng.choice(("scope", "entity", "antonym"))
            altered = ALTERING[kind](b, rng)
            if altered is not None and rng.random() < 0.3:
                yield Row(a, altered, False, kind, group)


SAID = (
    "The {n} was {x}.",
    "This {n} is {x}.",
    "My {n} is {x}",
    "That sounds {x}",
    "It is a {x} {n}.",
    "He felt {x} about it.",
    "Her answer was {x}.",
    "They seem {x} to me",
    "We found the {n} {x}.",
    "It would be {x} to wait.",
    "I am {x}.",
    "She looks {x} today.",
)
NOUNS = ["soup", "road", "house", "plan", "letter", "teacher", "shop", "story", "bag", "song"]


def from_polarity(rng: random.Random) -> Iterator[Row]:
    """Statements: a word, its antonym, and their negations."""
    pairs = [pair for pair in opposites() if min(map(len, pair)) > 3]
    for at in range(900):
        word, other = rng.choice(pairs)
        plain = rng.choice(SAID).replace("{n}", rng.choice(NOUNS))
        verb = re.search(r"\b(is|was|am|are|would be|felt|seem|looks|sounds|found)\b", plain)
        assert verb is not None
        no = {
            "felt": "did not feel",
            "seem": "do not seem",
            "looks": "does not look",
            "sounds": "does not sound",
            "found": "did not find",
            "would be": "would not be",
        }.get(verb[1], verb[1] + " not")

        def say(x: str, negate: bool, plain: str = plain, verb: str = verb[1], no: str = no) -> str:
            text = plain.replace("{x}", x)
            short = rng.random() < 0.4 and " not" in no and "am" not in no
            return (
                text.replace(verb, no.replace(" not", "n't") if short else no, 1)
                if negate
                else text
            )

        group = f"polarity-{at}"
        first = rng.random() < 0.4
        yield Row(say(word, first), say(other, first), False, "antonym", group)
        yield Row(say(word, first), say(word, not first), False, "negation", group)
        yield Row(say(word, first), say(other, not first), True, "double-negation", group)


DIRECTED = (
    (
        "city",
        (
            "Is there a bus from {x} to {y}?",
            "Does a coach run from {x} to {y}?",
            "Can I get from {x} to {y} by bus?",
            "bus {x} to {y}",
        ),
    ),
    (
        "city",
        (
            "How do I move my booking from {x} to {y}?",
            "How can I switch my booking from {x} to {y}?",
            "I booked {x} but want {y}, how do I change it?",
        ),
    ),
    (
        "app",
        (
            "How do I migrate from {x} to {y}?",
            "What are the steps for moving from {x} to {y}?",
            "How can I switch from {x} over to {y}?",
            "I use {x} and want to move to {y}, how?",
        ),
    ),
    (
        "app",
        (
            "Can I copy my files from {x} into {y}?",
            "Is it possible to move files from {x} to {y}?",
            "Does {y} import files from {x}?",
        ),
    ),
    (
        "lang",
        (
            "How do I convert {x} code to {y}?",
            "How can I translate {x} code into {y}?",
            "What's the way to port {x} code to {y}?",
        ),
    ),
    (
        "animal",
        ("Is a {x} faster than a {y}?", "Can a {x} outrun a {y}?", "Is a {y} slower than a {x}?"),
    ),
    (
        "country",
        (
            "Is {x} larger than {y}?",
            "Does {x} have a bigger area than {y}?",
            "Is {y} smaller than {x}?",
        ),
    ),
    (
        "country",
        (
            "Can I send a parcel from {x} to {y}?",
            "Is it possible to ship a parcel from {x} to {y}?",
            "Do you ship from {x} to {y}?",
        ),
    ),
    ("thing", ("How do I replace my {x} with my {y}?", "How can I swap my {x} for my {y}?")),
    ("room", ("How do I get from the {x} to the {y}?", "What's the way from the {x} to the {y}?")),
    (
        "plan",
        (
            "How do I change from the {x} plan to the {y} plan?",
            "How can I switch from {x} to {y}?",
            "What do I do to go from the {x} to the {y} plan?",
        ),
    ),
    ("company", ("Did {x} buy {y}?", "Was {y} bought by {x}?", "Has {x} taken over {y}?")),
)
MUTUAL = (
    (
        "app",
        (
            "What is the difference between {x} and {y}?",
            "How do {x} and {y} differ?",
            "{x} vs {y}",
            "How is {x} different from {y}?",
        ),
    ),
    ("animal", ("Can a {x} live with a {y}?", "Do a {x} and a {y} get along?")),
    (
        "drug",
        (
            "Can I take {x} with {y}?",
            "Is it safe to take {x} and {y} together?",
            "Do {x} and {y} interact?",
        ),
    ),
    ("lang", ("Which is better, {x} or {y}?", "Should I choose {x} or {y}?", "{x} or {y}?")),
    ("city", ("How far is it between {x} and {y}?", "What's the distance between {x} and {y}?")),
)


def from_order(rng: random.Random) -> Iterator[Row]:
    """Two names in a slot each, in the order asked for and in the other."""
    values = {
        name: [one.split("=")[0].strip() for one in rest.split(";")]
        for name, rest in (line.split(": ") for line in data_lines("fillings.txt"))
    }
    for mutual, templates in ((False, DIRECTED), (True, MUTUAL)):
        for at, (name, lines) in enumerate(templates):
            group = f"order-{mutual}-{at}"
            for _ in range(14):
                x, y, z = rng.sample(values[name], 3)
                one, other = rng.choice(lines), rng.choice(lines)

                def fill(line: str, x: str, y: str) -> str:
                    return line.replace("{x}", x).replace("{y}", y)

                yield Row(fill(one, x, y), fill(other, y, x), mutual, "order", group)
                if one != other:
                    yield Row(fill(one, x, y), fill(other, x, y), True, "reworded", group)
                yield Row(
                    fill(one, x, y),
                    fill(other, *rng.choice(((x, z), (z, y)))),
                    False,
                    "entity",
                    group,
                )


def pairs() -> list[Row]:
    """All of our own pairs, without repeats."""
    rng = random.Random("trivet-1")
    found = [
        *from_blocks(rng),
        *from_slots(rng),
        *from_order(rng),
        *from_changes(rng),
        *from_polarity(rng),
    ]
    seen: set[tuple[str, str]] = set()
    kept = []
    for row in found:
        key = (row.a, row.b)
        if row.a == row.b or key in seen:
            continue
        seen.add(key)
        kept.append(row)
    return kept

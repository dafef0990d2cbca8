"""Changes to a question that keep what is asked (`KEEPING`) or alter it (`ALTERING`)."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path

from training.verifier_words import opposites, siblings
from trivet.semantic.english import STOP
from trivet.semantic.verify_lexicon import lexicon

DATA = Path(__file__).parent / "data"


def data_lines(name: str) -> list[str]:
    return (DATA / name).read_text("utf-8").strip().splitlines()


BEFORE = (
    "Hi, ", "Hello! ", "Good morning, ", "Hey, quick question: ", "Sorry, ", "um ",
    "so ", "ok so ", "Got a second? ", "Hi team, ", "Just wondering, ", "er, ",
    "Question: ", "Help! ", "Evening! ", "Sorry for asking again, but ",
)  # fmt: skip
AFTER = (
    " please", " Thanks!", ", please?", " thx", " cheers", " Thank you so much indeed.",
    " Many thanks in advance", " lol", " :)", " ??", "!!", " 🙏", " asap",
    ", any idea?", " thanks",
)  # fmt: skip
INDIRECT = (
    "Could you tell me {}", "Can you tell me {}, please?", "Do you know {}?",
    "I'd like to know {}.", "I was wondering {}.", "Please explain {}", "Tell me {}",
    "i need to know {}", "Would you mind telling me {}?",
)  # fmt: skip
HOW = (
    "How can I ", "How would I ", "What's the way to ", "What is the best way to ",
    "how to ", "How should I ", "How might I ", "How does one ",
    "What do I need to do to ", "Is there a way to ", "What are the steps to ",
    "How do you ", "I want to know how to ", "Any way to ",
    "What is the procedure to ", "where can i ", "I would like to ",
)  # fmt: skip


def typo(text: str, rng: random.Random) -> str:
    """One or two slips in longer words."""
    words = text.split(" ")
    long = [at for at, word in enumerate(words) if len(word) > 4 and word.isalpha()]
    for at in rng.sample(long, min(len(long), rng.choice((1, 1, 2)))):
        word = words[at]
        place = rng.randrange(1, len(word) - 1)
        words[at] = rng.choice(
            (
                word[:place] + word[place + 1 :],
                word[:place] + word[place + 1] + word[place] + word[place + 2 :],
                word[:place] + word[place] + word[place:],
            )
        )
    return " ".join(words)


def polite(text: str, rng: random.Random) -> str:
    text = rng.choice(BEFORE) + text if rng.random() < 0.6 else text
    return text.rstrip("?.") + rng.choice(AFTER) if rng.random() < 0.5 else text


def cased(text: str, rng: random.Random) -> str:
    return rng.choice(
        (
            text.upper(),
            text.lower(),
            text.title(),
            text.lower().rstrip("?."),
            "  " + text.replace(" ", "  ", 2),
            text.rstrip("?") + " ?",
        )
    )


def indirect(text: str, rng: random.Random) -> str:
    """ "How do I X?" as "Could you tell me how I X"."""
    for start, new in (
        ("How do I ", "how I "),
        ("How can I ", "how I can "),
        ("Where do I ", "where I "),
        ("When do I ", "when I "),
    ):
        if text.startswith(start):
            return rng.choice(INDIRECT).format(new + text[len(start) :].rstrip("?"))
    found = re.match(r"(What|Where|Who|When) (is|are) (the [^?]+)\?$", text)
    if found:
        return rng.choice(INDIRECT).format(f"{found[1].lower()} {found[3]} {found[2]}")
    return polite(text, rng)


def framed(text: str, rng: random.Random) -> str:
    for start in ("How do I ", "How can I "):
        if text.startswith(start):
            return rng.choice(HOW) + text[len(start) :]
    for start, others in (
        ("What's ", ("What is ", "whats ")),
        ("What is ", ("What's ", "Whats ", "what would be ")),
        (
            "Can I ",
            ("Could I ", "May I ", "Am I able to ", "Is it possible to ", "Am I allowed to "),
        ),
        ("How much does ", ("What does ",)),
        ("Do you ", ("Do you guys ", "Does your company ")),
        ("Why is ", ("How come ", "What's the reason ")),
        ("Where can I ", ("Where do I ", "Where could I ")),
        ("Is there ", ("Do you have ", "Have you got ")),
    ):
        if text.startswith(start):
            return rng.choice(others) + text[len(start) :]
    return cased(text, rng)


def fronted(text: str, rng: random.Random) -> str:
    """ "How do I X for Y?" as "For Y, how do I X?"."""
    found = re.match(
        r"(.{12,}) ((?:in|on|at|for|from|near|with|to) (?:the|my|a|an) [\w' -]+)\?$", text
    )
    if not found:
        return framed(text, rng)
    start, place = found[1], found[2]
    return f"{place[0].upper()}{place[1:]}, {start[0].lower()}{start[1:]}?"


def hesitant(text: str, rng: random.Random) -> str:
    words = text.lower().rstrip("?").split(" ")
    words.insert(rng.randrange(1, len(words)), rng.choice(("like", "um", "actually", "just", "uh")))
    return rng.choice(("so ", "um ", "", "ok ")) + " ".join(words)


def shortened(text: str, rng: random.Random) -> str:
    """A question as somebody types it into a search box."""
    found = re.match(
        r"(?:How do I|How can I|How should I) (\w+) ((?:my|the|a|an) )?([\w' -]+)\?$", text
    )
    if found and len(found[3].split()) <= 4:
        verb, thing = found[1], found[3]
        if not re.search(r"\b(in|on|at|for|from|with|to|of|off|up|out|into|using|as)\b", thing):
            return rng.choice(
                (
                    f"{thing} {verb} steps",
                    f"{verb} {thing} how",
                    f"{verb} {thing} steps",
                    f"how to {verb} {thing}",
                    f"steps for {verb} {thing}",
                    f"{verb} {thing} instructions",
                    f"{verb} {thing} guide",
                )
            )
    found = re.match(r"(?:What is|What's|What are) the ([\w' -]+)\?$", text)
    if found:
        return rng.choice(
            (
                found[1],
                f"{found[1]} details",
                f"{found[1]} info",
                f"{found[1]}?",
                f"details of the {found[1]}",
                f"what's the {found[1]} please",
                f"I need the {found[1]}, what is it?",
                f"information on {found[1]}",
            )
        )
    found = re.match(r"(?:Can I|Is it possible to) ([\w' -]+)\?$", text)
    if found:
        return rng.choice(
            (
                f"{found[1]} possible?",
                f"{found[1]} allowed?",
                f"possible to {found[1]}?",
                f"am I able to {found[1]}",
            )
        )
    found = re.match(
        r"(?:Do|Does|Is|Are) (the|my|your) ([\w']+) "
        r"(include|cover|contain|have|need) ([\w' -]+)\?$",
        text,
    )
    if found and found[3] in ("include", "cover"):
        return f"is {found[4]} {found[3]}ed in {found[1]} {found[2]}".replace(
            "includeed", "included"
        )
    found = re.match(r"(?:Where is|Where are|Where can I find) ([\w' -]+)\?$", text)
    if found:
        return rng.choice(
            (f"find {found[1]}", f"locate {found[1]}", f"{found[1]} where", f"look up {found[1]}")
        )
    return framed(text, rng)


KEEPING: tuple[Callable[[str, random.Random], str], ...] = (
    typo,
    polite,
    cased,
    indirect,
    framed,
    fronted,
    hesitant,
    shortened,
    shortened,
)


def _content(text: str) -> list[str]:
    return [word for word in re.findall(r"[A-Za-z]{3,}", text) if word.lower() not in STOP]


def entity(text: str, rng: random.Random) -> str | None:
    """A word replaced by another of its kind."""
    known = lexicon()
    words = _content(text)
    rng.shuffle(words)
    for word in words:
        base = known.base(word.lower())
        if base not in known.number:
            continue
        choices = [other for other in siblings(base) if 0.25 < known.cosine(base, other) < 0.75]
        if choices:
            return re.sub(rf"\b{word}\b", rng.choice(choices), text)
    return None


def antonym(text: str, rng: random.Random) -> str | None:
    choices = []
    for word in re.findall(r"[A-Za-z]{2,}", text):
        for one, other in opposites():
            if word.lower() == one and other not in ("con", "up", "long", "home"):
                choices.append((word, other))
    if not choices:
        return None
    word, other = rng.choice(choices)
    return re.sub(rf"\b{word}\b", other, text, count=1)


def negated(text: str, rng: random.Random) -> str | None:
    found = re.search(r"\b(do|does|is|are|can|will|should|did|must|was)\b", text, re.IGNORECASE)
    if not found or found.start() > 14:
        return None
    verb = found[1]
    if found.start() == 0:
        return (
            re.sub(rf"^{verb} (\w+(?: \w+)?)", lambda m: f"{m[0]} not", text, count=1)
            if rng.random() < 0.5
            else f"{verb}n't".replace("cann't", "can't")
            .replace("Cann't", "Can't")
            .replace("willn't", "won't")
            + text[len(verb) :]
        )
    new = {"can": "can't", "will": "won't"}.get(verb, verb + "n't")
    return text.replace(f"{verb} ", rng.choice((new + " ", f"{verb} not ")), 1)


def number(text: str, rng: random.Random) -> str | None:
    found = re.search(r"\d+", text)
    if not found:
        return None
    value = int(found[0])
    new = rng.choice(
        [
            n
            for n in (value + 1, value * 10, value + 10, max(1, value // 2), int(str(value)[::-1]))
            if n != value
        ]
    )
    return text[: found.start()] + str(new) + text[found.end() :]


_SCOPES: list[str] = []
_MODIFIERS: list[str] = []


def scope(text: str, rng: random.Random) -> str | None:
    if not _SCOPES:
        _SCOPES.extend(data_lines("scopes.txt"))
        _MODIFIERS.extend(data_lines("modifiers.txt")[0].split())
    if rng.random() < 0.6:
        mark = "?" if text.endswith("?") else ""
        return text.rstrip("?") + " " + rng.choice(_SCOPES) + mark
    words = _content(text)
    if not words:
        return None
    word = words[-1]
    if rng.random() < 0.4:
        new = f"{word} {rng.choice(HEADS)}"
    elif rng.random() < 0.25:
        new = f"{rng.choice(PREFIXES)}-{word}"
    else:
        new = f"{rng.choice(_MODIFIERS)} {word}"
    return re.sub(rf"\b{word}\b", new, text, count=1)


HEADS = (
    "card", "account", "case", "box", "insurance", "licence", "fee", "cover", "agent",
    "list", "machine", "voucher", "class", "certificate",
)  # fmt: skip
PREFIXES = ("non", "self", "pre", "half", "multi", "ex", "co")


def act(text: str, rng: random.Random) -> str | None:
    for start in ("How do I ", "How can I ", "Can I ", "How should I "):
        if text.startswith(start):
            rest = text[len(start) :].rstrip("?")
            return rng.choice((rest[0].upper() + rest[1:], rest, "Please " + rest, rest + " now"))
    return None


def possessor(text: str, rng: random.Random) -> str | None:
    if " my " in text:
        return text.replace(
            " my ",
            rng.choice(
                (
                    " my husband's ",
                    " my colleague's ",
                    " his ",
                    " her ",
                    " our ",
                    " my mother's ",
                    " someone else's ",
                )
            ),
            1,
        )
    return None


def swapped(text: str, rng: random.Random) -> str | None:
    found = re.search(r"from (\w+) to (\w+)", text)
    if not found:
        return None
    return text.replace(found[0], f"from {found[2]} to {found[1]}")


ALTERING: dict[str, Callable[[str, random.Random], str | None]] = {
    "entity": entity,
    "negation": negated,
    "number": number,
    "scope": scope,
    "act": act,
    "possessor": possessor,
    "order": swapped,
    "antonym": antonym,
}

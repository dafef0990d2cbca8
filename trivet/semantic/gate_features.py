"""What the gate's classifier sees of a text besides its vector: flags and hashed n-grams.

Hashing (Weinberger et al., 2009, Feature hashing for large scale multitask learning) by CRC-32 is
the same on every machine. The skeleton of a text, its function words with every other word
masked, carries how something is asked and nothing of what: it holds for subjects never seen.
"""

from __future__ import annotations

import re
import zlib
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from trivet.canonical import digest

BUCKETS = 1 << 13
"""Columns for hashed n-grams."""
GRAM_SCALE = 3.0
"""Length of the vector of a text's hashed n-grams."""
VECTOR_SCALE = 5.0
"""Length of a text's vector as the classifier sees it."""
MAX_READ = 300
"""Characters of a text that are read; a longer one is refused."""

_WORD = re.compile(r"[a-z0-9$%#'+]+")
_SHORT = {
    "u": "you", "ur": "your", "ya": "you", "pls": "please", "plz": "please", "r": "are",
    "whats": "what's", "wheres": "where's", "whos": "who's", "hows": "how's", "im": "i'm",
    "ive": "i've", "dont": "don't", "cant": "can't", "wanna": "want to", "gonna": "going to",
    "gimme": "give me", "teh": "the", "tho": "though", "thx": "thanks", "cuz": "because",
}  # fmt: skip
_OPENING = re.compile(
    r"^(?:(?:hi|hey|hello|ok|okay|so|um|well|please|quick question|hi there|good morning|there)\b"
    r"[,:.!]?\s*)+(?=\S)"
)
_FUNCTION_WORDS = """
    a about after again all am an and any anyone are as at be because been before being between both
    but by can cannot can't could did didn't do does doesn't doing don't down each either else every
    few for from further get give go going had has have having he help her here him his how how's i
    i'd if i'll i'm in into is isn't it it's its i've just know last latest least less let let's
    list long make many may me mean means might mine more most much must my need needs never new
    next no not now of off often ok old on once one only open or other our out over own please
    put same see send set shall she should show so some someone still such take tell than thank
    thanks that that's the their them then there there's these they this those through to today
    tomorrow tonight too turn under until up us use used using very want was way we we're were
    what what's when where where's which while who who's whose why will with without won't would
    yes yesterday yet you your current currently recent recently ever first time times year years
    week month day days ago already soon possible available
"""
FUNCTION_WORDS = frozenset(_FUNCTION_WORDS.split())

FLAGS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (name, re.compile(pattern))
    for name, pattern in (
        ("my", r"\bmy\b|\bmine\b|\bour\b"),
        ("i", r"\bi\b|\bi'm\b|\bi've\b|\bme\b"),
        ("your", r"\byour\b"),
        ("you", r"\byou\b"),
        ("opens-question",
         r"^(what|how|why|who|where|when|which|whose|what's|who's|where's|how's)\b"),
        ("opens-how-to", r"^how (do|can|to|would|could|does|should)\b"),
        ("opens-yes-no",
         r"^(is|are|was|were|does|do|did|has|have|can|could|will|would|should|am)\b"),
        ("opens-request",
         r"^(can|could|would|will) you\b|^i (want|need|would like|'d like)|^i'd like"),
        ("please", r"\bplease\b"),
        ("past", r"\b(was|were|did|wrote|sang|played|won|made|died|began|originated|invented)\b"),
        ("when-did", r"^(when|where|why|how|what year) (was|were|did)\b"),
        ("who-past", r"^who (was|were|wrote|sang|sings|played|plays|invented|discovered|founded|"
                     r"composed|directed|painted|voiced|voices|built|killed|fought)\b"),
        ("in-past-year", r"\b(1\d\d\d|20[01]\d|202[0-3]|\d\d's|\d0s|\d\dth century|bc|ad)\b"),
        ("last", r"\blast\b"),
        ("how-long-last", r"\b(does|do|will|can|to|should|it|they)\b.* last\b"),
        ("now",
         r"\b(now|today|tonight|tomorrow|yesterday|currently|current|present|moment|nowadays|"
         "these days|latest|newest|recent|recently|upcoming|so far|yet|still|anymore|this "
         "(year|month|week|weekend|season|morning|evening|afternoon)|this year's|(last|next) "
         r"(year|month|week|night|season|one)|next|live|new season)\b"),
        ("superlative",
         r"\b(most|best|worst|largest|biggest|highest|longest|tallest|richest|oldest|youngest|"
         "fastest|smallest|busiest|greatest|deadliest|top|number one|leading|strongest|"
         r"shortest|lowest|deepest|hottest|coldest|\w+est in the)\b"),
        ("record",
         r"\b(record|ranked|rank|ranking|all time|all-time|in history|of all time|ever)\b"),
        ("has-perfect",
         r"\b(has|have|had|hasn't|haven't)\b.*\b(been|won|\w+ed|made|got|gone|hit)\b"),
        ("who-is",
         r"^(who is|who's|who are|who has|who have|who holds|who owns|who runs|who leads)\b"),
        ("office", r"\b(president|minister|king|queen|ceo|governor|mayor|senator|coach|manager|"
                   r"captain|secretary|chairman|chief|commissioner|speaker|ambassador|owner|"
                   r"champion|champions|quarterback|head of|leader|director|pope|judge|justice)\b"),
        ("how-many", r"\bhow many\b|\bnumber of\b"),
        ("how-much", r"\bhow much\b|\bprice\b|\bcosts?\b|\bworth\b|\bsalary\b|\bpay for\b"),
        ("how-old", r"\bhow old\b|\bage of\b"),
        ("population",
         r"\b(population|populous|populated|people live|percentage|percent of|rate)\b"),
        ("volatile",
         r"\b(weather|forecast|temperature|rain|snow|news|headlines|traffic|stock|stocks|"
         "shares|exchange|score|scores|standings|outage|down|status|trending|in stock|near me|"
         r"nearby|around here|events?|schedule|eta)\b"),
        ("seasons",
         r"\b(seasons?|episodes?|premiere|come out|coming out|comes out|release|released|air|"
         r"airs|airing|start|starts)\b"),
        ("league", r"\b(nba|nfl|mlb|nhl|ipl|premier league|league|cup|super bowl|playoffs?|finals?|"
                   r"olympics|championships?|team|season|game|match|tournament|election)\b"),
        ("currency", r"\b(dollars?|euros?|yen|pesos?|rupees?|pounds|francs?|won|yuan|rand|usd|eur|"
                     r"currency|exchange rate)\b"),
        ("unit",
         r"\b(miles?|kilometers?|km|kg|kilograms?|grams?|ounces?|liters?|litres?|gallons?|inch|"
         r"inches|feet|foot|meters?|cups?|tablespoons?|teaspoons?|celsius|fahrenheit)\b"),
        ("define",
         r"\b(definition|define|meaning|mean|means|spell|spelled|spelling|synonym|translate|"
         r"difference between|explain|stand for)\b"),
        ("policy",
         r"\b(policy|policies|rules|terms|conditions|requirements|allowed|accepted|accept|"
         "refundable|included|include|includes|offer|methods|options|modalities|hours|"
         r"circumstances|cases|situations|fees?|deliver to|ship to)\b"),
        ("deal", r"\b(buy|order|purchase|subscribe|unsubscribe|sign up|newsletter|review|feedback|"
                 r"complaint|address|checks|checkbooks?|reimbursements?|compensations?|rebates?|"
                 r"item|items|articles?|products?|money back|cancel|account)\b"),
        ("long-number", r"\d{5,}|#\d+|\border \d+"),
        ("digits", r"\d"),
        ("time-of-day", r"\b(\d{1,2} ?(am|pm)|\d{1,2}:\d\d|o'clock|noon|midnight|monday|tuesday|"
                        r"wednesday|thursday|friday|saturday|sunday)\b"),
        ("pronoun", r"\b(it|that|this|these|those|he|she|they|him|them|one)\b"),
    )
)  # fmt: skip
DENSE = len(FLAGS) + 3
VERSION = 1
"""To be raised when `normalised`, `dense` or `columns` reads a text in another way."""


def version() -> str:
    """Hex, of everything that turns a text into the classifier's input."""
    read = (VERSION, BUCKETS, GRAM_SCALE, VECTOR_SCALE, MAX_READ, _WORD.pattern, _OPENING.pattern)
    flags = [f"{name} {pattern.pattern}" for name, pattern in FLAGS]
    said = [*map(str, read), _FUNCTION_WORDS, str(sorted(_SHORT.items())), *flags]
    return digest(*(line.encode() for line in said)).hex()


def normalised(text: str) -> list[str]:
    """Lower-case words, short forms written out, greetings at the start left out."""
    lowered = _OPENING.sub("", text.lower().replace("’", "'").strip(), count=1)
    words: list[str] = []
    for word in _WORD.findall(lowered):
        words += _SHORT.get(word, word).split()
    return words


def dense(words: list[str]) -> NDArray[np.float32]:
    """Flags, and three figures of length: shape (DENSE,), values from 0 to 1."""
    line = " ".join(words)
    found = [1.0 if pattern.search(line) else 0.0 for _, pattern in FLAGS]
    count = len(words)
    found += [min(count, 20) / 20, float(count <= 2), float(count >= 16)]
    return np.array(found, dtype=np.float32)


def columns(words: list[str]) -> NDArray[np.int64]:
    """Columns of the hashed n-grams of a text, each once, in ascending order."""
    skeleton = ["^", *(word if word in FUNCTION_WORDS else "_" for word in words), "$"]
    grams = {f"w {word}" for word in words}
    grams.update(f"b {a} {b}" for a, b in pairwise(words))
    for size in (2, 3, 4):
        grams.update(
            "s " + " ".join(skeleton[at : at + size]) for at in range(len(skeleton) - size + 1)
        )
    grams.add("o " + " ".join(words[:2]))
    for word in words:
        padded = f"<{word}>"
        grams.update(f"c {padded[at : at + 4]}" for at in range(len(padded) - 3))
    return np.unique(np.array([zlib.crc32(gram.encode()) % BUCKETS for gram in grams], np.int64))

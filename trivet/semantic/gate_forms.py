"""The form of a question: what it opens with, and whom it speaks of.

How far a text may be trusted to be informational differs by form. "How do I" and "can I" ask for
a procedure or a rule, which few clocks change; "who", "when" and "which" ask about the world, where
the answer may be another tomorrow and no word says so. The gate has a bar for each form.
"""

from __future__ import annotations

import re
from enum import StrEnum

from trivet.canonical import digest


class Form(StrEnum):
    """Of a question, by its first words; `OTHER` for what does not open as one."""

    HOW = "how"
    MAY = "may"
    STATE = "state"
    SERVICE = "service"
    TERM = "term"
    WORLD = "world"
    OTHER = "other"


_LEAD_IN = re.compile(
    r"^(?:(?:please|can you|could you|i (?:want|need|would like) to|i'd like to|do you) )*"
    r"(?:tell me|explain|know|let me know|find out)(?: to me)?(?: about)? "
    r"(?=how|what|which|where|when|who|why|if|whether)"
)
_FORMS = (
    (Form.TERM,
     r"^(?:what is|what's|what are|what does|explain|define|describe) (?:an?\b|exactly\b)|"
     r"^what (?:does|do) .* (?:mean|do|stand for)$|\bdifferences? between\b|"
     r"^how (?:does|do) (?!i\b|you\b|we\b|one\b).* work$"),
    (Form.HOW,
     r"^(?:how (?:do|can|could|should|would|may|must) (?:i|we|you|one)\b|how to\b|how does one\b|"
     r"is there a way\b|is it possible\b|where (?:can|do|could|should) (?:i|we|you|one)\b|"
     r"what(?: is|'s| are) the (?:\w+ )?(?:way|steps) to\b|(?:steps|instructions) to\b)"),
    (Form.MAY,
     r"^(?:can|could|may|must|should|do|does)\b|^what (?:happens|to do|(?:do|does|should|can|must) "
     r"(?:i|we|you|one))\b"),
    (Form.STATE, r"^(?:is|are)\b"),
    (Form.SERVICE,
     r"^(?:what|which|how|where|when|who|why|in|under|what's)\b.*\b(?:you|your|i|we|one)\b"),
    (Form.WORLD,
     r"^(?:what|which|how|where|when|who|whose|whom|why|(?:what|where|who|how)'s|"
     r"in (?:what|which))\b"),
)  # fmt: skip
_READ = tuple((form, re.compile(pattern)) for form, pattern in _FORMS)


def version() -> str:
    """Hex, of everything that decides which form a text has."""
    said = [f"{form} {pattern}" for form, pattern in _FORMS]
    return digest(*(line.encode() for line in (_LEAD_IN.pattern, *said))).hex()


def form(words: list[str]) -> Form:
    """The form of a text's normalised words."""
    line = _LEAD_IN.sub("", " ".join(words))
    return next((found for found, pattern in _READ if pattern.search(line)), Form.OTHER)

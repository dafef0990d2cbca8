"""Who says whether a stored answer and a new one say the same."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Awaitable, Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Protocol

from trivet.errors import EmbedderError

if TYPE_CHECKING:
    from trivet.semantic.types import Vectors


class Judge(Protocol):
    """Compares two answers to one question."""

    @property
    def name(self) -> str:
        """A metric label."""
        ...

    async def judge(self, question: str, stored: str, fresh: str) -> bool | None:
        """Whether the two say the same; None where it cannot tell. Raises nothing."""
        ...


class EqualityJudge:
    """The same words and numbers in the same order. For short answers: prose is never equal."""

    name = "equality"

    async def judge(self, question: str, stored: str, fresh: str) -> bool | None:
        """See `Judge.judge`."""
        return normal_form(stored) == normal_form(fresh)


class EmbedderJudge:
    """The cosine of the two answers is `threshold` or more. `embed` gives vectors of length 1."""

    name = "embedder"

    def __init__(self, embed: Callable[[str], Awaitable[Vectors]], threshold: float) -> None:
        self._embed = embed
        self._threshold = threshold

    async def judge(self, question: str, stored: str, fresh: str) -> bool | None:
        """See `Judge.judge`."""
        try:
            one, other = await self._embed(stored), await self._embed(fresh)
        except EmbedderError:
            return None
        return float(one @ other) >= self._threshold


_TOKEN = re.compile(
    r"""
    (?P<number> (?<![\w.,]) [-\u2212+]? (?: \d{1,3} (?: [,_\u00a0\u202f'\u2019] \d{3} )+ | \d+ )
        (?: \. \d+ )? (?![\w.,]*\d) )
    | (?P<word> [\w.,:/]* \w )
    | (?P<sign> [^\w\s] )
    """,
    re.VERBOSE,
)
_AMBIGUOUS = re.compile(r"\d{1,3}\.\d{3}")
"""A thousand and one in some languages, one and a bit in others: compared as it is written."""
_BETWEEN = re.compile(r"(?<=[^\W\d_])[.,:/]+(?=\D|$)|[.,:/]+(?=[^\W\d_])")


def normal_form(text: str) -> tuple[str, ...]:
    """Words and numbers without case, white space, punctuation and ways to write a number.

    Signs that carry meaning stay: currency, percent, arithmetic, emoji. A text of punctuation alone
    is itself.
    """
    clean = unicodedata.normalize("NFKC", text).casefold()
    found: list[str] = []
    for match in _TOKEN.finditer(clean):
        if match["number"]:
            found.append(_number(match["number"]))
        elif match["word"]:
            found += [part for part in _BETWEEN.sub(" ", match["word"]).split() if part]
        elif unicodedata.category(match["sign"])[0] == "S" and match["sign"] not in "`^|~":
            found.append(match["sign"])
        elif match["sign"] == "%":
            found.append("%")
    return tuple(found) or (clean.strip(),)


def _number(text: str) -> str:
    plain = text.lstrip("+").replace("\u2212", "-")
    if _AMBIGUOUS.fullmatch(plain.lstrip("-")):
        return plain
    value = Decimal(re.sub(r"[^\d.\-]", "", plain))
    return format(value.normalize() if value else Decimal(0), "f")

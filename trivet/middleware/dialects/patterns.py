"""What the regular expressions of a caller's schema cost to compile and to match.

A pattern's weight is about the number of automaton states that it compiles to. Compiling takes
time and memory in proportion to it. Matching is linear in the text, with up to all states for each
character: https://docs.rs/regex/latest/regex/#untrusted-patterns.
"""

from __future__ import annotations

import re
from typing import Any, Final

MAX_PATTERNS: Final = 32
MAX_LENGTH: Final = 512
"""Characters of one pattern."""
MAX_WEIGHT: Final = 8192
"""Of all patterns of a schema together."""

_TABLE: Final = 256
"""Weight of a Unicode property: its table alone takes about 0.3 ms to read."""
_WIDE: Final = 4
"""Weight of what matches most of Unicode: one state for each length of a UTF-8 sequence."""

_TOKEN: Final = re.compile(
    r"""(?P<table>\\[pP])
    |(?P<wide>\\[WDS]|\.)
    |(?P<set>\[\^?(?:\\.|[^\[\]\\])+\])
    |(?P<open>\((?:\?:|\?P?<[A-Za-z_][A-Za-z0-9_]*>|(?!\?)))
    |(?P<close>\))
    |(?P<times>\{(?P<least>[0-9]*)(?P<comma>,?)(?P<most>[0-9]*)\})
    |(?P<plain>\\.|[^\[\\()])""",
    re.VERBOSE | re.DOTALL,
)
"""What is read alike by ECMA-262 and by the `regex` crate: no empty or nested sets, no flags."""


def weight_of(pattern: str) -> int:
    """The weight of one pattern.

    Raises `ValueError` for one that is too long, or that two regex dialects would read apart.
    """
    if len(pattern) > MAX_LENGTH:
        raise ValueError("a pattern is too long")
    groups, last, place = [0], 0, 0
    while place < len(pattern):
        token = _TOKEN.match(pattern, place)
        if token is None:
            raise ValueError("a pattern cannot be weighed")
        place = token.end()
        if token["open"] is not None:
            groups.append(0)
            continue
        if token["times"] is not None:
            more = last * (_times(token) - 1)
            last += more
        elif token["close"] is None:
            more = last = _atom(token)
        elif len(groups) > 1:
            more = last = 1 + groups.pop()
        else:
            raise ValueError("a pattern closes a group twice")
        groups[-1] += more
    return 1 + sum(groups)


def _times(token: re.Match[str]) -> int:
    """How many copies a counted repetition makes: `{2,}` is two copies and a loop."""
    least, most = int(token["least"] or 0), int(token["most"] or 0)
    return max(1, least + (1 if token["comma"] and not most else 0), most)


def _atom(token: re.Match[str]) -> int:
    if token["table"] is not None:
        return _TABLE
    if token["wide"] is not None:
        return _WIDE
    text = token[0]
    if token["set"] is None:
        return 1
    tables = text.count("\\p") + text.count("\\P")
    wide = text[1] == "^" or any(name in text for name in ("\\W", "\\D", "\\S"))
    return 1 + len(text) // 4 + _TABLE * tables + _WIDE * wide


class Budget:
    """Counts the patterns of a schema while its parts are visited, each once."""

    def __init__(self) -> None:
        self.weight = 0
        self._count = 0

    def take(self, schema: Any) -> int:
        """The weight of the patterns that `schema` itself has. Raises `ValueError` beyond."""
        if type(schema) is not dict:
            return 0
        found = [schema["pattern"]] if type(schema.get("pattern")) is str else []
        keyed = schema.get("patternProperties")
        if type(keyed) is dict:
            found += keyed
        self._count += len(found)
        if self._count > MAX_PATTERNS:
            raise ValueError("too many patterns")
        weight = sum(map(weight_of, found))
        self.weight += weight
        if self.weight > MAX_WEIGHT:
            raise ValueError("the patterns are too costly")
        return weight

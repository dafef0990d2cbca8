"""A prompt drawn in proportion: stretches of parts with their tokens, and the breakpoints.

Holds no text: levels, kinds, roles and numbers. A long prompt is drawn in some `MOST` stretches,
and never in more than twice as many and two, so that its shape is small whatever a caller sends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from trivet.messages import Usage
from trivet.prefix.doctor.live import Finding
from trivet.prefix.prompts.outline import Level, Outline, Part

MOST: Final = 40
"""Stretches, beside those that end at a breakpoint or a level."""
_MARKS: Final = 8
"""Providers take 4 breakpoints."""
_LONGEST: Final = 24
"""Characters of a kind or a role, which the caller writes."""


class Stretch(NamedTuple):
    """Parts that follow on one another, of one level. Tokens are estimated."""

    level: Level
    kind: str
    """Of its first part."""
    role: str
    """Of its first part."""
    tokens: int
    parts: int
    first: int
    """Index of its first part."""
    mark: str | None = None
    """TTL of the breakpoint at its end as it was sent, empty for the provider's default; None
    where there is none."""


class Shape(NamedTuple):
    """A prompt as it was sent, and what the upstream said of it."""

    stretches: tuple[Stretch, ...]
    model: str
    cache: str
    """Whose prefix cache it was taken for; empty where that is not known."""
    input_tokens: int
    """As the upstream counted them, like the next two; 0 where it did not say."""
    read_tokens: int
    write_tokens: int
    broken: int = -1
    """Index of the stretch at whose beginning it parts from an earlier prompt; -1 for none."""


class Examined(NamedTuple):
    """A prompt that the layout doctor looked at."""

    tenant: str
    route: str
    shape: Shape
    finding: Finding | None
    with_text: bool = False
    """The policy let the finding hold text: names of tools, or quotes."""


def shape_of(outline: Outline, cache: str, usage: Usage | None, found: Finding | None) -> Shape:
    """The shape of a prompt. `outline` has the breakpoints with which it was sent."""
    at = -1 if found is None else found.part
    stretches = tuple(_stretches(outline, at))
    broken = next((n for n, one in enumerate(stretches) if one.first == at), -1)
    told = (0, 0, 0)
    if usage is not None:
        told = usage.input_tokens, usage.cache_read_tokens, usage.cache_write_tokens
    return Shape(stretches, _sound(outline.model[:80]), cache, *told, broken)


def _stretches(outline: Outline, broken: int) -> list[Stretch]:
    parts = outline.parts
    chunk = -(-len(parts) // MOST)
    made: list[Stretch] = []
    marks = 0
    for at, part in enumerate(parts):
        mark = None
        if part.mark is not None and marks < _MARKS:
            mark = _sound(part.mark.ttl[:_LONGEST])
            marks += 1
        if at in (broken, broken + 1) or not _joins(made, part, chunk):
            made.append(_stretch(part, at, mark))
        else:
            last = made[-1]
            made[-1] = last._replace(
                tokens=last.tokens + part.tokens, parts=last.parts + 1, mark=mark
            )
    if outline.automatic is not None and made:
        made[-1] = made[-1]._replace(mark=_sound(outline.automatic.ttl[:_LONGEST]))
    return made


def _joins(made: Sequence[Stretch], part: Part, chunk: int) -> bool:
    if not made:
        return False
    last = made[-1]
    fits = last.level is part.level and last.mark is None and last.parts < chunk
    return fits or len(made) >= 2 * MOST


def _stretch(part: Part, at: int, mark: str | None) -> Stretch:
    named = _sound(part.kind[:_LONGEST]), _sound(part.role[:_LONGEST])
    return Stretch(part.level, *named, part.tokens, 1, at, mark)


def _sound(text: str) -> str:
    return text.encode("utf-8", "replace").decode()

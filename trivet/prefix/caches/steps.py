"""The places in a prompt where a cached prefix can end, each with its digest.

Two spellings of one prompt that the APIs document as equal have equal digests: a content given as
a string, and as one block of text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import orjson

from trivet.canonical import digest
from trivet.prefix.prompts.outline import LEVELS, Outline, Part, Setting, enter

_BYTES_PER_TOKEN: Final = 4
_WHOLE: Final = ("image", "document", "audio")
_WRAPPING: Final = frozenset(("type", "role", "text", "content"))


class Step(NamedTuple):
    """A prefix: everything up to here."""

    tokens: int
    digest: bytes
    """32 bytes, of the model, the settings and all parts so far."""


def part_steps(
    outline: Outline, settings: Sequence[Setting], unread: frozenset[int] = frozenset()
) -> list[Step]:
    """One step for each part. `settings` take the place of the outline's; a part whose index is in
    `unread` counts its tokens, and its content is told by a setting."""
    made: list[Step] = []
    parent, tokens, reached = _root(outline), 0, 0
    for index, part in enumerate(outline.parts):
        depth = LEVELS.index(part.level) + 1
        if depth > reached:
            parent = enter(parent, LEVELS[reached:depth], settings)
            reached = depth
        if index not in unread:
            role = part.role.encode("utf-8", "replace")
            parent = digest(parent, part.kind.encode(), role, plain(part))
        tokens += part.tokens
        made.append(Step(tokens, parent))
    return made


def grid_steps(outline: Outline, grid: int, ends: bool) -> list[Step]:
    """A step at every `grid` tokens, as caches that are not asked cut prompts; with `ends`, at the
    end of every part too. Of two prompts that share their beginning, the steps therein are equal.
    """
    made: list[Step] = []
    state = hashlib.sha256(_root(outline))
    tokens, reached = 0, 0
    for part in outline.parts:
        depth = LEVELS.index(part.level) + 1
        if depth > reached:
            state.update(enter(b"", LEVELS[reached:depth], outline.settings))
            reached = depth
        state.update(digest(part.kind.encode(), part.role.encode("utf-8", "replace")))
        content, sent = plain(part), 0
        for end, stop in _cuts(part, len(content), tokens, grid):
            state.update(content[sent:stop])
            sent = stop
            made.append(Step(end, state.digest()))
        state.update(content[sent:] + b"\x00")
        tokens += part.tokens
        if ends:
            if made and made[-1].tokens == tokens:
                made.pop()
            made.append(Step(tokens, state.digest()))
    return made


def _cuts(part: Part, length: int, start: int, grid: int) -> Iterator[tuple[int, int]]:
    """Tokens so far and bytes of the part at each multiple of `grid` inside it."""
    first = (start // grid + 1) * grid
    for end in range(first, start + part.tokens + 1, grid):
        whole = part.kind in _WHOLE
        yield end, length if whole else min(length, (end - start) * _BYTES_PER_TOKEN)


def plain(part: Part) -> bytes:
    """The content, the same for a string and for one block with that text."""
    if part.kind != "text":
        return b"j" + part.content
    value = value_of(part.content)
    if isinstance(value, Mapping) and value.keys() <= _WRAPPING:
        value = value.get("text", value.get("content"))
    return (
        b"t" + value.encode("utf-8", "replace") if isinstance(value, str) else b"j" + part.content
    )


def value_of(content: bytes) -> Any:
    """The value of compact JSON; `None` where it has half a surrogate pair, which is no text."""
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError:
        return None


def _root(outline: Outline) -> bytes:
    return digest(b"trivet-cache-model", outline.model.encode("utf-8", "replace"))

"""Where two prompts part: the level, the part, and the character.

What comes before that place is what a prefix cache can share. The places are those of the newer
prompt's body. Works on outlines, texts and all, and (`first_difference`) on whatever has their
shape, such as fingerprints.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeVar

import orjson

from trivet.messages import Api
from trivet.prefix.prompts.outline import LEVELS, Level, Outline, Part, Place

What = Literal["model", "setting", "images", "part", "more", "fewer"]
"""`more`: a level has a part that the older prompt has not; `fewer`: the other way round. Both
have parts after it."""


class Difference(NamedTuple):
    """The first thing in which two prompts differ."""

    what: What
    level: Level
    at: int
    """Parts before it that both have."""
    name: str = ""
    """Of the setting."""


class Divergence(NamedTuple):
    """Where two prompts part."""

    level: Level
    place: Place
    """Down to the member: `("tools", 3, "description")`; of a setting its name alone."""
    char: int
    """Characters of that member which both have; 0 where it is no text."""
    shared_tokens: int
    """Estimated tokens before it."""
    shared_parts: int
    what: What = "part"


class Reading(NamedTuple):
    """A part as people read it."""

    path: Place
    """From the part to its text; `()` where the part is the text, or is JSON as a whole."""
    text: str
    value: Any
    """Parsed."""
    plain: bool
    """The text is all there is, but for its wrapping."""


class _Shaped(Protocol):
    @property
    def level(self) -> Level: ...
    @property
    def kind(self) -> str: ...


class _Set(Protocol):
    @property
    def level(self) -> Level: ...
    @property
    def name(self) -> str: ...
    @property
    def value(self) -> bytes: ...


P = TypeVar("P", bound=_Shaped)
P_co = TypeVar("P_co", bound=_Shaped, covariant=True)


class Prompt(Protocol[P_co]):
    """An outline, or a fingerprint of one."""

    @property
    def api(self) -> Any: ...
    @property
    def model(self) -> str: ...
    @property
    def parts(self) -> Sequence[P_co]: ...
    @property
    def settings(self) -> Sequence[_Set]: ...


_WRAPPING: Final = frozenset({"type", "role", "text", "content"})
_TEXTS: Final = ("text", "content")
_ATTACHED: Final = frozenset({"image", "document", "audio"})


def common_prefix(a: Outline, b: Outline) -> Divergence | None:
    """Where `b`, the newer one, parts from `a`; None where one only goes on after the other."""
    found = first_difference(a, b, same)
    if found is None:
        return None
    tokens = sum(part.tokens for part in b.parts[: found.at])
    if found.what == "part":
        old, new = a.parts[found.at], b.parts[found.at]
        place, char, size = _within(old, new)
        shared = 0 if new.kind in _ATTACHED else min(size // 4, old.tokens, new.tokens)
        return Divergence(found.level, place, char, tokens + shared, found.at)
    place = (found.name or found.what,)
    if found.what in ("more", "fewer"):
        longer = b if found.what == "more" else a
        place = longer.parts[found.at].place
    elif found.what == "images":
        place = next(one.place for one in (*b.parts, *a.parts) if one.kind == "image")
    return Divergence(found.level, place, 0, tokens, found.at, found.what)


def first_difference(
    a: Prompt[P], b: Prompt[P], alike: Callable[[P, P], bool]
) -> Difference | None:
    """The first thing that makes `b` another prefix than `a`; None if one goes on after the other.

    In the order in which providers read: the model, then for each level its settings and parts.
    """
    if (a.api, a.model) != (b.api, b.model):
        return Difference("model", LEVELS[0], 0)
    index = 0
    for level in LEVELS:
        theirs = {one.name: one.value for one in a.settings if one.level is level}
        ours = {one.name: one.value for one in b.settings if one.level is level}
        for name in ours:
            if ours[name] != theirs.get(name):
                return Difference("setting", level, index, name)
        if level is Level.MESSAGES and _pictures_differ(a, b, index):
            return Difference("images", level, index)
        found, index = _of_level(a, b, level, index, alike)
        if found is not None or index in (len(a.parts), len(b.parts)):
            return found
    return None


def _of_level(
    a: Prompt[P], b: Prompt[P], level: Level, index: int, alike: Callable[[P, P], bool]
) -> tuple[Difference | None, int]:
    while index < len(a.parts) and index < len(b.parts):
        old, new = a.parts[index], b.parts[index]
        if old.level is not level or new.level is not level:
            break
        if not alike(old, new):
            return Difference("part", level, index), index
        index += 1
    else:
        return None, index
    if old.level is level:
        return Difference("fewer", level, index), index
    return Difference("more", level, index) if new.level is level else None, index


def _pictures_differ(a: Prompt[P], b: Prompt[P], index: int) -> bool:
    """Whether only one of them has images: to Anthropic that changes all messages."""
    if b.api is not Api.MESSAGES or index >= min(len(a.parts), len(b.parts)):
        return False
    old, new = (any(part.kind == "image" for part in one.parts) for one in (a, b))
    return old != new


def same(old: Part, new: Part) -> bool:
    """Whether a cache reads the two as one: a string, and a block with that text, are equal."""
    if (old.kind, old.role) != (new.kind, new.role):
        return False
    if old.content == new.content:
        return True
    if old.kind != "text":
        return False
    one, other = reading(old), reading(new)
    return one.plain and other.plain and one.text == other.text


def reading(part: Part) -> Reading:
    """The text of a part: its string, or its block's text, or the JSON of what it is."""
    raw = part.content
    value: Any = json.loads(raw[1:]) if raw[:1] == b"\x00" else orjson.loads(raw)
    if isinstance(value, str):
        return Reading((), value, value, True)
    if isinstance(value, Mapping):
        for name in _TEXTS:
            if isinstance(value.get(name), str):
                return Reading((name,), value[name], value, value.keys() <= _WRAPPING)
    return Reading((), raw.lstrip(b"\x00").decode("utf-8", "replace"), value, False)


def common_length(a: Sequence[Any], b: Sequence[Any]) -> int:
    """Items (characters, bytes) that both begin with."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _within(old: Part, new: Part) -> tuple[Place, int, int]:
    """The member in which two parts differ, its common characters, and bytes before it."""
    size = common_length(old.content, new.content)
    one, other = reading(old), reading(new)
    if one.plain and other.plain and one.text != other.text:
        char = common_length(one.text, other.text)
        return (*new.place, *other.path), char, len(other.text[:char].encode("utf-8", "replace"))
    path, char = _leaf(one.value, other.value, ())
    return (*new.place, *path), char, size


def _leaf(old: Any, new: Any, path: Place) -> tuple[Place, int]:
    if isinstance(old, str) and isinstance(new, str):
        return path, common_length(old, new)
    if isinstance(old, dict) and isinstance(new, dict):
        return _leaf_of(list(old.items()), list(new.items()), path)
    if isinstance(old, list) and isinstance(new, list):
        return _leaf_of(list(enumerate(old)), list(enumerate(new)), path)
    return path, 0


def _leaf_of(
    old: list[tuple[Any, Any]], new: list[tuple[Any, Any]], path: Place
) -> tuple[Place, int]:
    for (theirs, before), (ours, after) in zip(old, new, strict=False):
        if theirs != ours:
            return (*path, ours), 0
        if before != after or not _equal(before, after):
            return _leaf(before, after, (*path, ours))
    longer = old if len(old) > len(new) else new
    shared = min(len(old), len(new))
    return ((*path, longer[shared][0]), 0) if len(old) != len(new) else (path, 0)


def _equal(old: Any, new: Any) -> bool:
    """Equal as JSON texts: 1 is not 1.0, true is not 1, and the order of keys counts."""
    if isinstance(old, (dict, list)) or type(old) is not type(new):
        return json.dumps(old) == json.dumps(new)
    return bool(old == new)

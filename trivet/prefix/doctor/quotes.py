"""The text of two prompts around the place where they part, where a policy lets it be shown.

Contents are kept by the digest of their part, so that what the prompts of a route have in common is
kept once.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Final, NamedTuple

from trivet.prefix.doctor.fingerprint import Fingerprint
from trivet.prefix.doctor.layout import reading
from trivet.prefix.prompts.outline import Outline, Part, Place

_BEFORE: Final = 100
_BEHIND: Final = 300
_NO_TEXT: Final = frozenset({"image", "document", "audio"})


class Quote(NamedTuple):
    """Both texts from the same character on."""

    old: str
    """Empty where the older prompt has no such member, or it is not kept any more."""
    new: str
    start: int
    """The character of the member at which both begin."""


class Texts:
    """The contents of the prompts that a route is compared with."""

    def __init__(self) -> None:
        self._held: dict[bytes, bytes] = {}
        self.size = 0
        """Bytes of memory, about."""

    def hold(self, prompt: Fingerprint, outline: Outline | None) -> None:
        """Keep a prompt's contents. None says that texts may not be kept: all are forgotten."""
        if outline is None:
            self._held = {}
        else:
            parts = zip(prompt.parts, outline.parts, strict=True)
            self._held |= {
                piece.looks.digest: part.content
                for piece, part in parts
                if part.kind not in _NO_TEXT
            }
        self._measure()

    def keep_only(self, digests: Collection[bytes]) -> None:
        """Forget what is in none of the parts with these digests."""
        self._held = {one: text for one, text in self._held.items() if one in digests}
        self._measure()

    def quote(self, old: bytes, new: Part, place: Place, char: int) -> Quote | None:
        """Both texts around character `char` of the member at `place` in the newer prompt's body;
        `old` is the older part's digest. None where texts are not kept."""
        if not self._held:
            return None
        path, start = place[len(new.place) :], max(0, char - _BEFORE)
        content = self._held.get(old)
        before = None if content is None else member(new._replace(content=content), path)
        after = member(new, path)
        shown = slice(start, char + _BEHIND)
        return Quote(_sound((before or "")[shown]), _sound((after or "")[shown]), start)

    def _measure(self) -> None:
        self.size = sum(100 + len(text) for text in self._held.values())


def _sound(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def member(part: Part, path: Place) -> str | None:
    """The text at `path` in a part, as JSON where it is none; None where there is no such place."""
    value = reading(part).value
    for step in path:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return None
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

"""Edits on the text of a JSON body: only the bytes that are named change.

A provider's cache compares prompts as they were written, so that a body which was parsed and
written anew can miss although it says the same. Places are those of the text as it came, also
after other edits. The text is valid JSON without duplicate keys (`trivet.canonical.parse`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from trivet.canonical import dump
from trivet.prefix.prompts.json_text import Item, JsonText
from trivet.prefix.prompts.outline import Place


class Member(NamedTuple):
    """One member of an object: its bytes are `raw[start:end]`, its value `raw[value:end]`."""

    name: str
    start: int
    value: int
    end: int


class _Wrap(NamedTuple):
    """A string that becomes a list with one block, and what the block has beside it."""

    start: int
    end: int
    head: bytes
    members: dict[str, Any]


def appended(raw: bytes, added: Mapping[str, Any], *, empty: bool) -> bytes:
    """The object with these members at its end, none of which it has; `empty`: it has none at all.

    What `Splice.put` does, without reading the text.
    """
    at = raw.rindex(b"}")
    at = raw.rindex(b"{", 0, at) + 1 if empty else len(raw[:at].rstrip(b" \t\r\n"))
    text = b"".join(_members(added))
    return raw[:at] + (text[1:] if empty else text) + raw[at:]


def members(raw: bytes) -> list[Member]:
    """The members of the top-level object, in their order. Raises `ValueError` for no object."""
    text = JsonText(raw)
    if raw[text.root] != ord("{"):
        raise ValueError("not a JSON object")
    return [
        Member(str(name), start, value, end) for name, start, value, end in text.items(text.root)
    ]


class Splice:
    """Edits of one text, made together by `done`.

    Raises `ValueError` for a text that is no object. Edits raise `KeyError` for a place that is
    not there, and `ValueError` for one of another kind than the edit needs.
    """

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._text = JsonText(raw)
        if raw[self._text.root] != ord("{"):
            raise ValueError("not a JSON object")
        self._added: dict[int, dict[str, Any]] = {}
        self._dropped: dict[int, set[str | int]] = {}
        self._replaced: dict[tuple[int, int], bytes] = {}
        self._inserted: dict[int, list[bytes]] = {}
        self._wraps: dict[Place, _Wrap] = {}

    def has(self, place: Place, name: str) -> bool:
        """Whether the object at `place` has a member of that name, before all edits."""
        return self._text.child(self._text.find(place), name) is not None

    def value(self, place: Place) -> Any:
        """The value at `place`, parsed, before all edits; None where there is none."""
        try:
            at = self._text.find(place)
        except KeyError:
            return None
        return json.loads(self._raw[at : self._text.end(at)])

    def count(self, place: Place) -> int:
        """Items of the array at `place`; 0 where there is none."""
        try:
            at = self._text.find(place)
        except KeyError:
            return 0
        return len(self._text.items(at)) if self._raw[at] == ord("[") else 0

    def is_object(self, place: Place) -> bool:
        """Whether an object is at `place`."""
        try:
            return self._raw[self._text.find(place)] == ord("{")
        except KeyError:
            return False

    def is_text(self, place: Place) -> bool:
        """Whether a string that is not empty is at `place`."""
        try:
            at = self._text.find(place)
        except KeyError:
            return False
        return self._raw[at] == ord('"') and self._raw[at + 1] != ord('"')

    def add(self, place: Place, name: str, value: Any) -> None:
        """A member at the end of the object at `place`; one of that name gets the new value.

        `place` may be the block that `wrap` makes of a string: `(*place, 0)`.
        """
        wrap = self._wraps.get(place[:-1]) if place and place[-1] == 0 else None
        if wrap is not None:
            wrap.members[name] = value
            return
        at = self._object(place)
        known = self._text.child(at, name)
        if known is not None and name not in self._dropped.get(at, ()):
            self._replaced[known.value, known.end] = _written(value)
        else:
            self._added.setdefault(at, {})[name] = value

    def put(self, name: str, value: Any) -> None:
        """The top-level member `name`, replaced where it is or added at the end."""
        self.add((), name, value)

    def cut(self, place: Place, name: str) -> None:
        """Remove a member of the object at `place`; nothing where it has none of that name."""
        at = self._object(place)
        if self._text.child(at, name) is not None:
            self._dropped.setdefault(at, set()).add(name)

    def drop(self, name: str) -> None:
        """Remove a top-level member; nothing where there is none."""
        self.cut((), name)

    def wrap(self, place: Place, block_type: str = "text") -> None:
        """Make `"x"` at `place` a list of one block: `[{"type":"text","text":"x"}]`.

        The string's own bytes are kept.
        """
        at = self._text.find(place)
        if self._raw[at] != ord('"'):
            raise ValueError("no string is there")
        head = b'[{"type":' + dump(block_type) + b',"text":'
        self._wraps.setdefault(place, _Wrap(at, self._text.end(at), head, {}))

    def after(self, place: Place, value: Any) -> None:
        """A new item in an array, behind the one at `place`."""
        array = self._text.find(place[:-1])
        item = self._text.child(array, place[-1])
        if item is None or self._raw[array] != ord("["):
            raise KeyError(place)
        self._inserted.setdefault(item.end, []).append(b"," + _written(value))

    def done(self) -> bytes:
        """The new text; the very same object where no edit was made."""
        edits = [(start, end, text) for (start, end), text in self._replaced.items()]
        # Of those at one place, the ones that belong to what ends there come first.
        for wrap in self._wraps.values():
            edits.append((wrap.start, wrap.start, wrap.head))
            edits.append((wrap.end, wrap.end, b"".join(_members(wrap.members)) + b"}]"))
        edits += [(at, at, b"".join(texts)) for at, texts in self._inserted.items()]
        for at, names in self._dropped.items():
            edits += [(start, end, b"") for start, end in _gaps(self._text.items(at), names)]
        for at, added in self._added.items():
            edits.append(self._appended(at, added))
        if not edits:
            return self._raw
        return _edited(self._raw, edits)

    def _object(self, place: Place) -> int:
        at = self._text.find(place)
        if self._raw[at] != ord("{"):
            raise ValueError("no object is there")
        return at

    def _appended(self, at: int, added: dict[str, Any]) -> tuple[int, int, bytes]:
        gone = self._dropped.get(at, set())
        kept = [item for item in self._text.items(at) if item.name not in gone]
        text = b"".join(_members(added))
        if kept:
            return kept[-1].end, kept[-1].end, text
        return at + 1, at + 1, text[1:]


def _written(value: Any) -> bytes:
    return dump(value).removeprefix(b"\x00")


def _members(added: Mapping[str, Any]) -> list[bytes]:
    return [b"," + _written(name) + b":" + _written(value) for name, value in added.items()]


def _gaps(items: Sequence[Item], gone: set[str | int]) -> list[tuple[int, int]]:
    """What to take out so that the members of these names go, each with one comma."""
    gaps = []
    first: int | None = None
    for at, item in enumerate(items):
        if item.name in gone:
            first = at if first is None else first
        elif first is not None:
            gaps.append((items[first].start, item.start))
            first = None
    if first is not None:
        start = items[first - 1].end if first else items[0].start
        gaps.append((start, items[-1].end))
    return gaps


def _edited(raw: bytes, edits: list[tuple[int, int, bytes]]) -> bytes:
    pieces: list[bytes] = []
    at = 0
    for start, end, text in sorted(edits, key=lambda edit: edit[:2]):
        if start < at:
            continue  # of something that was taken out as a whole
        pieces += (raw[at:start], text)
        at = end
    pieces.append(raw[at:])
    return b"".join(pieces)

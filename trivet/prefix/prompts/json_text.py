"""Where things are in a JSON text, without parsing what is not asked for.

The text is valid JSON without duplicate keys (`trivet.canonical.parse`).
"""

from __future__ import annotations

import json
import re
from typing import Final, NamedTuple

from trivet.prefix.prompts.outline import Place

_BRACKET: Final = re.compile(rb"[][{}]")
_PLAIN: Final = frozenset({b"", b",", b":", b", ", b": "})
"""What mostly stands between two strings: no bracket."""
_SCALAR: Final = re.compile(rb"[^ \t\r\n,\]}]++")
_ESCAPED: Final = re.compile(rb"\\u00[2-7]")
"""How a printable ASCII character begins that is written as an escape."""
_SPACE: Final = re.compile(rb"[ \t\r\n]*+")


def may_name(raw: bytes, name: str) -> bool:
    """Whether a key of this name, of ASCII letters and `_`, can be in the text, whichever way it is
    written. False is certain; true may be a string of that text."""
    if name.encode() in raw:
        return True
    # Most texts have no such escape at all, which is told faster so.
    return b"\\u00" in raw and _ESCAPED.search(raw) is not None


class Item(NamedTuple):
    """One child of an object or array; `start` is the key's quote, or where the value starts."""

    name: str | int
    start: int
    value: int
    end: int


class JsonText:
    """A JSON text, and where its containers and their children are. Read once as a whole."""

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self._masked = without_escapes(raw)
        self._items: dict[int, list[Item]] = {}
        self._named: dict[int, dict[str | int, Item]] = {}
        self.root = self._space(0)
        self._ends = _containers(self._masked)
        if self.root not in self._ends:
            raise ValueError("not a JSON object or array")

    def items(self, at: int) -> list[Item]:
        """The children of the container that starts at `at`. Raises `ValueError` for others."""
        known = self._items.get(at)
        if known is None:
            if at not in self._ends:
                raise ValueError("no object or array is there")
            known = self._items[at] = self._read(at)
        return known

    def find(self, place: Place) -> int:
        """Where the value at `place` starts. Raises `KeyError` where there is none."""
        at = self.root
        for step in place:
            child = self.child(at, step)
            if child is None:
                raise KeyError(place)
            at = child.value
        return at

    def child(self, at: int, name: str | int) -> Item | None:
        """The child of that name or index; None where there is none."""
        if at not in self._ends:
            return None
        items = self.items(at)
        if isinstance(name, int):
            fits = self.raw[at] == ord("[") and 0 <= name < len(items)
            return items[name] if fits else None
        named = self._named.get(at)
        if named is None:
            named = self._named[at] = {item.name: item for item in items}
        return named.get(name)

    def end(self, at: int) -> int:
        """Where the value that starts at `at` ends."""
        if at in self._ends:
            return self._ends[at]
        if self.raw[at] == ord('"'):
            return self._masked.index(b'"', at + 1) + 1
        found = _SCALAR.match(self.raw, at)
        if found is None:
            raise ValueError("not a JSON text")
        return found.end()

    def _read(self, at: int) -> list[Item]:
        named, items = self.raw[at] == ord("{"), list[Item]()
        at = self._space(at + 1)
        while self.raw[at] not in b"]}":
            start = at
            name: str | int = len(items)
            if named:
                key_end = self.end(at)
                name = _key(self.raw[at:key_end])
                at = self._space(self._space(key_end) + 1)
            end = self.end(at)
            items.append(Item(name, start, at, end))
            at = self._space(end)
            if self.raw[at] == ord(","):
                at = self._space(at + 1)
        return items

    def _space(self, at: int) -> int:
        found = _SPACE.match(self.raw, at)
        return found.end() if found else at


def without_escapes(raw: bytes) -> bytes:
    """The text, as long as before, with a quote at the ends of its strings only."""
    if b"\\" not in raw:
        return raw
    # Runs of backslashes are pairs from their left: what is left before a quote escapes it.
    return raw.replace(rb"\\", b"__").replace(rb"\"", b"__")


def _containers(masked: bytes) -> dict[int, int]:
    """Where each object and array ends, by where it starts."""
    ends: dict[int, int] = {}
    opened: list[int] = []
    pieces = masked.split(b'"')
    at = 0
    for index, piece in enumerate(pieces):
        if not index & 1 and piece not in _PLAIN:
            for found in _BRACKET.finditer(piece):
                if found[0] in b"[{":
                    opened.append(at + found.start())
                elif opened:
                    ends[opened.pop()] = at + found.end()
        at += len(piece) + 1
    return ends


def _key(quoted: bytes) -> str:
    if b"\\" not in quoted:
        return quoted[1:-1].decode()
    return str(json.loads(quoted))

"""The edits of one request, collected with the reason of each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, Final

import orjson

from trivet.canonical import digest, parse
from trivet.prefix.backends.base import Ask, Prepared
from trivet.prefix.prompts.extent import crowded, crowded_text
from trivet.prefix.prompts.json_text import may_name
from trivet.prefix.prompts.outline import Place
from trivet.prefix.prompts.splice import Splice, appended

_LISTS: Final = ("tools", "system", "messages", "input")


class Draft:
    """A request while a backend works on it. Its text is read where more than its end changes."""

    def __init__(self, ask: Ask) -> None:
        self.ask = ask
        self.body = _parsed(ask.raw)
        self.marks = 0
        self._added: dict[str, Any] = {}
        self._notes: list[str] = []

    @cached_property
    def text(self) -> Splice:
        """The text that edits are made on."""
        return Splice(self.ask.raw)

    @cached_property
    def crowded(self) -> bool:
        """Whether it holds more than is looked at."""
        return crowded_text(self.ask.raw) or crowded(self.body)

    def note(self, what: str) -> None:
        """Say what was done and why."""
        self._notes.append(what)

    def drop(self, names: Iterable[str], why: str) -> None:
        """Remove top-level fields where they are."""
        for name in names:
            if name in self.body:
                self.text.drop(name)
                self.note(f"{name} dropped: {why}")

    def put(self, name: str, value: Any, note: str) -> None:
        """Set a top-level field over whatever the caller sent."""
        if name in self.body:
            self.text.put(name, value)
            note += "" if "caller" in note else ", in place of the caller's"
        else:
            self._added[name] = value
        self.note(note)

    def marked(self, name: str) -> list[Place]:
        """The places of the objects that have the marker `name`; none in a crowded body."""
        if not may_name(self.ask.raw, name) or self.crowded:
            return []
        return [place for place in _places(self.text) if self.text.has(place, name)]

    def unmark(self, name: str, why: str) -> None:
        """Remove the marker `name` wherever it stands."""
        for place in self.marked(name):
            self.text.cut(place, name)
            self.note(f"{name} dropped at {written(place)}: {why}")

    def done(self, *, dropped: frozenset[bytes] = frozenset(), apart: bool = True) -> Prepared:
        """What goes upstream."""
        return Prepared(
            self._written(),
            dropped=dropped,
            marks=self.marks,
            notes=tuple(self._notes),
            apart=apart,
        )

    def _written(self) -> bytes:
        if "text" not in self.__dict__:
            if not self._added:
                return self.ask.raw
            return appended(self.ask.raw, self._added, empty=not self.body)
        for name, value in self._added.items():
            self.text.put(name, value)
        return self.text.done()


def _parsed(raw: bytes) -> Mapping[str, Any]:
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError:
        # What orjson does not read the strict parser may: it has read this body before.
        value = parse(raw)
    if not isinstance(value, dict):
        raise TypeError("not a JSON object")
    return value


def _places(text: Splice) -> Iterator[Place]:
    """Every object of the APIs in which a marker can stand."""
    yield ()
    for name in _LISTS:
        for index in range(text.count((name,))):
            if not text.is_object((name, index)):
                continue
            yield (name, index)
            if text.is_object((name, index, "function")):
                yield (name, index, "function")
            yield from _blocks(text, (name, index, "content"))


def _blocks(text: Splice, place: Place) -> Iterator[Place]:
    """The blocks of a message, and what tool results and documents among them consist of."""
    for at in range(text.count(place)):
        block = (*place, at)
        if text.is_object(block):
            yield block
            for within in ((*block, "content"), (*block, "source", "content")):
                pieces = ((*within, piece) for piece in range(text.count(within)))
                yield from filter(text.is_object, pieces)


def written(place: Place) -> str:
    """A place as people write it: `messages[3].content[0]`; `the end` where it is empty."""
    path = ""
    for step in place:
        path += f"[{step}]" if isinstance(step, int) else f".{step}" if path else step
    return path or "the end"


def separate_key(salt: str, own: object) -> str:
    """A key that keeps a tenant apart, in 32 hex digits, one for each key of the caller's own.

    Stable; no other tenant can make it, and it tells nothing about the salt.
    """
    named = own.encode("utf-8", "surrogatepass") if isinstance(own, str) else b""
    return digest(b"trivet-cache-key", salt.encode(), named).hex()[:32]

"""A stored answer becomes a reply: rendered once a process, with fresh ids each time."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncGenerator, Callable
from functools import lru_cache
from typing import Any

import orjson

from trivet.canonical import parse
from trivet.exact.entry import Entry
from trivet.exact.tool_ids import mint
from trivet.messages import Request
from trivet.middleware.dialects.base import Dialect, as_mapping
from trivet.middleware.dialects.bodies import compact
from trivet.middleware.dialects.live_ids import live_ids
from trivet.middleware.dialects.sse import Splitter, data_of

_ID = re.compile(rb'(?<!\\)"(id|call_id|item_id|tool_use_id)":(\s*)"([^"\\]+)"')
_USAGE_NULL = re.compile(rb',\s*"usage"\s*:\s*null|"usage"\s*:\s*null\s*,')


_ANSWER_ID = re.compile(r"(chatcmpl-|cmpl-|msg_|resp_|gen-)[A-Za-z0-9_-]+")
"""Ids of whole answers: nothing refers back to them, so a fresh one needs no trace of the old."""


_ID_PLACE = re.compile(rb'(?<!\\)"(?:id|call_id|item_id|tool_use_id)":"([^"\\]+)"')


class Rendering:
    """An answer's bytes, cut where the ids stand that a replay makes anew. Sized in bytes."""

    __slots__ = ("_ids", "_pieces")

    def __init__(self, rendered: bytes, ids: tuple[str, ...]) -> None:
        """Only whole string values of id fields count. Inside a JSON string a quote is escaped,
        so text that happens to hold an id is never touched."""
        self._pieces: list[bytes] = []
        self._ids: list[str] = []
        start = 0
        known = {one.encode(): one for one in ids}
        for found in _ID_PLACE.finditer(rendered) if ids else ():
            old = known.get(found[1])
            if old is not None:
                self._pieces.append(rendered[start : found.start(1)])
                self._ids.append(old)
                start = found.end(1)
        self._pieces.append(rendered[start:])

    def __len__(self) -> int:
        return sum(map(len, self._pieces))

    def fresh(self) -> bytes:
        """The answer with ids of its own, so that two hits never collide in one conversation."""
        if not self._ids:
            return self._pieces[0]
        nonce = os.urandom(12)
        made: dict[str, bytes] = {}
        parts: list[bytes] = []
        for piece, old in zip(self._pieces, self._ids, strict=False):
            new = made.get(old)
            if new is None:
                new = made[old] = _new_id(old, nonce)
            parts += (piece, new)
        parts.append(self._pieces[-1])
        return b"".join(parts)


def _new_id(old: str, nonce: bytes) -> bytes:
    kind = _ANSWER_ID.fullmatch(old)
    return (kind[1] + nonce.hex() if kind else mint(old, nonce)).encode()


def render(dialect: Dialect, entry: Entry, request: Request, *, zero_usage: bool) -> bytes:
    """The entry's answer in the delivery that `request` asks for, with ids of this hit."""
    ids = () if request.keep_ids else entry.ids
    if request.echo:
        return Rendering(_render(dialect, entry, request, zero_usage), ids).fresh()
    slot = _slot(request.stream, request.include_usage, request.keep_ids, zero_usage)
    found = entry.memo.get(slot)
    if not isinstance(found, Rendering):
        found = Rendering(_render(dialect, entry, request, zero_usage), ids)
        entry.memo[slot] = found
    return found.fresh()


@lru_cache(maxsize=16)
def _slot(*choices: bool) -> str:
    return "".join(map(str, map(int, choices)))


def _render(dialect: Dialect, entry: Entry, request: Request, zero_usage: bool) -> bytes:
    answer = entry.answer
    if zero_usage:
        body = parse(answer.body)
        body["usage"] = _zeroed(body.get("usage"))
        answer = answer._replace(body=compact(body))
    if request.stream:
        return dialect.render_stream(answer, request)
    return dialect.render_json(answer, request)


def _zeroed(usage: Any) -> Any:
    if type(usage) is int:
        return 0
    if type(usage) is dict:
        return {name: _zeroed(value) for name, value in usage.items()}
    return usage


def remint(rendered: bytes, ids: tuple[str, ...]) -> bytes:
    """The same answer with fresh ids; see `Rendering`."""
    return Rendering(rendered, ids).fresh()


class FollowerIds:
    """Gives each follower of a live stream ids of its own, event by event.

    Only the ids that a replay mints too (see `live_ids`), wherever they stand: an id that the
    request named, or an item's, means something elsewhere.
    """

    __slots__ = ("_made", "_nonce")

    def __init__(self) -> None:
        self._nonce = os.urandom(8)
        self._made: dict[bytes, bytes] = {}

    def __call__(self, event: bytes) -> bytes:
        """The event with this follower's ids."""
        named = {found[3] for found in _ID.finditer(event)}
        if not named <= self._made.keys():
            self._learn(event, named)
        return _ID.sub(self._replace, event)

    def _learn(self, event: bytes, named: set[bytes]) -> None:
        try:
            value = as_mapping(orjson.loads(data_of(event)))
        except orjson.JSONDecodeError:
            return
        for one in live_ids(value):
            self._made.setdefault(one.encode(), mint(one, self._nonce).encode())
        for other in named:
            self._made.setdefault(other, other)

    def _replace(self, found: re.Match[bytes]) -> bytes:
        name, space, old = found.groups()
        return b'"%b":%b"%b"' % (name, space, self._made.get(old, old))


Shape = Callable[[bytes], bytes]
LONGEST_EVENT = 8 << 20
"""Bytes of an event that a caller's filter holds: twice the largest answer that is stored."""


class StreamFilter:
    """Shapes a shared live stream for one caller: no usage that it did not ask for, and where it
    follows another caller, what is that one's own is replaced."""

    __slots__ = ("_hide_usage", "_longest", "_shapes", "_splitter")

    def __init__(
        self, *, hide_usage: bool, shapes: tuple[Shape, ...], longest: int = LONGEST_EVENT
    ) -> None:
        """`longest` bytes of an event are held back at most; a longer one passes as it is."""
        self._splitter = Splitter()
        self._longest = longest
        self._hide_usage = hide_usage
        self._shapes = shapes

    def push(self, chunk: bytes) -> bytes:
        """What the caller gets of the events that `chunk` completes."""
        events = self._splitter.push(chunk)
        if self._splitter.held <= self._longest:
            return b"".join(map(self._shape, events))
        passed = self._splitter.rest
        self._splitter = Splitter()
        return b"".join([*map(self._shape, events), passed])

    def rest(self) -> bytes:
        """What is left of a stream that ended within an event."""
        return self._splitter.rest

    def _shape(self, event: bytes) -> bytes:
        if self._hide_usage and b'"usage"' in event:
            if _is_usage_chunk(event):
                return b""
            event = _USAGE_NULL.sub(b"", event, count=1)
        for shape in self._shapes:
            event = shape(event)
        return event


async def without_usage(chunks: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """A stream for a caller who did not ask for its usage."""
    shape = StreamFilter(hide_usage=True, shapes=())
    try:
        async for chunk in chunks:
            if piece := shape.push(chunk):
                yield piece
        if shape.rest():
            yield shape.rest()
    finally:
        await chunks.aclose()


def _is_usage_chunk(event: bytes) -> bool:
    _, _, data = event.partition(b"data:")
    try:
        chunk = as_mapping(orjson.loads(data))
    except orjson.JSONDecodeError:
        return False
    return chunk.get("choices") == [] and type(chunk.get("usage")) is dict


def follower_shapes(dialect: Dialect, request: Request) -> tuple[Shape, ...]:
    """What has to be changed in a stream that another caller leads."""

    def follow(event: bytes) -> bytes:
        return dialect.follow(event, request)

    # What is the caller's own is written last: it is not an id of the answer.
    return (follow,) if request.keep_ids else (FollowerIds(), follow)


def hides_usage(dialect: Dialect, request: Request) -> bool:
    """Whether usage that is in the shared stream has to be kept from this caller."""
    return dialect.asks_usage and request.stream and not request.include_usage


def ask_usage(forward: bytes) -> bytes:
    """A streaming request's body with `stream_options.include_usage` set.

    Without `stream_options` the field is written into the text, so that all other bytes stay.
    """
    if b'"stream_options"' not in forward and b"\\u" not in forward:
        return forward.rstrip()[:-1] + b',"stream_options":{"include_usage":true}}'
    # The name may be there, and may be written with escapes.
    body = parse(forward)
    if "stream_options" not in body:
        return forward.rstrip()[:-1] + b',"stream_options":{"include_usage":true}}'
    body["stream_options"] = {**as_mapping(body["stream_options"]), "include_usage": True}
    return compact(body)

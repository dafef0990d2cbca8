"""A stored answer becomes a reply: rendered once a process, with fresh ids each time."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import orjson

from trivet.canonical import parse
from trivet.exact.entry import Entry
from trivet.exact.tool_ids import mint
from trivet.messages import Request
from trivet.middleware.dialects.base import Dialect, as_mapping
from trivet.middleware.dialects.bodies import compact
from trivet.middleware.dialects.sse import Splitter

_ID_FIELDS = (b"id", b"call_id", b"item_id", b"tool_use_id")
_ID = re.compile(rb'(?<!\\)"(id|call_id|item_id|tool_use_id)":(\s*)"([^"\\]+)"')
_USAGE_NULL = re.compile(rb',\s*"usage"\s*:\s*null|"usage"\s*:\s*null\s*,')


def render(dialect: Dialect, entry: Entry, request: Request, *, zero_usage: bool) -> bytes:
    """The entry's answer in the delivery that `request` asks for, with ids of this hit."""
    slot = f"{request.stream:d}{request.include_usage:d}{zero_usage:d}"
    if request.echo:
        rendered = _render(dialect, entry, request, zero_usage)
    else:
        found = entry.memo.get(slot)
        if found is None:
            found = entry.memo[slot] = _render(dialect, entry, request, zero_usage)
        rendered = found
    return rendered if request.keep_ids or not entry.ids else remint(rendered, entry.ids)


def _render(dialect: Dialect, entry: Entry, request: Request, zero_usage: bool) -> bytes:
    answer = entry.answer
    if zero_usage:
        body = parse(answer.body)
        body["usage"] = _zeroed(body.get("usage"))
        answer = replace(answer, body=compact(body))
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
    """The same answer with fresh ids, so that two hits never collide in one conversation.

    Only whole string values of id fields are replaced. Inside a JSON string a quote is escaped,
    so text that happens to hold an id is never touched.
    """
    nonce = os.urandom(8)
    for old in ids:
        before, after = old.encode(), mint(old, nonce).encode()
        if before not in rendered:
            continue
        for name in _ID_FIELDS:
            place = b'"%b":"%b"' % (name, before)
            rendered = _replaced(rendered, place, b'"%b":"%b"' % (name, after))
    return rendered


def _replaced(rendered: bytes, place: bytes, new: bytes) -> bytes:
    made = rendered.replace(place, new)
    if made is not rendered and b"\\" + place in rendered:
        # A field whose name ends in an escaped quote and "id" only looks like an id field.
        return re.sub(rb"(?<!\\)" + re.escape(place), lambda _: new, rendered)
    return made


class FollowerIds:
    """Gives each follower of a live stream ids of its own, event by event."""

    __slots__ = ("_made", "_nonce")

    def __init__(self) -> None:
        self._nonce = os.urandom(8)
        self._made: dict[bytes, bytes] = {}

    def __call__(self, event: bytes) -> bytes:
        """The event with this follower's ids."""
        return _ID.sub(self._replace, event)

    def _replace(self, found: re.Match[bytes]) -> bytes:
        name, space, old = found.groups()
        new = self._made.get(old)
        if new is None:
            # Other bytes come back as they were: no id that can be minted has any.
            text = old.decode("utf-8", "surrogateescape")
            new = mint(text, self._nonce).encode("utf-8", "surrogateescape")
            self._made[old] = new
        return b'"%b":%b"%b"' % (name, space, new)


Shape = Callable[[bytes], bytes]


class StreamFilter:
    """Shapes a shared live stream for one caller: no usage that it did not ask for, and where it
    follows another caller, what is that one's own is replaced."""

    __slots__ = ("_hide_usage", "_shapes", "_splitter")

    def __init__(self, *, hide_usage: bool, shapes: tuple[Shape, ...]) -> None:
        self._splitter = Splitter()
        self._hide_usage = hide_usage
        self._shapes = shapes

    def push(self, chunk: bytes) -> bytes:
        """What the caller gets of the events that `chunk` completes."""
        return b"".join(map(self._shape, self._splitter.push(chunk)))

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

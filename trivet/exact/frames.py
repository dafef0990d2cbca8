"""Messages between the processes of one machine: frames over a Unix domain socket.

    length (4 bytes, big-endian, of what follows) | kind (1 byte) | number (8 bytes) | payload

`number` names a request, a flight or a link, whatever the kind is about.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from enum import IntEnum
from typing import cast

_HEADER = struct.Struct(">IBQ")
_AFTER_LENGTH = _HEADER.size - 4
MAX_PAYLOAD = 256 << 20
"""Longer frames are not from us: the connection is closed."""


class Kind(IntEnum):
    """What a frame is. The comment says which number it carries."""

    CLAIM = 1  # request; client to hub
    LEADS = 2  # request; the hub's answer: you lead, the payload is the flight's number
    FOLLOWS = 3  # request; the hub's answer: you follow, the payload is the link's number
    RELEASE = 4  # flight; leader to hub
    RELEASED = 5  # flight; no FOLLOW for it comes after this
    FOLLOW = 6  # flight; hub to leader, the payload is the link's number
    DATA = 7  # link; leader to follower, an event
    TAKEN = 8  # link; follower to leader, how many bytes it has taken
    LEAVE = 9  # link; follower to leader, or the hub for a lost follower
    ASK = 10  # request; either way, a topic and a payload
    ANSWER = 11  # request
    REFUSAL = 12  # request; the handler failed or does not exist
    PING = 13  # none; hub to client
    PONG = 14  # none; client to hub


class FrameLink(asyncio.Protocol):
    """One connection: cuts the byte stream into frames and hands them on."""

    def __init__(
        self,
        on_frame: Callable[[FrameLink, int, int, bytes], None],
        on_open: Callable[[FrameLink], None],
        on_lost: Callable[[FrameLink], None],
    ) -> None:
        self._on_frame = on_frame
        self._on_open = on_open
        self._on_lost = on_lost
        self._buffer = bytearray()
        self._transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Part of `asyncio.Protocol`."""
        # uvloop's transports are not subclasses of asyncio's.
        self._transport = cast(asyncio.WriteTransport, transport)
        self._on_open(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Part of `asyncio.Protocol`."""
        self._transport = None
        self._on_lost(self)

    def data_received(self, data: bytes) -> None:
        """Part of `asyncio.Protocol`."""
        self._buffer += data
        at = 0
        while len(self._buffer) - at >= _HEADER.size:
            length, kind, number = _HEADER.unpack_from(self._buffer, at)
            if not _AFTER_LENGTH <= length <= MAX_PAYLOAD:
                self.close()
                return
            end = at + 4 + length
            if len(self._buffer) < end:
                break
            payload = bytes(memoryview(self._buffer)[at + _HEADER.size : end])
            at = end
            self._on_frame(self, kind, number, payload)
        del self._buffer[:at]

    @property
    def buffered(self) -> int:
        """Bytes that the socket has not taken yet."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def send(self, kind: Kind, number: int, payload: bytes = b"") -> None:
        """Send one frame; nothing happens on a lost connection."""
        if self._transport is not None:
            self._transport.write(
                _HEADER.pack(_AFTER_LENGTH + len(payload), kind, number) + payload
            )

    def close(self) -> None:
        """Close at once, unsent frames are dropped. `on_lost` is called later."""
        if self._transport is not None:
            self._transport.abort()


def pack_number(number: int) -> bytes:
    """A number as a payload."""
    return number.to_bytes(8, "big")


def unpack_number(payload: bytes) -> int:
    """The number that a payload is."""
    return int.from_bytes(payload, "big")


def pack_topic(topic: str, payload: bytes) -> bytes:
    """What `ASK` carries. A topic has 255 bytes at most."""
    name = topic.encode()
    return b"%c%b%b" % (len(name), name, payload)


def unpack_topic(packed: bytes) -> tuple[str, bytes]:
    """Topic and payload of an `ASK`."""
    end = 1 + packed[0]
    return packed[1:end].decode(), packed[end:]

"""The leader's side of a worker at the hub: sends flights to those who ask for them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from trivet.exact.fleet import (
    LINGER_S,
    EventCodec,
    crashed,
    events_of,
    gone,
    lingers,
    lost,
    pack_failed,
)
from trivet.exact.flight import Flight, Subscription
from trivet.exact.frames import FrameLink, Kind, unpack_number

_PIECE = 64 << 10
"""Bytes of one DATA frame, about: small enough that other links get their turn."""
_AHEAD = 1 << 20
"""How many bytes go to one follower before it says that it took them."""
_PATIENCE_S = 15.0
"""A link stands for many readers, each of which may use the limit of a local one."""


@dataclass(eq=False, slots=True)
class _Link:
    """One remote follower."""

    ahead: int = 0
    room: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None


class HubLeader:
    """The flights that this worker leads for the machine, over one connection."""

    def __init__(self, link: FrameLink, codec: EventCodec) -> None:
        self._link = link
        self._codec = codec
        self._flights: dict[int, Flight] = {}
        self._released: set[int] = set()
        self._links: dict[int, _Link] = {}

    def lead(self, number: int, flight: Flight) -> None:
        """The hub gave us the claim."""
        self._flights[number] = flight

    def release(self, number: int) -> None:
        """Free the claim. The flight is kept for the followers that the hub has sent already.

        The claim of a re-election outlives its flight a little: see `LINGER_S`.
        """
        flight = self._flights.get(number)
        if flight is None or number in self._released:
            return
        self._released.add(number)
        if lingers(flight):
            asyncio.get_running_loop().call_later(LINGER_S, self._link.send, Kind.RELEASE, number)
        else:
            self._link.send(Kind.RELEASE, number)

    def released(self, number: int, payload: bytes) -> None:
        """The hub sends no more followers to this flight."""
        self._flights.pop(number, None)
        self._released.discard(number)

    def follow(self, number: int, payload: bytes) -> None:
        """Another worker wants flight `number`, from its first byte on."""
        flight = self._flights.get(number)
        name = unpack_number(payload)
        if flight is None or not flight.whole:
            self._link.send(Kind.DATA, name, pack_failed(gone()))
            return
        link = self._links[name] = _Link()
        subscription = flight.subscribe(_PATIENCE_S)
        link.task = asyncio.create_task(self._send(name, link, subscription))
        link.task.add_done_callback(lambda task: self._ended(task, name, subscription))

    def taken(self, name: int, payload: bytes) -> None:
        """A follower took so many bytes."""
        link = self._links.get(name)
        if link is not None:
            link.ahead -= unpack_number(payload)
            link.room.set()

    def leave(self, name: int, payload: bytes) -> None:
        """A follower left, or died."""
        link = self._links.get(name)
        if link is not None and link.task is not None:
            link.task.cancel()

    def lost(self) -> None:
        """The connection is gone, and all followers with it."""
        self._flights.clear()
        for name in self._links:
            self.leave(name, b"")

    def _ended(self, task: asyncio.Task[None], name: int, subscription: Subscription) -> None:
        subscription.leave()
        del self._links[name]
        if crashed(task):
            self._link.send(Kind.DATA, name, pack_failed(lost()))

    async def _send(self, name: int, link: _Link, subscription: Subscription) -> None:
        async for event in events_of(subscription, _PIECE):
            while link.ahead > _AHEAD:
                link.room.clear()
                await link.room.wait()
            if isinstance(event, bytes):
                link.ahead += len(event)
            self._link.send(Kind.DATA, name, self._codec.pack(event))

"""A worker's end of the machine's hub."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from trivet.errors import StoreError
from trivet.exact.fleet import ALONE, Claim, EventCodec, Lead, Remote, claim_name, lost
from trivet.exact.flight import Flight, Head
from trivet.exact.frames import FrameLink, Kind, pack_number, unpack_number
from trivet.exact.hub_leader import HubLeader
from trivet.exact.questions import Handlers, Questions
from trivet.telemetry import Observer, StoreState

_FIRST_DELAY_S, _LAST_DELAY_S = 0.05, 1.0

Inbox = asyncio.Queue[bytes | None]
"""Packed events of a flight that is followed; None when the connection is lost."""


@dataclass(eq=False, slots=True)
class _Connection:
    """What lives as long as one connection."""

    link: FrameLink
    leader: HubLeader
    actions: dict[int, Callable[[int, bytes], None]]
    claims: dict[int, tuple[Flight, asyncio.Future[Claim]]]
    inboxes: dict[int, Inbox]
    heard: float
    lost: asyncio.Event


class HubClient:
    """Implements `Fleet` over the hub at `path`, and answers the hub's questions by `handlers`.

    A claim waits `budget_s` at most. After one that timed out, and while there is no connection,
    this process leads alone and pays nothing; it reconnects in the background. `StoreState` of
    the store `hub` tells of each change. A hub that is silent for `lease_s` counts as dead.
    """

    where: Literal["machine", "fleet"] = "machine"

    def __init__(
        self,
        path: Path,
        codec: EventCodec,
        observer: Observer,
        handlers: Handlers | None = None,
        *,
        budget_s: float = 0.5,
        lease_s: float = 5.0,
    ) -> None:
        self._path = path
        self._codec = codec
        self._observer = observer
        self._budget_s = budget_s
        self._lease_s = lease_s
        self._questions = Questions(handlers or {})
        self._numbers = itertools.count(1)
        self._connection: _Connection | None = None
        self._state: Literal["up", "down"] | None = None
        self._settled = asyncio.Event()
        self._connecting: asyncio.Task[None] | None = None

    @property
    def up(self) -> bool:
        """The hub answers."""
        return self._state == "up"

    async def start(self, wait_s: float = 1.0) -> None:
        """Connect; goes on in the background where that takes longer than `wait_s`."""
        self._connecting = asyncio.create_task(self._stay_connected(), name="trivet-hub-client")
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._settled.wait()

    async def close(self) -> None:
        """Leave the hub: claims are freed, followers here and elsewhere are told. Idempotent."""
        if self._connecting is None:
            return
        connecting, self._connecting = self._connecting, None
        connecting.cancel()
        await asyncio.gather(connecting, return_exceptions=True)
        connection = self._connection
        if connection is not None:
            connection.link.close()
            await connection.lost.wait()
        await self._questions.close()

    async def ask(self, topic: str, payload: bytes, timeout_s: float = 5.0) -> bytes:
        """The supervisor's answer. Raises `StoreError` if there is none."""
        if self._connection is None:
            raise StoreError("lost", "the hub is not connected")
        return await self._questions.ask(self._connection.link, topic, payload, timeout_s)

    async def claim(self, flight: Flight) -> Claim:
        """See `Fleet.claim`. One round trip over the socket."""
        connection = self._connection
        if connection is None or not self.up:
            return ALONE
        number = next(self._numbers)
        answer: asyncio.Future[Claim] = asyncio.get_running_loop().create_future()
        connection.claims[number] = flight, answer
        connection.link.send(Kind.CLAIM, number, claim_name(flight))
        try:
            async with asyncio.timeout(self._budget_s):
                return await answer
        except BaseException as error:
            if answer.done() and not answer.cancelled():
                answer.result().undo()
            if not isinstance(error, TimeoutError):
                raise
            self._say("down", "timeout")
            return ALONE

    async def _stay_connected(self) -> None:
        loop = asyncio.get_running_loop()
        delay = _FIRST_DELAY_S
        while True:
            try:
                await loop.create_unix_connection(
                    lambda: FrameLink(self._frame, self._opened, self._lost), str(self._path)
                )
            except OSError:
                self._say("down", "unreachable")
            if self._connection is not None:
                await self._watch(self._connection)
                delay = _FIRST_DELAY_S
            await asyncio.sleep(delay)
            delay = min(2 * delay, _LAST_DELAY_S)

    async def _watch(self, connection: _Connection) -> None:
        loop = asyncio.get_running_loop()
        pause = self._lease_s / 4
        while not connection.lost.is_set():
            slept = loop.time()
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await connection.lost.wait()
            now = loop.time()
            # After a longer pause it was this process that stood still.
            if now - slept < 2 * pause and now - connection.heard > self._lease_s:
                connection.link.close()

    def _say(self, state: Literal["up", "down"], reason: str) -> None:
        self._settled.set()
        if state != self._state:
            self._state = state
            self._observer(StoreState("hub", state, reason))

    def _opened(self, link: FrameLink) -> None:
        leader = HubLeader(link, self._codec)
        actions: dict[int, Callable[[int, bytes], None]] = {
            Kind.LEADS: self._leads,
            Kind.FOLLOWS: self._follows,
            Kind.DATA: self._data,
            Kind.PING: lambda number, payload: link.send(Kind.PONG, 0),
            Kind.RELEASED: leader.released,
            Kind.FOLLOW: leader.follow,
            Kind.TAKEN: leader.taken,
            Kind.LEAVE: leader.leave,
        }
        now = asyncio.get_running_loop().time()
        self._connection = _Connection(link, leader, actions, {}, {}, now, asyncio.Event())

    def _lost(self, link: FrameLink) -> None:
        connection = self._connection
        assert connection is not None
        self._connection = None
        if self._connecting is not None:
            self._say("down", "lost")
        self._questions.lost(link)
        for _, answer in connection.claims.values():
            if not answer.done():
                answer.set_result(ALONE)
        for inbox in connection.inboxes.values():
            inbox.put_nowait(None)
        connection.leader.lost()
        connection.lost.set()

    def _frame(self, link: FrameLink, kind: int, number: int, payload: bytes) -> None:
        connection = self._connection
        assert connection is not None
        connection.heard = asyncio.get_running_loop().time()
        self._say("up", "")
        action = connection.actions.get(kind)
        if action is not None:
            action(number, payload)
        else:
            self._questions.take(link, kind, number, payload)

    def _leads(self, number: int, payload: bytes) -> None:
        connection, name = self._here(), unpack_number(payload)
        flight, answer = connection.claims.pop(number)
        connection.leader.lead(name, flight)
        claim = Lead(partial(connection.leader.release, name))
        _settle(answer, claim)

    def _follows(self, number: int, payload: bytes) -> None:
        connection, name = self._here(), unpack_number(payload)
        _, answer = connection.claims.pop(number)
        inbox = connection.inboxes[name] = Inbox()
        claim = Remote(
            partial(self._feed, connection, name, inbox), partial(self._leave, connection, name)
        )
        _settle(answer, claim)

    def _data(self, name: int, payload: bytes) -> None:
        inbox = self._here().inboxes.get(name)
        if inbox is not None:
            inbox.put_nowait(payload)

    def _here(self) -> _Connection:
        assert self._connection is not None
        return self._connection

    def _leave(self, connection: _Connection, name: int) -> None:
        if connection.inboxes.pop(name, None) is not None:
            connection.link.send(Kind.LEAVE, name)

    async def _feed(self, connection: _Connection, name: int, inbox: Inbox, flight: Flight) -> None:
        while not flight.done:
            packed = await inbox.get()
            event = lost() if packed is None else self._codec.unpack(flight, packed)
            if isinstance(event, Head):
                flight.start(event)
            elif isinstance(event, bytes):
                await flight.push(event)
                connection.link.send(Kind.TAKEN, name, pack_number(len(event)))
            else:
                connection.inboxes.pop(name, None)
                flight.finish(event)


def _settle(answer: asyncio.Future[Claim], claim: Claim) -> None:
    """Hand the claim over, or give it back if nobody waits for it any more."""
    if answer.done():
        claim.undo()
    else:
        answer.set_result(claim)

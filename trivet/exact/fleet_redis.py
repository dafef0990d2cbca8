"""A fleet over Redis or Valkey: processes on many machines share their upstream calls.

A claim is a lease (SET NX PX). A follower asks on the leader's channel; the leader then sends the
flight from its first byte on through a list that only this follower reads. Nothing is sent for a
flight that nobody asks for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from redis.asyncio import Redis, RedisCluster
from redis.asyncio.client import PubSub
from redis.exceptions import RedisError

from trivet.errors import StoreError
from trivet.exact.fleet import ALONE, Claim, EventCodec, Lead, Remote, lost
from trivet.exact.flight import Flight, Head
from trivet.exact.redis_leader import RedisLeader
from trivet.exact.redis_line import RedisLine
from trivet.exact.redis_names import ASK, ID, LEAVE, WAKE, Following, Names, new_id
from trivet.exact.seal import Seal
from trivet.telemetry import EntryRejected, Observer, StoreState

_ITEMS = 32
"""Items that a follower takes at a time."""


@dataclass(frozen=True, slots=True)
class FleetTimes:
    """Seconds that a fleet may take."""

    claim_s: float = 0.05
    """What a claim may add to a request; then this process leads alone."""
    line_s: float = 0.25
    """What a round trip may take before Redis counts as down."""
    lease_s: float = 6.0
    """How long a leader that is not heard of is believed to be alive."""
    ask_s: float = 1.0
    """How long a follower waits for the leader's first sign."""


@dataclass(eq=False, slots=True)
class _Followed:
    """The follower's side of one flight."""

    following: Following
    leader: bytes
    deadline: float
    asked: float = 0.0
    number: int = 0
    through: bool = False
    wake: asyncio.Event = field(default_factory=asyncio.Event)


class RedisFleet:
    """Implements `Fleet`. `factory` makes the client: standalone, Sentinel or Cluster, bytes out.

    `StoreState` of the store `fleet` tells when Redis goes or comes. While it is down this
    process leads alone, and a claim costs nothing.
    """

    where: Literal["machine", "fleet"] = "fleet"

    def __init__(
        self,
        factory: Callable[[], Redis | RedisCluster],
        seal: Seal,
        codec: EventCodec,
        observer: Observer,
        *,
        prefix: str = "trivet:",
        times: FleetTimes | None = None,
    ) -> None:
        self._client = factory()
        self._codec = codec
        self._observer = observer
        self._times = times or FleetTimes()
        self._process = new_id()
        self._names = Names(f"{prefix}flight:", seal)
        self._line = RedisLine(
            self._client,
            self._turned,
            probe=f"{prefix}flight:probe",
            limit_s=self._times.line_s,
        )
        self._leader = RedisLeader(
            self._line, self._names, codec, self._process, self._times.lease_s
        )
        self._followed: dict[bytes, _Followed] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._closing = False

    @property
    def up(self) -> bool:
        """Redis answers."""
        return self._line.up

    async def start(self) -> None:
        """Connect; goes on in the background where Redis does not answer in time."""
        await self._line.start(self._times.line_s * 2)
        self._tasks = [
            asyncio.create_task(self._listen(), name="trivet-fleet-listen"),
            asyncio.create_task(self._beat(), name="trivet-fleet-beat"),
        ]

    async def close(self) -> None:
        """Free the leases and disconnect. Idempotent."""
        self._closing = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._leader.close()
        await self._line.close()
        with suppress(RedisError, OSError):
            await self._client.aclose()

    async def claim(self, flight: Flight) -> Claim:
        """See `Fleet.claim`. One round trip for a leader, two for a follower."""
        if not self._line.up or self._line.behind_s > self._times.claim_s:
            return ALONE
        reply, lead = self._leader.hold(flight)
        try:
            async with asyncio.timeout(self._times.claim_s):
                granted = await reply
                if not granted:
                    return await self._follow(flight, lead)
        except TimeoutError:
            return lead
        except BaseException:
            lead.undo()
            raise
        return lead

    async def _follow(self, flight: Flight, lead: Lead) -> Claim:
        value = await self._line.submit("GET", self._names.lease(flight))
        if not isinstance(value, bytes):
            return lead  # The lease ended a moment ago, or Redis is in trouble.
        opened = self._names.open_lease(flight, value)
        if opened is None:
            self._observer(EntryRejected("fleet", "mac"))
            return lead
        lead.undo()
        flight_id, leader = opened
        following = Following(self._names.seal, flight.tenant, flight_id, new_id())
        now = asyncio.get_running_loop().time()
        followed = _Followed(following, leader, now + self._times.ask_s)
        return Remote(partial(self._feed, followed), partial(self._leave, followed))

    async def _feed(self, followed: _Followed, flight: Flight) -> None:
        loop = asyncio.get_running_loop()
        nonce = followed.following.nonce
        inbox = self._names.inbox(nonce)
        self._followed[nonce] = followed
        while not flight.done:
            followed.wake.clear()
            self._ask(followed, loop.time())
            items = await self._line.submit("LPOP", inbox, _ITEMS)
            for item in items if isinstance(items, list) else ():
                await self._take(followed, flight, item)
            if isinstance(items, list) and len(items) == _ITEMS:
                continue
            early = followed.number == 0
            if loop.time() > followed.deadline or (early and isinstance(items, StoreError)):
                flight.finish(lost())
                return
            pause = self._times.ask_s / 8 if early else self._times.lease_s / 6
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await followed.wake.wait()

    async def _take(self, followed: _Followed, flight: Flight, item: bytes) -> None:
        opened = followed.following.open_item(item)
        if opened is None:
            self._observer(EntryRejected("fleet", "mac"))
            return
        number, packed = opened
        if number < followed.number or flight.done:
            return
        if number > followed.number:  # An item was lost on the way.
            flight.finish(lost())
            return
        followed.number += 1
        followed.deadline = asyncio.get_running_loop().time() + self._times.lease_s
        if not packed:
            return
        event = self._codec.unpack(flight, packed)
        if isinstance(event, Head):
            flight.start(event)
        elif isinstance(event, bytes):
            await flight.push(event)
        else:
            followed.through = True
            flight.finish(event)

    def _ask(self, followed: _Followed, now: float) -> None:
        """Ask until the leader's first sign, then say now and then that we are still here."""
        often = self._times.ask_s / 8 if followed.number == 0 else self._times.lease_s / 3
        if now - followed.asked >= often:
            followed.asked = now
            self._tell(followed, ASK)

    def _tell(self, followed: _Followed, kind: bytes) -> None:
        message = followed.following.seal_message(kind, self._process)
        self._line.submit("PUBLISH", self._names.channel(followed.leader), message)

    def _leave(self, followed: _Followed) -> None:
        nonce = followed.following.nonce
        if self._followed.pop(nonce, None) is not None and not followed.through:
            self._tell(followed, LEAVE)
            self._line.submit("DEL", self._names.inbox(nonce))

    def _turned(self, up: bool, reason: str) -> None:
        self._observer(StoreState("fleet", "up" if up else "down", reason))

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._times.lease_s / 3)
            self._leader.beat()

    async def _listen(self) -> None:
        """Hear what other processes say to this one, whatever happens to the connection."""
        while not self._closing:
            with suppress(RedisError, OSError):
                async with self._client.pubsub(ignore_subscribe_messages=True) as channel:
                    await channel.subscribe(self._names.channel(self._process))
                    await self._hear_until_silent(channel)
            await asyncio.sleep(self._times.ask_s / 8)

    async def _hear_until_silent(self, channel: PubSub) -> None:
        """A connection that brings nothing, not even the answer to a ping, is dead."""
        silent = 0
        while silent < 2 and not self._closing:
            message = await channel.get_message(timeout=self._times.lease_s)
            silent = silent + 1 if message is None else 0
            if silent:
                await channel.ping()
            self._hear(message)

    def _hear(self, message: dict[str, Any] | None) -> None:
        data = None if message is None else message.get("data")
        if not isinstance(data, bytes):
            return
        kind, first, rest = data[:1], data[1 : 1 + ID], data[1 + ID :]
        if kind == WAKE:
            followed = self._followed.get(first)
            if followed is not None:
                followed.wake.set()
        elif kind in (ASK, LEAVE):
            self._leader.heard(kind, first, rest[:ID], rest[ID:])

"""The leader's side of a fleet over Redis: holds leases, sends flights to those who ask."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass, field

from trivet.errors import StoreError
from trivet.exact.fleet import (
    LINGER_S,
    EventCodec,
    Lead,
    crashed,
    events_of,
    lingers,
    lost,
    pack_failed,
)
from trivet.exact.flight import Flight, Subscription
from trivet.exact.redis_line import RedisLine
from trivet.exact.redis_names import LEAVE, WAKE, Following, Names, new_id

_PIECE = 64 << 10
_BACKLOG = 64
"""Items in an inbox at which the leader waits for its reader: 4 MiB at most."""
_BACKLOG_PAUSE_S = 0.02
_PATIENCE_S = 15.0
"""A follower stands for many readers, each of which may use the limit of a local one."""
_RENEW = (
    "if redis.call('get', KEYS[1]) == ARGV[1] then "
    "return redis.call('pexpire', KEYS[1], ARGV[2]) end"
)
_FREE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end"


@dataclass(eq=False, slots=True)
class _Held:
    flight: Flight
    lease: str
    value: bytes
    released: bool = False


@dataclass(eq=False, slots=True)
class _Follower:
    following: Following
    process: bytes
    heard: float
    numbers: itertools.count[int] = field(default_factory=itertools.count)
    task: asyncio.Task[None] | None = None


class RedisLeader:
    """The flights that this process leads for the fleet. `process` is its id."""

    def __init__(
        self, line: RedisLine, names: Names, codec: EventCodec, process: bytes, lease_s: float
    ) -> None:
        self._line = line
        self._names = names
        self._codec = codec
        self._process = process
        self._lease_s = lease_s
        self._lease_ms = int(lease_s * 1000)
        self._held: dict[bytes, _Held] = {}
        self._followers: dict[bytes, _Follower] = {}

    def hold(self, flight: Flight) -> tuple[asyncio.Future[object], Lead]:
        """Ask for the lease; the reply is true if it was granted.

        The lead is valid from now on: a late grant is renewed and freed as any other.
        """
        flight_id = new_id()
        value = self._names.seal_lease(flight, flight_id, self._process)
        held = self._held[flight_id] = _Held(flight, self._names.lease(flight), value)
        reply = self._line.submit("SET", held.lease, value, "NX", "PX", self._lease_ms)
        return reply, Lead(lambda: self._release(flight_id, held))

    def heard(self, kind: bytes, flight_id: bytes, nonce: bytes, sealed: bytes) -> None:
        """A follower asks for a flight, says that it is still there, or leaves."""
        follower = self._followers.get(nonce)
        if follower is None:
            self._first_heard(kind, flight_id, nonce, sealed)
        elif follower.following.open_message(kind, sealed) is None:
            return
        elif kind == LEAVE:
            _stop(follower)
        else:
            follower.heard = asyncio.get_running_loop().time()

    def beat(self) -> None:
        """Renew the leases, and show the followers that this process is alive."""
        for held in self._held.values():
            if not held.released:
                self._line.submit("EVAL", _RENEW, 1, held.lease, held.value, self._lease_ms)
        now = asyncio.get_running_loop().time()
        for follower in self._followers.values():
            if now - follower.heard > self._lease_s:
                _stop(follower)
            else:
                self._put(follower, b"")

    async def close(self) -> None:
        """Stop sending, and free the leases."""
        tasks = [follower.task for follower in self._followers.values() if follower.task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for held in self._held.values():
            self._free(held)
        self._held.clear()

    def _release(self, flight_id: bytes, held: _Held) -> None:
        if held.released:
            return
        held.released = True
        loop = asyncio.get_running_loop()
        if lingers(held.flight):
            loop.call_later(LINGER_S, self._free, held)
        else:
            self._free(held)
        # A follower may have read the lease just before: its question still finds the flight.
        loop.call_later(2 * LINGER_S, self._held.pop, flight_id, None)

    def _free(self, held: _Held) -> None:
        self._line.submit("EVAL", _FREE, 1, held.lease, held.value)

    def _first_heard(self, kind: bytes, flight_id: bytes, nonce: bytes, sealed: bytes) -> None:
        held = self._held.get(flight_id)
        if held is None or not held.flight.whole or kind == LEAVE:
            return
        following = Following(self._names.seal, held.flight.tenant, flight_id, nonce)
        process = following.open_message(kind, sealed)
        if process is None:
            return
        now = asyncio.get_running_loop().time()
        follower = self._followers[nonce] = _Follower(following, process, now)
        subscription = held.flight.subscribe(_PATIENCE_S)
        self._put(follower, b"")
        follower.task = asyncio.create_task(self._send(follower, subscription))
        follower.task.add_done_callback(lambda task: self._ended(task, follower, subscription))

    def _ended(
        self, task: asyncio.Task[None], follower: _Follower, subscription: Subscription
    ) -> None:
        subscription.leave()
        del self._followers[follower.following.nonce]
        if crashed(task):
            self._put(follower, pack_failed(lost()))

    async def _send(self, follower: _Follower, subscription: Subscription) -> None:
        async for event in events_of(subscription, _PIECE):
            # While the round trip is under way, the next bytes gather for one item.
            size = await self._put(follower, self._codec.pack(event))
            while isinstance(size, int) and size > _BACKLOG:
                await asyncio.sleep(_BACKLOG_PAUSE_S)
                size = await self._line.submit("LLEN", self._inbox(follower))
            if isinstance(size, StoreError):
                return

    def _put(self, follower: _Follower, event: bytes) -> asyncio.Future[object]:
        inbox = self._inbox(follower)
        item = follower.following.seal_item(next(follower.numbers), event)
        size = self._line.submit("RPUSH", inbox, item)
        self._line.submit("PEXPIRE", inbox, self._lease_ms)
        channel = self._names.channel(follower.process)
        self._line.submit("PUBLISH", channel, WAKE + follower.following.nonce)
        return size

    def _inbox(self, follower: _Follower) -> str:
        return self._names.inbox(follower.following.nonce)


def _stop(follower: _Follower) -> None:
    if follower.task is not None:
        follower.task.cancel()

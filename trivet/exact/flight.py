"""One upstream call and everybody who reads it: a broadcast buffer on the event loop.

The producer calls `start`, `push` and `finish`; each subscriber reads every byte from the first
one on. A flight belongs to one event loop and one producer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import NamedTuple

from trivet.errors import UpstreamError
from trivet.exact.entry import Entry
from trivet.messages import ExactKey, Usage


class Head(NamedTuple):
    """The upstream's response head. `stream` says that the body is an event stream."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    stream: bool


class Stored(NamedTuple):
    """A complete answer that may be stored."""

    entry: Entry
    reason: str = ""
    """Why the store did not take it; empty if it did."""


class Unstored(NamedTuple):
    """A complete answer that may not be stored; the bytes are the upstream's own."""

    reason: str
    usage: Usage | None = None
    """What it cost, where that was read; processes do not tell each other."""
    model: str = ""
    """The model that served, where that was read."""


class Failed(NamedTuple):
    """There is no complete answer."""

    error: UpstreamError


Result = Stored | Unstored | Failed


class FlightLimits(NamedTuple):
    """Bounds of one flight. Bytes are body bytes, times are seconds."""

    keep_bytes: int
    """How much is kept for late joiners; a longer flight takes no more of them."""
    window: int
    """How far a subscriber may fall behind before the producer waits for it."""
    lag_s: float = 5.0
    """How long in all the producer waits for a slow subscriber while another one keeps up."""
    stall_s: float = 60.0
    """How long the producer waits when all are behind and none takes a byte."""


def copy_of(error: UpstreamError) -> UpstreamError:
    """The same error for one more reader: an instance raised twice would share its traceback."""
    return UpstreamError(error.reason, error.message, error.status)


_LEFT = UpstreamError("left", "This reader has left.")  # only copies of it are raised


class Flight:
    """A broadcast buffer of one answer.

    `watch` is called, on the event loop, whenever the flight stops being `joinable` or loses its
    last subscriber.
    """

    def __init__(
        self,
        key: ExactKey,
        tenant: str,
        limits: FlightLimits,
        *,
        attempt: int = 0,
        watch: Callable[[Flight], None] = lambda flight: None,
    ) -> None:
        self.key = key
        self.tenant = tenant
        self.attempt = attempt
        self.successor: Flight | None = None
        """The flight that was elected after this one failed."""
        self._limits = limits
        self._watch = watch
        self._loop = asyncio.get_running_loop()
        self._head: Head | Failed | None = None
        self._result: Result | None = None
        self._news: list[asyncio.Future[None]] = []  # who waits for the head or the result
        self._chunks: list[bytes] = []
        self._dropped = 0  # chunks that were cut off the front of `_chunks`
        self._pushed = 0  # bytes
        self._floor = 0  # bytes; at most what the slowest subscriber has taken
        self._whole = True
        self._subscriptions: dict[Subscription, None] = {}
        self._room: asyncio.Future[bool] | None = None

    @property
    def done(self) -> bool:
        """`finish` was called."""
        return self._result is not None

    @property
    def abandoned(self) -> bool:
        """It ended because nobody read it, so it says nothing about the upstream."""
        return isinstance(self._result, Failed) and self._result.error.reason == "abandoned"

    @property
    def whole(self) -> bool:
        """Every byte since the first is still here, so `subscribe` is possible."""
        return self._whole

    @property
    def joinable(self) -> bool:
        """In the air, and whole."""
        return self._whole and self._result is None

    @property
    def deserted(self) -> bool:
        """Nobody reads it."""
        return not self._subscriptions

    def subscribe(self, patience_s: float | None = None) -> Subscription:
        """A reader from the first byte on; `patience_s` stands in for the limit `lag_s`.

        Raises `RuntimeError` if the first bytes are gone.
        """
        if not self._whole:
            raise RuntimeError("the flight has dropped its first bytes")
        subscription = Subscription(self, self._limits.lag_s if patience_s is None else patience_s)
        self._subscriptions[subscription] = None
        self._floor = 0
        return subscription

    def start(self, head: Head) -> None:
        """Publish the response head, before any byte. Nothing happens on a finished flight."""
        if self._head is None:
            self._head = head
            self._tell()
        elif not self.done:
            raise RuntimeError("the flight has a head")

    async def push(self, chunk: bytes) -> None:
        """Publish the next bytes, then wait until no live subscriber is behind by the window.

        A subscriber that overdraws its time is detached: its iterator raises `UpstreamError`
        with reason `lagging`. Raises `UpstreamError` with reason `abandoned` on a finished flight.
        """
        if self.done:
            raise UpstreamError("abandoned", "Nobody reads this answer any more.")
        if self._head is None:
            raise RuntimeError("the flight has no head")
        if not chunk:
            return
        self._chunks.append(chunk)
        self._pushed += len(chunk)
        for subscription in self._subscriptions:
            subscription._wake()
        if self._pushed > self._limits.keep_bytes:
            self._overflow()
        if self._pushed - self._floor > self._limits.window:
            await self._wait_for_the_slow()

    def finish(self, result: Result) -> None:
        """End the flight. The first call counts; later ones change nothing.

        Raises `RuntimeError` if an answer is said to be complete that never had a head.
        """
        if self.done:
            return
        if self._head is None:
            if not isinstance(result, Failed):
                raise RuntimeError("the flight has no head")
            self._head = result
        self._result = result
        self._tell()
        for subscription in self._subscriptions:
            subscription._wake()
        self._settle_room(True)
        self._watch(self)

    async def _hear(self) -> None:
        """Wait for the head or the result, whichever is next."""
        self._news.append(news := self._loop.create_future())
        await news

    def _tell(self) -> None:
        waiting, self._news = self._news, []
        for news in waiting:
            if not news.done():
                news.set_result(None)

    def _overflow(self) -> None:
        first = self._whole
        self._whole = False
        last = self._dropped + len(self._chunks)
        lowest = min((reader._next for reader in self._subscriptions), default=last)
        if lowest > self._dropped:
            del self._chunks[: lowest - self._dropped]
            self._dropped = lowest
        if first:
            self._watch(self)

    async def _wait_for_the_slow(self) -> None:
        while not self.done and (slow := self._laggards()):
            alone = len(slow) == len(self._subscriptions)
            limit = self._limits.stall_s if alone else min(reader._patience for reader in slow)
            began = time.monotonic()
            moved = await self._wait_for_room(limit)
            spent = time.monotonic() - began
            for reader in slow:
                if not alone:
                    reader._patience -= spent
                if not moved and (alone or reader._patience <= 0):
                    reader._close(UpstreamError("lagging", "This reader was too slow."))

    def _laggards(self) -> list[Subscription]:
        self._floor = min((reader._taken for reader in self._subscriptions), default=self._pushed)
        limit = self._pushed - self._limits.window
        if self._floor >= limit:
            return []
        return [reader for reader in self._subscriptions if reader._taken < limit]

    async def _wait_for_room(self, seconds: float) -> bool:
        self._room = self._loop.create_future()
        alarm = self._loop.call_later(max(seconds, 0), self._settle_room, False)
        try:
            return await self._room
        finally:
            alarm.cancel()
            self._room = None

    def _settle_room(self, moved: bool) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(moved)

    def _lost(self, subscription: Subscription) -> None:
        if subscription in self._subscriptions:
            del self._subscriptions[subscription]
            self._settle_room(True)
            if not self._subscriptions:
                self._watch(self)


class Subscription:
    """One reader of a flight: an async iterator of its bytes, for one task at a time."""

    def __init__(self, flight: Flight, patience_s: float) -> None:
        self.flight = flight
        self._patience = patience_s
        self._next = 0  # index of the next chunk, counted from the flight's first
        self._taken = 0  # bytes
        self._waiter: asyncio.Future[None] | None = None
        self._closed: UpstreamError | None = None

    async def head(self) -> Head | Failed:
        """The response head; `Failed` if the flight ended before it had one."""
        while self.flight._head is None:
            await self.flight._hear()
        return self.flight._head

    async def result(self) -> Result:
        """How the flight ended. Does not ask for the bytes to be read first."""
        while self.flight._result is None:
            await self.flight._hear()
        return self.flight._result

    def rest(self) -> bytes | None:
        """All that was not read of an answer that has come to its end; None where it has not."""
        result = self.flight._result
        if self._closed is not None or result is None or isinstance(result, Failed):
            return None
        unread = self.flight._dropped + len(self.flight._chunks) - self._next
        return b"".join([self._take() for _ in range(unread)])

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> bytes:
        """The next chunk. Raises `UpstreamError` if the flight failed or this reader is out."""
        if not await self._ready():
            raise StopAsyncIteration
        return self._take()

    async def read(self, limit: int) -> bytes:
        """What has come since the last call, about `limit` bytes at most; empty at the end.

        Raises as the iterator does.
        """
        if not await self._ready():
            return b""
        parts = [self._take()]
        size = len(parts[0])
        while size < limit and self._has_chunk():
            parts.append(self._take())
            size += len(parts[-1])
        return b"".join(parts)

    def leave(self) -> None:
        """Stop reading. Idempotent. The flight of the last one who leaves is abandoned."""
        self._close(_LEFT)

    def _close(self, error: UpstreamError) -> None:
        if self._closed is None:
            self._closed = error
            self._wake()
            self.flight._lost(self)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _has_chunk(self) -> bool:
        return self._next < self.flight._dropped + len(self.flight._chunks)

    def _take(self) -> bytes:
        flight = self.flight
        chunk = flight._chunks[self._next - flight._dropped]
        self._next += 1
        self._taken += len(chunk)
        flight._settle_room(True)
        return chunk

    async def _ready(self) -> bool:
        """Wait for a chunk. False at the end of the answer."""
        flight = self.flight
        while True:
            if self._closed is not None:
                raise copy_of(self._closed)
            if self._has_chunk():
                return True
            result = flight._result
            if isinstance(result, Failed):
                raise copy_of(result.error)
            if result is not None:
                return False
            self._waiter = flight._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None

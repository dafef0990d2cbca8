"""One connection and the exchange that it carries: writing, reading, silence, backpressure."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Final, Protocol, cast

from trivet.middleware.http_client.errors import Garbage, HttpError, Lost, Silent, Unsendable
from trivet.middleware.http_client.request import Origin, Request
from trivet.middleware.http_client.response import Incoming
from trivet.middleware.http_client.tls import ended_on_purpose

HELD: Final = 256 << 10
"""Body bytes that may wait for the consumer before the socket is read no further."""
SLICE: Final = 256 << 10
"""Larger bodies are written in such pieces, so that one of them does not hold the loop."""
_JOINED: Final = 64 << 10
"""Bodies up to this size leave in one write with their head."""
_TICK: Final = 0.001


class Owner(Protocol):
    """Told of a connection's life."""

    def opened(self, connection: Connection, /) -> None:
        """It can be used."""
        ...

    def lost(self, connection: Connection, /) -> None:
        """It is over."""
        ...


class Connection(asyncio.Protocol):
    """Carries one exchange at a time: `ask`, then `take` and `more` until `incoming` is complete.

    Every failure closes it. `ask` and `more` raise `HttpError`; a cancelled one closes it too.
    """

    def __init__(self, origin: Origin, owner: Owner) -> None:
        self.origin = origin
        self.incoming: Incoming | None = None
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._failure: HttpError | None = None
        self._reader: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None
        self._reading_paused = self._writing_paused = False
        self._sent = False
        self._silence = 0.0
        self._alarm: asyncio.TimerHandle | None = None
        self._heard = 0.0

    @property
    def open(self) -> bool:
        """It has a peer, as far as is known."""
        return self._transport is not None and not self._transport.is_closing()

    @property
    def reusable(self) -> bool:
        """The exchange went to its end on both sides, and another one may follow."""
        incoming, transport = self.incoming, self._transport
        return (
            self._sent
            and incoming is not None
            and incoming.complete
            and incoming.reusable
            and transport is not None
            and not transport.is_closing()
            and not transport.get_write_buffer_size()
        )

    async def ask(self, request: Request, silence: float) -> Incoming:
        """Write a request and wait for the head of its response.

        `silence` is how many seconds the peer may say and take nothing; 0 is no limit. A head
        that comes early ends the writing: the connection then carries no other exchange. Raises
        `HttpError`, and whatever the body's iterator raises.
        """
        incoming = self.incoming = Incoming(bodiless=request.bodiless)
        self._sent = False
        self._arm(silence)
        try:
            body = request.body
            if isinstance(body, bytes) and len(body) <= _JOINED:
                self._put(request.head + body if body else request.head)
                self._sent = True
            else:
                await self._write(request)
            while not incoming.headed:
                await self._wait()
        except BaseException:
            self.abort()
            raise
        return incoming

    def take(self) -> bytes:
        """The body bytes that have come; empty if there are none now."""
        assert self.incoming is not None
        data = self.incoming.take()
        if self._reading_paused:
            self._resume_reading()
        return data

    async def more(self) -> None:
        """Wait until there is something to `take`, or the response is complete."""
        try:
            await self._wait()
        except BaseException:
            self.abort()
            raise

    def rest(self) -> None:
        """End the exchange, and keep the connection for another one."""
        self.incoming = None
        if self._reading_paused:
            self._resume_reading()

    def abort(self) -> None:
        """Close it at once. Idempotent."""
        if self._transport is not None:
            self._transport.abort()

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._owner.opened(self)

    def data_received(self, data: bytes) -> None:
        incoming = self.incoming
        if incoming is None or incoming.complete:
            # Nobody asked for this: what follows could be taken for the next answer.
            self.abort()
            return
        self._heard = self._loop.time()
        try:
            incoming.feed(data)
        except Garbage as error:
            self._fail(error)
            return
        if incoming.held > HELD and not incoming.complete and not self._reading_paused:
            self._pause_reading()
        if incoming.headed:
            self._wake()

    def eof_received(self) -> None:
        incoming = self.incoming
        if incoming is None or incoming.complete:
            return
        try:
            incoming.end(truncated=not ended_on_purpose(self._transport))
        except Lost as error:
            self._fail(error)
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        incoming = self.incoming
        if incoming is not None and not incoming.complete and self._failure is None:
            self._failure = Lost(begun=incoming.begun)
        elif incoming is None and self._failure is None:
            self._failure = Lost(begun=False)
        self._transport = None
        self._reading_paused = False
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        self._wake()
        self._owner.lost(self)

    def pause_writing(self) -> None:
        self._writing_paused = True

    def resume_writing(self) -> None:
        self._writing_paused = False
        self._heard = self._loop.time()
        _settle(self._writer)

    # Writing.

    async def _write(self, request: Request) -> None:
        body = request.body
        self._put(request.head)
        if isinstance(body, bytes):
            self._sent = await self._put_all(body)
        else:
            self._sent = await self._send_iterated(body, request.length)
        self._heard = self._loop.time()

    async def _send_iterated(self, body: AsyncIterator[bytes], length: int | None) -> bool:
        """The iterator runs in a task of its own, so that an early response is seen."""
        sender = self._loop.create_task(self._pump(body, length))
        sender.add_done_callback(lambda _: _settle(self._reader))
        incoming = self.incoming
        assert incoming is not None
        try:
            while not (sender.done() or incoming.headed):
                await self._wait()
        finally:
            if not sender.done():
                sender.cancel()
                # The iterator must not be in use when its owner goes on.
                await asyncio.wait([sender])
            failure = None if sender.cancelled() else sender.exception()
        if failure is not None:
            raise failure
        return not sender.cancelled() and sender.result()

    async def _pump(self, body: AsyncIterator[bytes], length: int | None) -> bool:
        try:
            return await self._send_chunks(body, length)
        finally:
            if isinstance(body, AsyncGenerator):
                await body.aclose()

    async def _send_chunks(self, body: AsyncIterator[bytes], length: int | None) -> bool:
        left = length
        async for chunk in body:
            if not chunk:
                continue
            if left is None:
                self._put(b"%x\r\n" % len(chunk))
            else:
                left -= len(chunk)
                if left < 0:
                    raise Unsendable("its body is longer than its content-length")
            if not await self._put_all(chunk):
                return False
            if left is None:
                self._put(b"\r\n")
            elif not left:
                # All that was announced: the response need not wait for the iterator's end.
                return True
        if left is None:
            self._put(b"0\r\n\r\n")
        elif left:
            raise Unsendable("its body is shorter than its content-length")
        return True

    async def _put_all(self, data: bytes) -> bool:
        """Write in slices as the peer takes them. False if a head or a failure ended it."""
        view = memoryview(data)
        incoming = self.incoming
        assert incoming is not None
        for start in range(0, len(data), SLICE):
            self._put(view[start : start + SLICE])
            await self._drain(incoming)
            if incoming.headed or self._failure is not None:
                return start + SLICE >= len(data)
            if start:
                await asyncio.sleep(0)
        return True

    async def _drain(self, incoming: Incoming) -> None:
        while self._writing_paused and not incoming.headed and self._failure is None:
            self._heard = self._loop.time()
            self._writer = self._loop.create_future()
            try:
                await self._writer
            finally:
                self._writer = None

    def _put(self, data: bytes | memoryview) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def _pause_reading(self) -> None:
        if self._transport is not None:
            self._reading_paused = True
            self._transport.pause_reading()

    def _resume_reading(self) -> None:
        self._reading_paused = False
        if self.open:
            cast(asyncio.Transport, self._transport).resume_reading()

    # Waiting.

    async def _wait(self) -> None:
        if self._failure is not None:
            raise self._failure
        self._heard = self._loop.time()
        self._reader = self._loop.create_future()
        try:
            await self._reader
        finally:
            self._reader = None

    def _wake(self) -> None:
        _settle(self._reader)
        _settle(self._writer)

    def _fail(self, error: HttpError) -> None:
        if self._failure is None:
            self._failure = error
        self.abort()
        self._wake()

    def _arm(self, silence: float) -> None:
        """One timer serves all exchanges; when it rings it looks how long the silence was."""
        if self._alarm is not None and silence != self._silence:
            self._alarm.cancel()
            self._alarm = None
        self._silence = silence
        if self._alarm is None and silence:
            self._alarm = self._loop.call_later(silence, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        if self.incoming is None:
            return
        # It is the peer's turn while it takes no bytes, and once it has the whole request.
        awaited = self._writer is not None or (self._reader is not None and self._sent)
        quiet = self._loop.time() - self._heard if awaited else 0.0
        left = self._silence - quiet
        if left > 0:
            self._alarm = self._loop.call_later(max(left, _TICK), self._ring)
        else:
            self._fail(Silent("nothing came"))


def _settle(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)

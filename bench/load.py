"""A closed-loop HTTP/1.1 load generator: prebuilt bytes over kept connections.

Each connection sends its next request when the last answer is complete. One request costs this
process about a tenth of what it costs a raw uvicorn app, so it can share a machine with one.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import cast
from urllib.parse import urlsplit

Watch = Callable[[float, bytes], None]
"""Called with the time (`perf_counter`) and the bytes of each piece that arrives."""


class BenchError(Exception):
    """What was measured is not what was meant to be measured."""


@dataclass(slots=True)
class Sample:
    """What one round saw. Times are seconds."""

    latencies: list[float] = field(default_factory=list)
    first_bytes: list[float] = field(default_factory=list)
    """From the request's sending to the body's first byte."""
    seconds: float = 0.0

    @property
    def count(self) -> int:
        """Answers that were complete."""
        return len(self.latencies)


@dataclass(frozen=True, slots=True)
class Job:
    """What is sent where, and what every answer has to look like."""

    url: str
    requests: Iterator[bytes]
    connections: int = 1
    marker: bytes = b""
    """Must be in every answer's head (lower case)."""
    body_bytes: int | None = None
    """Size that every body must have; not checked for chunked answers."""
    watch: Watch | None = None


class _Round:
    """State that the connections of one round share."""

    def __init__(self, job: Job, seconds: float, limit: int | None) -> None:
        self.job = job
        self.sample = Sample()
        self.left = limit
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.open = job.connections
        self.deadline = time.perf_counter() + seconds

    def next(self) -> bytes | None:
        """The next request, or None when the round is over."""
        if self.left is not None:
            if self.left == 0:
                return None
            self.left -= 1
        elif time.perf_counter() >= self.deadline:
            return None
        return next(self.job.requests, None)

    def leave(self) -> None:
        self.open -= 1
        if self.open == 0 and not self.done.done():
            self.done.set_result(None)

    def fail(self, why: str) -> None:
        if not self.done.done():
            self.done.set_exception(BenchError(f"{self.job.url}: {why}"))


class _Connection(asyncio.Protocol):
    def __init__(self, round_: _Round) -> None:
        self._round = round_
        self._watch = round_.job.watch
        self._transport: asyncio.Transport | None = None
        self._head = b""
        self._need: int | None = None
        self._chunked = False
        self._tail = b""
        self._in_body = False
        self._first = self._sent = 0.0
        self._finished = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not registered as asyncio's.
        self._transport = cast(asyncio.Transport, transport)

    def start(self) -> None:
        """Send the first request."""
        self._send()

    def _send(self) -> None:
        assert self._transport is not None
        request = self._round.next()
        if request is None:
            self._finished = True
            self._transport.close()
            self._round.leave()
            return
        self._head, self._in_body, self._first = b"", False, 0.0
        # Before the write: a server on this very core may have answered when it returns.
        self._sent = time.perf_counter()
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter()
        if self._watch is not None:
            self._watch(now, data)
        if not self._in_body:
            data = self._head + data
            end = data.find(b"\r\n\r\n")
            if end < 0:
                self._head = data
                return
            if not self._read_head(data[:end]):
                return
            data = data[end + 4 :]
        if data and not self._first:
            self._first = now
        if self._is_complete(data):
            self._round.sample.latencies.append(now - self._sent)
            self._round.sample.first_bytes.append((self._first or now) - self._sent)
            self._send()

    def _read_head(self, head: bytes) -> bool:
        job = self._round.job
        lower = head.lower()
        if not head.startswith(b"HTTP/1.1 200") or job.marker not in lower:
            self._round.fail(f"unexpected answer:\n{head.decode('latin-1')}")
            return False
        self._in_body = True
        self._chunked = b"transfer-encoding: chunked" in lower
        self._tail = b""
        if not self._chunked:
            at = lower.index(b"content-length:") + 15
            stop = lower.find(b"\r", at)
            self._need = int(lower[at:] if stop < 0 else lower[at:stop])
            if job.body_bytes is not None and self._need != job.body_bytes:
                self._round.fail(f"a body of {self._need} bytes, not {job.body_bytes}")
                return False
        return True

    def _is_complete(self, data: bytes) -> bool:
        if self._chunked:
            self._tail = (self._tail + data)[-7:]
            return self._tail.endswith(b"\r\n0\r\n\r\n")
        assert self._need is not None
        self._need -= len(data)
        return self._need == 0

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._finished:
            self._round.fail(f"the connection broke off ({exc})")


async def run(job: Job, *, seconds: float = 0.0, count: int | None = None) -> Sample:
    """One round: for `seconds`, or `count` requests in all.

    Raises `BenchError` for any answer that is not 200, not marked, or not whole.
    """
    loop = asyncio.get_running_loop()
    parts = urlsplit(job.url)
    host, port = parts.hostname or "127.0.0.1", parts.port or 80
    round_ = _Round(job, seconds, count)
    made = []
    for _ in range(job.connections):
        _, connection = await loop.create_connection(lambda: _Connection(round_), host, port)
        made.append(connection)
    # A collection would look like a slow answer.
    gc.collect()
    gc.disable()
    try:
        began = time.perf_counter()
        round_.deadline = began + seconds
        for connection in made:
            connection.start()
        await round_.done
        round_.sample.seconds = time.perf_counter() - began
    finally:
        gc.enable()
    return round_.sample

"""A thread that does blocking work for an event loop, many jobs at a time."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from trivet.errors import StoreError

_J = TypeVar("_J")
_Outcome = Any


class Lane(Generic[_J]):
    """Runs jobs in a thread of its own: those of one event-loop tick cross over together.

    `work(jobs)` runs in the thread and returns one outcome for each job; an outcome that is an
    exception is raised to whoever waits for that job. `idle` runs in the thread every `idle_s`
    seconds at least, and after the last job when the lane closes.
    """

    def __init__(
        self,
        work: Callable[[Sequence[_J]], Sequence[_Outcome]],
        idle: Callable[[bool], None],
        *,
        idle_s: float,
        most: int,
    ) -> None:
        self._work = work
        self._idle = idle
        self._idle_s = idle_s
        self._most = most
        self._queue: queue.SimpleQueue[list[tuple[_J, asyncio.Future[Any]]] | None]
        self._queue = queue.SimpleQueue()
        self._tick: list[tuple[_J, asyncio.Future[Any]]] = []
        self._waiting = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closed = False

    def do(self, job: _J) -> asyncio.Future[Any]:
        """The outcome of `job`, to be awaited on the loop that calls.

        Raises `StoreError` when the lane is closed, or when `most` jobs wait already.
        """
        if self._closed:
            raise StoreError("closed")
        if self._waiting >= self._most:
            raise StoreError("busy", f"busy: {self._waiting} calls are waiting")
        loop = self._loop
        if loop is None:
            loop = self._start()
        future = loop.create_future()
        self._waiting += 1
        self._tick.append((job, future))
        if len(self._tick) == 1:
            loop.call_soon(self._send)
        return future

    async def close(self) -> None:
        """Finish what waits, then end the thread. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self._send()
        self._queue.put(None)
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)

    def _start(self) -> asyncio.AbstractEventLoop:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, name="trivet-store", daemon=True)
        self._thread.start()
        return self._loop

    def _send(self) -> None:
        if self._tick:
            self._queue.put(self._tick)
            self._tick = []

    def _run(self) -> None:
        while True:
            batch: list[tuple[_J, asyncio.Future[Any]]] | None = []
            try:
                batch = self._queue.get(timeout=self._idle_s)
                while batch is not None and not self._queue.empty():
                    more = self._queue.get()
                    if more is None:
                        self._queue.put(None)
                        break
                    batch.extend(more)
            except queue.Empty:
                pass
            if batch:
                self._hand_back(batch, self._work([job for job, _ in batch]))
            else:
                self._idle(batch is None)
            if batch is None:
                return

    def _hand_back(
        self, batch: list[tuple[_J, asyncio.Future[Any]]], outcomes: Sequence[_Outcome]
    ) -> None:
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(self._deliver, batch, outcomes)
        except RuntimeError:
            return  # The loop is closed: nobody waits.

    def _deliver(
        self, batch: list[tuple[_J, asyncio.Future[Any]]], outcomes: Sequence[_Outcome]
    ) -> None:
        self._waiting -= len(batch)
        for (_, future), outcome in zip(batch, outcomes, strict=True):
            if future.done():
                continue
            if isinstance(outcome, BaseException):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)

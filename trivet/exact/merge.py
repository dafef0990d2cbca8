"""Reads of one event-loop tick, sent as one MGET.

redis-py spends most of a GET on the round trip through its own layers: merged, a key costs a
tenth.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from trivet.errors import StoreError

_IN_FLIGHT = 2
"""MGETs of one group at a time: while they are on their way, the next one fills."""
_MOST_NAMES = 256

_V = TypeVar("_V")


class MergedReads(Generic[_V]):
    """Collects names by group (a cluster slot, or one group for all) and reads them together."""

    def __init__(self, read: Callable[[Sequence[bytes]], Awaitable[Sequence[_V]]]) -> None:
        self._read = read
        self._wanted: dict[bytes, dict[bytes, list[asyncio.Future[_V]]]] = {}
        self._flying: defaultdict[bytes, int] = defaultdict(int)
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    def get(self, group: bytes, name: bytes) -> asyncio.Future[_V]:
        """The value of `name`. The future raises what `read` raises."""
        if self._closed:
            raise StoreError("closed")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[_V] = loop.create_future()
        names = self._wanted.get(group)
        if names is None:
            names = self._wanted[group] = {}
            if self._flying.get(group, 0) < _IN_FLIGHT:
                loop.call_soon(self._send, group)
        names.setdefault(name, []).append(future)
        return future

    async def close(self) -> None:
        """End what is on its way: who waits for it gets `StoreError("closed")`."""
        self._closed = True
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for names in self._wanted.values():
            _fail(names, StoreError("closed"))
        self._wanted.clear()

    def _send(self, group: bytes) -> None:
        names = self._wanted.pop(group, {})
        # Who ran out of time has gone: nobody else's read should be longer for it.
        wanted = {
            name: waiters
            for name, waiters in names.items()
            if not all(waiter.done() for waiter in waiters)
        }
        items = list(wanted.items())
        if len(items) > _MOST_NAMES:
            self._wanted[group] = dict(items[_MOST_NAMES:])
            wanted = dict(items[:_MOST_NAMES])
        if wanted:
            self._flying[group] += 1
            task = asyncio.get_running_loop().create_task(self._fetch(group, wanted))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _fetch(self, group: bytes, names: dict[bytes, list[asyncio.Future[_V]]]) -> None:
        try:
            values = await self._read(list(names))
            for value, waiters in zip(values, names.values(), strict=True):
                for waiter in waiters:
                    if not waiter.done():
                        waiter.set_result(value)
        except StoreError as error:
            _fail(names, error)
        except Exception as error:  # Whatever a client library raises, those who wait are told.
            _fail(names, StoreError("internal", f"internal: {type(error).__name__}: {error}"))
        finally:
            _fail(names, StoreError("closed"))
            self._flying[group] -= 1
            if not self._flying[group]:
                del self._flying[group]
            if group in self._wanted and not self._closed:
                self._send(group)


def _fail(names: dict[bytes, list[asyncio.Future[_V]]], error: StoreError) -> None:
    for waiters in names.values():
        for waiter in waiters:
            if not waiter.done():
                waiter.set_exception(error)

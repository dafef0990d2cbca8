"""One ordered line of commands to Redis, with a breaker.

What is submitted in one tick of the event loop, or while a round trip is under way, goes out as
one pipeline: many claims cost one round trip, and a process's commands arrive in its own order.
A Redis that fails, refuses writes, or takes longer than the limit is left alone until a probe
succeeds; until then a command costs nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from redis.asyncio import Redis, RedisCluster
from redis.exceptions import RedisError

from trivet.errors import StoreError

_FIRST_PAUSE_S, _LAST_PAUSE_S = 0.1, 2.0

Command = tuple[str | bytes | int, ...]


class RedisLine:
    """Sends commands through `client`; `changed(up, reason)` is told when Redis goes or comes.

    `limit_s` is what a round trip may take. `probe` is the name of a key that is written to see
    whether Redis takes writes.
    """

    def __init__(
        self,
        client: Redis | RedisCluster,
        changed: Callable[[bool, str], None],
        *,
        probe: str,
        limit_s: float,
    ) -> None:
        self._client = client
        self._changed = changed
        self._probe_key = probe
        self._limit_s = limit_s
        self._up: bool | None = None
        self._waiting: list[tuple[Command, asyncio.Future[Any]]] = []
        self._wanted = asyncio.Event()
        self._settled = asyncio.Event()
        self._sent: float | None = None
        self._closing = False
        self._task: asyncio.Task[None] | None = None

    @property
    def up(self) -> bool:
        """Redis answered last time."""
        return self._up is True

    @property
    def behind_s(self) -> float:
        """How long the round trip that is under way has taken so far."""
        return 0.0 if self._sent is None else asyncio.get_running_loop().time() - self._sent

    async def start(self, wait_s: float) -> None:
        """Begin; waits for the first contact `wait_s` at most."""
        self._task = asyncio.create_task(self._run(), name="trivet-redis-line")
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._settled.wait()

    async def close(self) -> None:
        """Send what is waiting, then stop. Idempotent."""
        if self._task is None:
            return
        if self.up:
            await asyncio.wait({self.submit("PING")}, timeout=self._limit_s)
        # redis-py may swallow a cancellation while it waits for a frozen server.
        self._closing = True
        self._wanted.set()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._task = None
        self._up = False
        self._refuse_waiting()

    def submit(self, *command: str | bytes | int) -> asyncio.Future[Any]:
        """Send a command. The future holds its reply, or a `StoreError` as a value."""
        reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self._up:
            self._waiting.append((command, reply))
            self._wanted.set()
        else:
            reply.set_result(StoreError("down", "Redis is down"))
        return reply

    async def _run(self) -> None:
        pause = _FIRST_PAUSE_S
        while not self._closing:
            if self._up:
                await self._wanted.wait()
                await self._flush()
                pause = _FIRST_PAUSE_S
            elif isinstance(found := await self._probe_anew(), StoreError):
                self._trip(found.reason)
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LAST_PAUSE_S)
            else:
                self._become(True, "")

    async def _flush(self) -> None:
        self._wanted.clear()
        batch, self._waiting = self._waiting, []
        self._sent = asyncio.get_running_loop().time()
        replies = await self._execute([command for command, _ in batch])
        self._sent = None
        for (_, reply), value in zip(batch, replies, strict=True):
            if not reply.done():
                reply.set_result(value)
        failed = next((value for value in replies if isinstance(value, StoreError)), None)
        if failed is not None and failed.reason == "refused":
            # One command may be wrong or forbidden; a server that takes no writes is of no use.
            failed = await self._probe()
        if isinstance(failed, StoreError):
            self._trip(failed.reason)

    async def _probe(self) -> Any:
        return (await self._execute([("SET", self._probe_key, b"1", "PX", 1000)]))[0]

    async def _probe_anew(self) -> Any:
        """Probe without the idle connections: those to a server that is gone fail once each.

        A cluster's client drops them by itself.
        """
        if isinstance(self._client, Redis):
            with suppress(RedisError, OSError):
                await self._client.connection_pool.disconnect(inuse_connections=False)
        return await self._probe()

    async def _execute(self, commands: list[Command]) -> list[Any]:
        try:
            async with asyncio.timeout(self._limit_s):
                pipeline = self._client.pipeline(transaction=False)
                for command in commands:
                    pipeline.execute_command(*command)
                replies = await pipeline.execute(raise_on_error=False)
        except TimeoutError:
            return [StoreError("timeout", "Redis did not answer in time")] * len(commands)
        except Exception as error:  # whatever the library raises, Redis is of no use now
            return [StoreError("unreachable", str(error))] * len(commands)
        return [
            StoreError("refused", str(reply)) if isinstance(reply, Exception) else reply
            for reply in replies
        ]

    def _trip(self, reason: str) -> None:
        self._become(False, reason)
        self._refuse_waiting()

    def _refuse_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        for _, reply in waiting:
            if not reply.done():
                reply.set_result(StoreError("down", "Redis is down"))

    def _become(self, up: bool, reason: str) -> None:
        self._settled.set()
        if up != self._up:
            self._up = up
            self._changed(up, reason)

"""Worker processes, a raw upstream, and what holds them, for the fleet tests."""

from __future__ import annotations

import asyncio
import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from flight_worker import KEY, TENANT

from trivet.exact.fleet import Fleet, Lead, Remote
from trivet.exact.flight import Flight, FlightLimits, Head
from trivet.telemetry import Event, ignore

LIMITS = FlightLimits(1 << 20, 1 << 20)
HEAD = Head(200, ((b"a", b"b"), (b"", b"")), True)
SCRIPT = Path(__file__).with_name("flight_worker.py")


class RawUpstream:
    """Accepts connections, counts them, and writes what the test says."""

    def __init__(self) -> None:
        self.writers: list[asyncio.StreamWriter] = []
        self.arrived = asyncio.Condition()
        self.lost = 0

    async def start(self) -> int:
        self.server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return int(self.server.sockets[0].getsockname()[1])

    @property
    def calls(self) -> int:
        return len(self.writers)

    async def wait_for(self, calls: int) -> None:
        async with self.arrived:
            async with asyncio.timeout(20):
                await self.arrived.wait_for(lambda: self.calls >= calls)

    async def write(self, call: int, data: bytes, *, end: bool = False) -> None:
        writer = self.writers[call]
        writer.write(data)
        await writer.drain()
        if end:
            writer.close()

    async def close(self) -> None:
        for writer in self.writers:
            writer.close()
        self.server.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with self.arrived:
            self.writers.append(writer)
            self.arrived.notify_all()
        await reader.read()
        self.lost += 1
        writer.close()


class Worker:
    """One `flight_worker.py`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    @classmethod
    async def start(cls, where: dict[str, Any], port: int) -> Worker:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(SCRIPT),
            json.dumps(where),
            str(port),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        worker = cls(process)
        assert await worker.report() == "ready"
        return worker

    def ask(self, what: int | str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{what}\n".encode())

    async def report(self) -> Any:
        assert self.process.stdout is not None
        async with asyncio.timeout(40):
            return json.loads(await self.process.stdout.readline())

    async def close(self) -> None:
        """Let the worker end by itself; it has to leave nothing behind."""
        self.ask("close")
        assert await self.report() == {"left": [], "flights": 0}
        async with asyncio.timeout(10):
            await self.process.wait()

    async def kill(self) -> None:
        self.process.kill()
        await self.process.wait()

    async def end(self) -> None:
        """Kill it if it still runs."""
        if self.process.returncode is None:
            await self.kill()


class FleetRig(ABC):
    """An upstream, and workers and members of a fleet; all are closed at the end."""

    lapse_s: float
    """Seconds after which a claim of somebody who is gone counts no more."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self.stack = stack
        self.upstream = RawUpstream()

    async def start(self) -> None:
        self.port = await self.upstream.start()
        self.stack.push_async_callback(self.upstream.close)

    async def worker(self) -> Worker:
        """A process of its own."""
        worker = await Worker.start(self.where(), self.port)
        self.stack.push_async_callback(worker.end)
        return worker

    @abstractmethod
    def where(self) -> dict[str, Any]:
        """How a worker finds the others."""

    @abstractmethod
    async def member(self, observe: Callable[[Event], None] = ignore) -> Fleet:
        """A started fleet of this process."""


def flight(attempt: int = 0, tenant: str = TENANT) -> Flight:
    """A flight that all workers know."""
    return Flight(KEY, tenant, LIMITS, attempt=attempt)


async def until(true: Callable[[], Any]) -> None:
    """Wait until something holds."""
    async with asyncio.timeout(10):
        while not true():
            await asyncio.sleep(0.005)


async def pair(
    rig: FleetRig, observe: Callable[[Event], None] = ignore
) -> tuple[Flight, Flight, Remote]:
    """A led flight, a local copy of it, and the follower's claim."""
    leader, follower = await rig.member(), await rig.member(observe)
    led, copy = flight(), flight()
    assert isinstance(await leader.claim(led), Lead)
    claim = await follower.claim(copy)
    assert isinstance(claim, Remote)
    return led, copy, claim

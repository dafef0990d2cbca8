"""Workers are started again, ever slower, and told to drain once. The processes are made up."""

from __future__ import annotations

import asyncio
import signal
import socket
from pathlib import Path
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from trivet.middleware.running import supervisor as module
from trivet.middleware.running.config import ServerConfig
from trivet.middleware.running.supervisor import Supervisor

CONFIG = ServerConfig.model_validate(
    {"upstreams": [{"name": "a", "base_url": "http://a"}], "drain": 0}
)


class Process:
    """Runs until a signal that it obeys; or is over at once."""

    def __init__(self, over: bool = False, deaf: bool = False) -> None:
        self.ended = asyncio.Event()
        self.deaf = deaf
        self.signals: list[int] = []
        if over:
            self.ended.set()

    async def wait(self) -> int:
        await self.ended.wait()
        return 1

    def send_signal(self, number: int) -> None:
        if self.ended.is_set():
            raise ProcessLookupError
        self.signals.append(number)
        if not self.deaf or number == signal.SIGKILL:
            self.ended.set()

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


class Made(Supervisor):
    """Spawns what the test gives, and the last of it for ever."""

    def __init__(self, *given: Process | OSError) -> None:
        super().__init__(CONFIG, b"s")
        self.given = list(given)
        self.spawned = 0

    async def _spawn(self, number: int, data: socket.socket, hub: Path) -> Any:
        self.spawned += 1
        given = self.given.pop(0) if len(self.given) > 1 else self.given[0]
        if isinstance(given, OSError):
            raise given
        return given

    def keep(self) -> asyncio.Task[None]:
        return asyncio.create_task(self._keep(0, cast(socket.socket, None), Path()))


async def until(condition: Any) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.001)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FIRST_PAUSE_S", 0.02)
    monkeypatch.setattr(module, "_LONGEST_PAUSE_S", 0.1)


async def test_a_worker_that_ends_is_started_again_ever_slower() -> None:
    lives = Process()
    made = Made(*[Process(over=True) for _ in range(5)], lives)
    with capture_logs() as logs:
        keeper = made.keep()
        await until(lambda: made.spawned == 6)
        await made_drained(made, keeper)
    assert [line["event"] for line in logs] == ["worker-ended"] * 5
    assert [line["restart_in_s"] for line in logs] == [0.02, 0.04, 0.08, 0.1, 0.1]
    assert lives.signals == [signal.SIGTERM]


async def made_drained(made: Made, *keepers: asyncio.Task[None]) -> None:
    made._stopping = True
    async with asyncio.timeout(5):
        await made._drain(list(keepers))


async def test_a_worker_that_cannot_be_started_is_tried_again() -> None:
    made = Made(OSError(11, "no process is left"), Process())
    with capture_logs() as logs:
        keeper = made.keep()
        await until(lambda: made.spawned == 2)
        await made_drained(made, keeper)
    assert logs[0]["event"] == "worker-not-started"
    assert keeper.done()


async def test_workers_that_have_ended_already_do_not_stop_the_draining_of_others() -> None:
    over, lives = Process(over=True), Process()
    made = Made(lives)
    keeper = made.keep()
    await until(lambda: made.spawned == 1)
    made._processes.add(cast(Any, over))
    await made_drained(made, keeper)
    assert lives.signals == [signal.SIGTERM]


async def test_a_worker_that_does_not_drain_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    real = asyncio.wait

    async def impatient(tasks: Any, timeout: float | None = None) -> Any:
        return await real(tasks, timeout=0.02 if timeout else None)

    deaf = Process(deaf=True)
    made = Made(deaf)
    keeper = made.keep()
    await until(lambda: made.spawned == 1)
    monkeypatch.setattr(asyncio, "wait", impatient)
    await made_drained(made, keeper)
    assert deaf.signals == [signal.SIGTERM, signal.SIGKILL]


async def test_a_worker_that_started_during_the_draining_drains_too() -> None:
    late = Process()
    made = Made(late)
    begun = asyncio.Event()

    async def slow(number: int, data: socket.socket, hub: Path) -> Any:
        begun.set()
        await asyncio.sleep(0.01)
        return late

    made._spawn = slow  # type: ignore[method-assign]
    keeper = made.keep()
    await begun.wait()
    await made_drained(made, keeper)
    assert late.signals == [signal.SIGTERM]
    assert keeper.done()

"""A caller who goes away ends the work on his request."""

from __future__ import annotations

import asyncio
from typing import Any

from trivet.middleware.arrival.watch import Watch


class Caller:
    """Sends what is left of a request, then leaves when told."""

    def __init__(self) -> None:
        self.rest = [{"type": "http.request", "body": b""}]
        self.leaves = asyncio.Event()
        self.asked = 0

    async def __call__(self) -> dict[str, Any]:
        self.asked += 1
        if self.rest:
            return self.rest.pop()
        await self.leaves.wait()
        return {"type": "http.disconnect"}


async def test_the_task_that_made_it_is_cancelled() -> None:
    caller = Caller()
    made: list[Watch] = []

    async def work() -> None:
        watch = Watch(caller)
        made.append(watch)
        watch.begin()
        await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    caller.leaves.set()
    await asyncio.wait([task], timeout=5)
    assert task.cancelled()
    assert made[0].gone


async def test_it_does_not_read_before_the_body_was_read() -> None:
    caller = Caller()
    watch = Watch(caller)
    watch.start()
    await asyncio.sleep(0)
    assert caller.asked == 0


async def test_it_reads_once_however_often_it_is_begun() -> None:
    caller = Caller()
    caller.rest.clear()
    watch = Watch(caller)
    watch.begin()
    watch.begin()
    await asyncio.sleep(0)
    assert caller.asked == 1
    watch.stop()


async def test_one_that_was_stopped_cancels_nobody() -> None:
    caller = Caller()
    watch = Watch(caller)
    watch.begin()
    await asyncio.sleep(0)
    watch.stop()
    caller.leaves.set()
    await asyncio.sleep(0.01)
    assert not watch.gone


async def test_one_that_never_began_can_be_stopped() -> None:
    Watch(Caller()).stop()

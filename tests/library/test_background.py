"""The thread for callers without an event loop."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys

import pytest

from trivet.library.background import background


async def doubled(number: int) -> int:
    await asyncio.sleep(0)
    return 2 * number


def test_there_is_one_thread_for_all() -> None:
    assert background() is background()


def test_work_runs_in_its_loop() -> None:
    assert background().run(doubled(4)) == 8


def test_what_work_raises_is_raised_here() -> None:
    async def fails() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        background().run(fails())


def test_work_that_is_not_waited_for_is_cancelled() -> None:
    cancelled: list[bool] = []

    async def waits() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    with pytest.raises(TimeoutError):
        background().run(waits(), seconds=0.01)
    assert background().run(doubled(1)) == 2
    assert cancelled == [True]


def test_a_result_that_nobody_took_is_undone() -> None:
    made: list[int] = []
    undone: list[int] = []

    async def makes() -> int:
        made.append(7)
        return 7

    for _ in range(50):
        try:
            made.remove(background().run(makes(), undone.append, seconds=-1))
        except TimeoutError:
            pass
    background().run(doubled(1))
    assert undone == made


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_fork_gets_a_thread_of_its_own() -> None:
    script = (
        "import os, sys\n"
        "from trivet.library.background import background\n"
        "async def pid(): return os.getpid()\n"
        "first = background(); assert first.run(pid()) == os.getpid()\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    mine = background()\n"
        "    ok = mine is not first and mine.run(pid()) == os.getpid()\n"
        "    sys.exit(0 if ok else 1)\n"
        "sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr

"""A step that is repeated in the background: its trouble is told once, and it can be stopped."""

from __future__ import annotations

import asyncio

import pytest

from trivet.errors import StoreError
from trivet.semantic.beat import Beat


class Step:
    """Raises what it is given, one after the other, and then nothing."""

    def __init__(self, *errors: Exception | None) -> None:
        self.errors = list(errors)
        self.told: list[tuple[str, str]] = []
        self.done = asyncio.Event()
        self.beat = Beat(self.run, 0.0, lambda state, reason: self.told.append((state, reason)))

    async def run(self) -> None:
        if not self.errors:
            self.done.set()
            return
        error = self.errors.pop(0)
        if error is not None:
            raise error


async def test_trouble_and_its_end_are_told_once() -> None:
    step = Step(None, StoreError("io"), StoreError("io"), RuntimeError("x"))
    step.beat.start("beat")
    await asyncio.wait_for(step.done.wait(), 5)
    await asyncio.sleep(0)
    await step.beat.stop()
    assert [state for state, _ in step.told] == ["up", "down", "up"]


async def test_what_nobody_expected_is_trouble_too() -> None:
    step = Step(RuntimeError("x"))
    step.beat.start("beat")
    await asyncio.wait_for(step.done.wait(), 5)
    await step.beat.stop()
    assert step.told[0] == ("down", "internal: RuntimeError: x")


@pytest.mark.parametrize("started", [True, False])
async def test_it_is_stopped_as_often_as_one_likes(started: bool) -> None:
    step = Step()
    if started:
        step.beat.start("beat")
    for _ in range(2):
        await step.beat.stop()
    assert step.told == []


async def test_a_step_that_swallows_its_cancellation_is_the_last() -> None:
    entered, steps = asyncio.Event(), []

    async def stubborn() -> None:
        steps.append(1)
        entered.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return

    beat = Beat(stubborn, 0.0, lambda state, reason: None)
    beat.start("beat")
    await entered.wait()
    await asyncio.wait_for(beat.stop(), 5)
    assert steps == [1]

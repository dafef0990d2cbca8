"""Repeats a step in the background, and tells when it begins to fail and when it works again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Literal

from trivet.errors import StoreError

State = Literal["up", "down"]


class Beat:
    """A task of one event loop. The step may raise anything: the next one may go well."""

    def __init__(
        self,
        step: Callable[[], Awaitable[None]],
        pause_s: float,
        say: Callable[[State, str], None],
    ) -> None:
        """`say` is told of each change of state, with the reason."""
        self._step = step
        self._pause_s = pause_s
        self._say = say
        self._told: State | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self, name: str) -> None:
        """Begin. Once."""
        self._task = asyncio.create_task(self._run(), name=name)

    async def stop(self) -> None:
        """End it, in the middle of a step if need be. Idempotent."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        # A client library may swallow a cancellation: the loop ends all the same.
        while self._task is not None:
            try:
                await self._step()
                self._tell("up", "")
            except StoreError as error:
                self._tell("down", str(error))
            except Exception as error:  # The next round may go well; serving goes on meanwhile.
                self._tell("down", f"internal: {type(error).__name__}: {error}")
            await asyncio.sleep(self._pause_s)

    def _tell(self, state: State, reason: str) -> None:
        if state != self._told:
            self._told = state
            self._say(state, reason)

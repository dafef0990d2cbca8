"""One thread with an event loop of its own, for callers that have none.

It is started when it is first needed, lives as long as the process, and is not there in a fork.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Final, TypeVar

_T = TypeVar("_T")
_JOIN_S: Final = 5.0


class Background:
    """The thread. Its loop closes what was opened in it, when the process ends."""

    def __init__(self) -> None:
        self._ready = threading.Event()
        self._over = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="trivet-library", daemon=True)
        self._thread.start()
        self._ready.wait()

    def run(
        self,
        work: Coroutine[Any, Any, _T],
        undo: Callable[[_T], object] | None = None,
        seconds: float | None = None,
    ) -> _T:
        """The result of `work`, or what it raises. Blocks, for `seconds` at most.

        Where the caller is interrupted meanwhile, `work` is cancelled; a result that came after
        all is handed to `undo`, in the loop.
        """
        left: list[_T] = []
        dropped = False

        def give_back() -> None:
            while left and undo is not None:
                undo(left.pop())

        async def noted() -> _T:
            result = await work
            left.append(result)
            # Set before the loop is asked to look, so that one of the two sees the other.
            if dropped:
                give_back()
            return result

        future = asyncio.run_coroutine_threadsafe(noted(), self._loop)
        try:
            return future.result(seconds)
        except BaseException:
            dropped = True
            future.cancel()
            self.call(give_back)
            raise

    def begin(self, work: Coroutine[Any, Any, _T]) -> Future[_T]:
        """Start `work`."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call(self, function: Callable[[], object]) -> None:
        """Have `function` called in the loop, soon. Once the loop is over, nothing happens."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function)

    def stop(self) -> None:
        """Close what is open there, and end the thread."""
        self.call(self._over.set)
        self._thread.join(_JOIN_S)

    def _run(self) -> None:
        asyncio.run(self._main())

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ready.set()
        await self._over.wait()


_guard = threading.Lock()
_running: Background | None = None
_left_behind: list[Background] = []
"""Of the process that was forked. Kept: what they hold belongs to it, and must not be closed."""


def background() -> Background:
    """The thread of this process."""
    global _running
    with _guard:
        if _running is None:
            _running = Background()
        return _running


def _forked() -> None:
    global _guard, _running
    _guard = threading.Lock()
    if _running is not None:
        _left_behind.append(_running)
        _running = None


def _stop() -> None:
    if _running is not None:
        _running.stop()


os.register_at_fork(after_in_child=_forked)
atexit.register(_stop)

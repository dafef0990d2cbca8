"""SIGHUP: read the policies again, once their files are at rest. It ends nothing, ever.

Not by `loop.add_signal_handler`: a loop that closes puts the default back, which ends the process.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

import structlog

from trivet.telemetry import PolicyReload

_log = structlog.get_logger("trivet")


class Reloads(Protocol):
    """What reads the policies again."""

    async def reload(self) -> PolicyReload: ...


def ignore_hangup() -> None:
    """Let SIGHUP pass without effect. Only in the main thread."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


@asynccontextmanager
async def reload_on_hangup(control: Reloads) -> AsyncIterator[None]:
    """Within the block SIGHUP reloads; after it SIGHUP is ignored. Only in the main thread.

    Signals that come while a reload is under way lead to one more.
    """
    loop = asyncio.get_running_loop()
    asked = asyncio.Event()
    following = asyncio.create_task(_follow(asked, control), name="trivet-hangup")
    signal.signal(signal.SIGHUP, lambda *_: loop.call_soon_threadsafe(asked.set))
    try:
        yield
    finally:
        ignore_hangup()
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


async def _follow(asked: asyncio.Event, control: Reloads) -> None:
    while True:
        await asked.wait()
        asked.clear()
        result = await control.reload()
        # A line also where nothing is new: who sent the signal looks for one.
        told = {} if result.ok else {"detail": result.detail}
        _log.info("policies-reread", asked_by="SIGHUP", ok=result.ok, in_use=result.version, **told)

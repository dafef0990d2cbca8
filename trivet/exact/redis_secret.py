"""Whether the processes on one Redis have one secret: each leaves a mark of its own there.

The names of entries are keyed by the secret, so a process with another one finds an empty store,
and nothing fails. The marks lie under a name that is the same for all:

    trivet:secrets   zset   `Seal.mark` by the time it was last left (s, of Redis's clock)
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final, Literal

from trivet.errors import StoreError
from trivet.exact.redis_scripts import Script
from trivet.telemetry import Observer, StoreState

STORE: Final = "redis-secret"
"""What its `StoreState` is about."""
MARKS: Final = b"trivet:secrets"
RECENT_S: Final = 300
"""An older mark says nothing about now: its process has ended, or was given another secret."""
_LEFT_S = 60.0
_KEPT_S = 30 * 86400
_SHOWN = 3

# ARGV: the mark, how long marks are kept and how long they are recent, in seconds. Returns the
# recent marks, the latest first.
LEAVE = Script(
    """
local now = tonumber(redis.call('TIME')[1])
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[2])
return redis.call('ZREVRANGEBYSCORE', KEYS[1], '+inf', now - ARGV[3], 'LIMIT', 0, 16)
"""
)


class SecretMark:
    """Leaves this process's mark, once a minute at most, and tells of others' on a change."""

    def __init__(
        self,
        script: Callable[..., Awaitable[Any]],
        mark: str,
        observer: Observer,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`script` runs a script on keys and arguments."""
        self._script = script
        self._mark = mark.encode()
        self._observe = observer
        self._clock = clock
        self._left = float("-inf")
        self._state: Literal["up", "degraded"] = "up"

    async def leave(self) -> None:
        """Leave it. Where Redis does not take it, nothing is known and nothing is told."""
        now = self._clock()
        if now - self._left < _LEFT_S:
            return
        self._left = now
        with suppress(StoreError):
            recent = await self._script(LEAVE, (MARKS,), self._mark, _KEPT_S, RECENT_S)
            self._tell([mark for mark in recent if mark != self._mark])

    def _tell(self, others: list[bytes]) -> None:
        state: Literal["up", "degraded"] = "degraded" if others else "up"
        if state == self._state:
            return
        self._state = state
        reason = ""
        if others:
            shown = ", ".join(mark.decode("ascii", "replace")[:16] for mark in others[:_SHOWN])
            reason = f"another secret is in use there (mark {shown}; ours {self._mark.decode()})"
        self._observe(StoreState(STORE, state, reason))

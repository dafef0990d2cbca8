"""Warm, then fan out: the first request of a new prefix goes alone, its siblings wait for it.

A prefix can be read once the answer to the request that writes it begins. So of twenty requests
that are sent at once, each would write it. Here the first goes ahead, and those of the same tenant
that have the same prefix wait until its first byte is there, it fails, or the policy's
`prefix.fan_out.wait` is over. Nothing is shared between tenants, nor between processes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Final

_MOST: Final = 10_000
"""Prefixes on their way. Beyond, requests go at once."""

Ahead = asyncio.Future[bool]
"""Done when whoever leads has a first byte (true) or failed (false)."""


class Lead:
    """A request on its way; others may wait for what it writes. Leaving the context without
    `began` frees them too: one of them leads then."""

    def __init__(self, ahead: dict[bytes, Ahead], keys: Sequence[bytes]) -> None:
        self._ahead = ahead
        self._done: Ahead = asyncio.get_running_loop().create_future()
        room = len(ahead) < _MOST
        self._keys = [
            key for key in keys if room and ahead.setdefault(key, self._done) is self._done
        ]

    def began(self) -> None:
        """The answer begins: what was written can be read."""
        self._end(readable=True)

    def __enter__(self) -> Lead:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end(readable=False)

    def _end(self, *, readable: bool) -> None:
        for key in self._keys:
            self._ahead.pop(key, None)
        self._keys = []
        if not self._done.done():
            self._done.set_result(readable)


class FanOut:
    """The prefixes that are being written. For one event loop."""

    def __init__(self) -> None:
        self._ahead: dict[bytes, Ahead] = {}

    def __len__(self) -> int:
        return len(self._ahead)

    async def enter(self, path: Sequence[bytes], new: Sequence[bytes], wait: float) -> Lead:
        """Go, after whoever writes the longest prefix on the `path` now; `wait` seconds at most.

        Each key names a prefix of one tenant at one upstream, the longest last. `new` are those
        that this request writes: others wait for them. Of several that waited for one that failed,
        the first leads and the others wait on.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait
        while (left := deadline - loop.time()) > 0:
            key = next((key for key in reversed(path) if key in self._ahead), None)
            if key is None:
                break
            ahead = self._ahead[key]
            done, _ = await asyncio.wait((ahead,), timeout=left)
            if done and ahead.result():
                known = path[: path.index(key) + 1]
                return Lead(self._ahead, [one for one in new if one not in known])
        return Lead(self._ahead, new)

"""The tombstones of Redis tenants as one process knows them: a read costs a lookup in memory.

Every purge leaves a token of its own beside the tombstones. The MGET that brings an entry brings
the token too: while it is the one that came with the tombstones known here, they are all there are.
"""

from __future__ import annotations

import math
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from trivet.exact.merge import MergedReads

_MOST_TENANTS = 10_000
_MOST_NAMES = 100_000
_LABEL = re.compile(rb"(?:[0-9a-f]{32})?")


@dataclass(frozen=True, slots=True)
class _Known:
    token: bytes | None
    at: Mapping[bytes, float]


class KnownPurges:
    """What `fetch(prefixes)`, the tenants' hashes `t`, said last. Forgets them when too many."""

    def __init__(
        self, fetch: Callable[[Sequence[bytes]], Awaitable[Sequence[Mapping[bytes, bytes]]]]
    ) -> None:
        self._fetch = fetch
        # Those who miss tombstones at once wait for one answer.
        self._reads = MergedReads(self._learn)
        self._known: dict[bytes, _Known] = {}
        self._names = 0

    def of(self, prefix: bytes, token: bytes | None) -> Mapping[bytes, float] | None:
        """Label to time of its last purge as of `token`; None where that has to be read."""
        known = self._known.get(prefix)
        return None if known is None or known.token != token else known.at

    async def read(self, group: bytes, prefix: bytes) -> Mapping[bytes, float]:
        """The same as of now, read with others of the group. Raises what `fetch` raises."""
        return (await self._reads.get(group, prefix)).at

    async def close(self) -> None:
        """End what is on its way."""
        await self._reads.close()

    async def _learn(self, prefixes: Sequence[bytes]) -> Sequence[_Known]:
        found = await self._fetch(prefixes)
        return [self._keep(*item) for item in zip(prefixes, found, strict=True)]

    def _keep(self, prefix: bytes, fields: Mapping[bytes, bytes]) -> _Known:
        at = {
            bytes.fromhex(name.decode()): _time(value)
            for name, value in fields.items()
            if _LABEL.fullmatch(name)
        }
        known = _Known(fields.get(b"token"), at)
        if len(self._known) >= _MOST_TENANTS or self._names > _MOST_NAMES:
            self._known.clear()
            self._names = 0
        before = self._known.get(prefix)
        self._names += len(at) - (0 if before is None else len(before.at))
        self._known[prefix] = known
        return known


def _time(text: bytes) -> float:
    """A tombstone's time; one that somebody made unreadable stands for all times."""
    try:
        at = float(text)
    except ValueError:
        return math.inf
    return math.inf if math.isnan(at) else at

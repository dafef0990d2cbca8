"""When tenants were purged last, for calls that are under way: what is asked after a purge joins
none that began before it.

The mark goes into what flights are compared by. Purges of other processes come with the store's
feed: processes compare alike again once they have heard of the purge.
"""

from __future__ import annotations

import struct
import time
from collections import OrderedDict
from collections.abc import Callable

_RECENT_S = 3600.0
"""Longer than any call. Older purges are no matter: processes need not remember them alike."""
_MOST = 16384
_TIME = struct.Struct(">d")


class PurgeTimes:
    """The latest purge of each tenant, of whatever label, as far as this process knows."""

    __slots__ = ("_at", "_clock", "_floor", "_missed", "_missed_at")

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._at: OrderedDict[str, float] = OrderedDict()
        self._floor = 0.0
        """Holds for everybody: purges beyond `_MOST` that are not remembered one by one."""
        self._missed, self._missed_at = 0, 0.0

    def add(self, tenant: str, at: float) -> None:
        """A purge. One of an earlier time changes nothing."""
        self._at[tenant] = max(at, self._at.pop(tenant, at))
        if len(self._at) > _MOST:
            _, oldest = self._at.popitem(last=False)
            self._floor = max(self._floor, oldest)

    def miss(self, cursor: int) -> None:
        """Nobody knows who was purged before the feed's place `cursor`."""
        self._missed, self._missed_at = cursor, self._clock()

    def mark(self, tenant: str) -> bytes:
        """What tells calls for the tenant from those that began before its latest purge; empty
        where there was none of late."""
        if not self._at and not self._missed_at:
            return b""
        oldest = self._clock() - _RECENT_S
        at = max(self._at.get(tenant, 0.0), self._floor)
        missed = self._missed_at >= oldest
        if at < oldest and not missed:
            self._at.pop(tenant, None)
            return b""
        # A cursor has no bound: SQLite's grows by 2^63 with each file that is replaced.
        place = b"%d" % self._missed if missed else b""
        return _TIME.pack(at if at >= oldest else 0.0) + place

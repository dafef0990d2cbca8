"""What was purged: tombstones that late entries meet, and the feed that other processes read."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Protocol

import orjson

from trivet.exact.entry import Entry
from trivet.exact.seal import Seal
from trivet.exact.store import ExactStore
from trivet.messages import ExactKey

FEED_KEPT = 4096
"""Purges that a store's feed remembers. A reader further behind is told to forget everything."""
_FEED_CONTEXT = b"trivet/feed/1"
_NEVER = float("-inf")


@dataclass(frozen=True, slots=True)
class Purge:
    """Forget the tenant's entries created at or before `at`: one label's, one key's, or all."""

    tenant: str
    label: str | None
    at: float
    key: ExactKey | None = None


@dataclass(frozen=True, slots=True)
class Changes:
    """What a feed tells a reader: the purges since its cursor, and the cursor for next time.

    `purges` is None when the feed does not reach back that far: anything may have been purged.
    """

    cursor: int
    purges: tuple[Purge, ...] | None


class SharedStore(ExactStore, Protocol):
    """A store that several processes share, and that tells each what the others purged."""

    async def changes(self, cursor: int) -> Changes:
        """Purges and deletes since `cursor`; 0 is the beginning."""
        ...


class Tombstones:
    """Remembers purges, so that an entry created before one is not stored after it.

    Bounded: beyond `limit` the oldest purges merge into one floor that holds for everybody. What
    that may refuse is an entry created before all the purges that are still remembered.
    """

    __slots__ = ("_at", "_floor", "_limit")

    def __init__(self, limit: int = 16384) -> None:
        self._limit = limit
        self._at: OrderedDict[tuple[str, str | None], float] = OrderedDict()
        self._floor = _NEVER

    def __len__(self) -> int:
        return len(self._at)

    def add(self, tenant: str, label: str | None, at: float) -> None:
        """Remember a purge. One of an earlier time changes nothing."""
        name = (tenant, label)
        self._at[name] = max(at, self._at.pop(name, at))
        if len(self._at) > self._limit:
            _, oldest = self._at.popitem(last=False)
            self._floor = max(self._floor, oldest)

    def cover(self, entry: Entry) -> bool:
        """Whether a purge forbids storing `entry`."""
        if not self._at:
            return False
        created = entry.created
        if created <= self._floor or created <= self._at.get((entry.tenant, None), _NEVER):
            return True
        return any(created <= self._at.get((entry.tenant, label), _NEVER) for label in entry.labels)


def seal_purge(purge: Purge, seal: Seal) -> bytes:
    """The purge as a feed keeps it."""
    key = purge.key.hex() if purge.key is not None else None
    return seal.seal("", _FEED_CONTEXT, orjson.dumps([purge.tenant, purge.label, purge.at, key]))


def unseal_purge(sealed: bytes, seal: Seal) -> Purge | None:
    """A feed's record, or None if this secret did not write it."""
    data = seal.unseal("", _FEED_CONTEXT, sealed)
    if data is None:
        return None
    tenant, label, at, key = orjson.loads(data)
    return Purge(tenant, label, at, None if key is None else ExactKey(bytes.fromhex(key)))

"""What was purged: tombstones that late entries meet, and the feed that other processes read.

Somebody who can write the store, and has not the secret, can put a copy of an entry back after a
purge. A store therefore holds what it reads against its tombstones, by the tenant, the labels and
the time that are sealed in the entry: a copy is a miss as long as the tombstone is there. What
follows a feed also knows the purges by itself, sealed as they were, and refuses what a store would
serve whose tombstones were deleted or altered.

What nothing here prevents, for lack of state that only Trivet can write: with its tombstone and
its place in the feed rolled back too, a copy is served to a process that starts afterwards. And a
copy of an answer that was replaced, evicted or deleted, not purged, is good until it expires.
"""

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
    rest: tuple[Purge, ...] = ()
    """Where `purges` is None: those that the feed still holds."""


class SharedStore(ExactStore, Protocol):
    """A store that several processes share, and that tells each what the others purged."""

    async def changes(self, cursor: int) -> Changes:
        """Purges and deletes since `cursor`; 0 is the beginning."""
        ...


def key_label(key: ExactKey) -> str:
    """The label that every entry has without carrying it: a purge of one key goes by it."""
    return f"key:{key.hex()}"


class Tombstones:
    """Remembers purges, so that an entry created before one is neither stored after it nor served.

    Bounded: beyond `limit` the oldest purges merge into one floor that holds for everybody. What
    that may refuse to store is an entry created before all the purges that are still remembered.
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
        return bool(self._at) and (entry.created <= self._floor or self.name(entry))

    def name(self, entry: Entry) -> bool:
        """Whether a purge of the entry's tenant or of one of its labels forbids serving it.

        The floor does not count here: it would take unpurged entries of long ago from everybody.
        """
        if not self._at:
            return False
        created = entry.created
        return any(
            created <= self._at.get((entry.tenant, name), _NEVER)
            for name in (None, key_label(entry.key), *entry.labels)
        )


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

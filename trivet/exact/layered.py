"""Memory in front of a store that several processes share."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from trivet.errors import StoreError
from trivet.exact.entry import Entry
from trivet.exact.memory import MemoryStore
from trivet.exact.purges import Purge, SharedStore
from trivet.exact.store import Bound, StoreStats
from trivet.messages import ExactKey
from trivet.telemetry import EntryRejected, Observer, ignore

_DEAF = 3
"""Failed polls after which readiness tells of it."""
POLL_S = 1.0
"""How long after a purge in another process this one may still answer from its memory."""


class LayeredStore:
    """`front` answers first; `back` is asked on a miss, and fills the front.

    Copies keep the entry's own expiry. A task follows the back's feed of purges: what they name is
    not served, even where the back has lost its tombstone (see `purges`). While the back is in
    trouble, the front serves what it holds, and a miss raises the back's `StoreError`.
    """

    def __init__(
        self,
        front: MemoryStore,
        back: SharedStore,
        *,
        poll_s: float = POLL_S,
        observer: Observer = ignore,
    ) -> None:
        self.name = back.name
        self.purge_times = front.purge_times
        self._front = front
        self._back = back
        self._poll_s = poll_s
        self._observe = observer
        self._cursor = 0
        self._epoch = 0
        """Counts what was taken out of the front: a read that began before may bring it back."""
        self._follower: asyncio.Task[None] | None = None
        self._deaf = 0
        """Polls of the feed that failed in a row."""

    async def get(self, tenant: str, key: ExactKey) -> Entry | None:
        """See `ExactStore.get`."""
        entry = self._front.peek(tenant, key)
        if entry is not None:
            return entry
        if self._follower is None:
            self._follow()
        epoch = self._epoch
        entry = await self._back.get(tenant, key)
        if entry is None:
            return None
        if self._front.purged(entry):
            self._observe(EntryRejected(self.name, "purged"))
            with suppress(StoreError):  # It is a miss, whether the back takes a write or not.
                await self._back.delete(tenant, key)
            return None
        if epoch == self._epoch:
            self._front.fill(entry)
        return entry

    def peek(self, tenant: str, key: ExactKey) -> Entry | None:
        """What the front holds; None says nothing about the back."""
        return self._front.peek(tenant, key)

    async def put(self, entry: Entry, bound: Bound) -> str:
        """See `ExactStore.put`. This process is served from the front at once.

        Either side may know of a purge that has not come to the other yet.
        """
        if self._follower is None:
            self._follow()
        if await self._front.put(entry, bound) == "purged":
            return "purged"
        refused = await self._back.put(entry, bound)
        if refused:
            self._epoch += 1
            self._front.forget(entry.tenant, entry.key)
        return refused or ("purged" if self._front.purged(entry) else "")

    async def delete(self, tenant: str, key: ExactKey) -> None:
        """See `ExactStore.delete`."""
        self._epoch += 1
        self._front.forget(tenant, key)
        await self._back.delete(tenant, key)
        self._epoch += 1
        self._front.forget(tenant, key)

    async def purge(self, tenant: str, label: str | None, at: float) -> int:
        """See `ExactStore.purge`. Returns what the back deleted.

        Raises `StoreError` where the back was not reached: other processes may then go on to
        answer, and the purge has to be asked for again.
        """
        self._epoch += 1
        await self._front.purge(tenant, label, at)
        return await self._back.purge(tenant, label, at)

    async def usage(self, tenant: str | None) -> StoreStats:
        """What the back holds."""
        return await self._back.usage(tenant)

    async def ready(self) -> None:
        """Whether the back answers, and purges of other processes are heard."""
        await self._back.ready()
        if self._deaf >= _DEAF:
            raise StoreError("feed", "feed: the purges of other processes cannot be read")

    async def close(self) -> None:
        """See `ExactStore.close`."""
        follower, self._follower = self._follower, None
        if follower is not None:
            follower.cancel()
            with suppress(asyncio.CancelledError):
                await follower
        await self._back.close()
        await self._front.close()

    async def follow(self) -> None:
        """Take over what other processes purged since the last time. Raises `StoreError`."""
        before = self._cursor
        changes = await self._back.changes(before)
        self._cursor = changes.cursor
        if changes.purges is None:
            if before:
                self.purge_times.miss(changes.cursor)
            self._epoch += 1
            self._front.clear()
        for purge in changes.rest if changes.purges is None else changes.purges:
            self._epoch += 1
            await self._apply(purge)

    async def _apply(self, purge: Purge) -> None:
        if purge.key is None:
            await self._front.purge(purge.tenant, purge.label, purge.at)
        else:
            self._front.forget(purge.tenant, purge.key)

    def _follow(self) -> None:
        self._follower = asyncio.get_running_loop().create_task(self._following())

    async def _following(self) -> None:
        # A client library may swallow a cancellation: the loop ends all the same.
        while self._follower is not None:
            try:
                await self.follow()
                self._deaf = 0
            except StoreError:
                self._deaf += 1
            await asyncio.sleep(self._poll_s)

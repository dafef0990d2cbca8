"""A store that processes share, without memory in front: its feed is followed all the same."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from trivet.errors import StoreError
from trivet.exact.guard import Budget, GuardedStore
from trivet.exact.layered import POLL_S
from trivet.exact.purge_times import PurgeTimes
from trivet.exact.purges import SharedStore
from trivet.telemetry import Observer


class FollowedStore(GuardedStore):
    """A `GuardedStore` that knows when tenants were purged, in this process and in others."""

    def __init__(
        self, inner: SharedStore, budget: Budget, observer: Observer, *, poll_s: float = POLL_S
    ) -> None:
        super().__init__(inner, budget, observer)
        self._poll_s = poll_s
        self._times = PurgeTimes()
        self._cursor = 0
        self._follower: asyncio.Task[None] | None = None

    @property
    def purge_times(self) -> PurgeTimes:
        """When tenants were purged. Only within a running event loop."""
        if self._follower is None:
            self._follower = asyncio.get_running_loop().create_task(self._following())
        return self._times

    async def purge(self, tenant: str, label: str | None, at: float) -> int:
        """See `ExactStore.purge`."""
        self._times.add(tenant, at)
        return await super().purge(tenant, label, at)

    async def follow(self) -> None:
        """Take over what other processes purged since the last time. Raises `StoreError`."""
        before = self._cursor
        changes = await self.changes(before)
        self._cursor = changes.cursor
        if changes.purges is None and before:
            self._times.miss(changes.cursor)
        for purge in changes.rest if changes.purges is None else changes.purges:
            if purge.key is None:
                self._times.add(purge.tenant, purge.at)

    async def close(self) -> None:
        """See `ExactStore.close`."""
        follower, self._follower = self._follower, None
        if follower is not None:
            follower.cancel()
            await asyncio.gather(follower, return_exceptions=True)
        await super().close()

    async def _following(self) -> None:
        # A client library may swallow a cancellation: the loop ends all the same.
        while self._follower is not None:
            with suppress(StoreError):
                await self.follow()
            await asyncio.sleep(self._poll_s)

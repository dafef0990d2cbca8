"""What the exact tier asks of a store. Memory, SQLite and Redis answer it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from trivet.exact.entry import Entry
from trivet.exact.purge_times import PurgeTimes
from trivet.messages import ExactKey


class Bound(NamedTuple):
    """How much one tenant may keep in a store; None is no bound of its own."""

    entries: int | None = None
    bytes: int | None = None


@dataclass(frozen=True, slots=True)
class StoreStats:
    """What a store holds. `entries` and `bytes` are None where counting would cost too much."""

    name: str
    entries: int | None
    bytes: int | None
    evictions: int


class ExactStore(Protocol):
    """A keyed store of entries.

    Every method may raise `StoreError` and nothing else. A `get` that finds an entry which was
    altered, is of another format, cannot be read, or was purged returns None, deletes it, and emits
    `EntryRejected`. Expired entries are returned until `stale_until`: the tier decides.
    Implementations bound themselves by bytes and by entries, in all and by tenant.
    """

    name: str

    async def get(self, tenant: str, key: ExactKey) -> Entry | None:
        """The entry under `key`, or None."""
        ...

    async def put(self, entry: Entry, bound: Bound) -> str:
        """Store `entry`; a later one under the same key replaces an earlier one.

        Returns why it was not stored, or an empty string: `purged` (by a purge since it was
        created), `too-large` (for a bound), `expired`.
        """
        ...

    async def delete(self, tenant: str, key: ExactKey) -> None:
        """Forget one entry."""
        ...

    async def purge(self, tenant: str, label: str | None, at: float) -> int:
        """Forget the tenant's entries (those with `label`, or all) created at or before `at`.

        Durable: an entry created before `at` that is put later is not served either. Returns how
        many entries were deleted now.
        """
        ...

    async def usage(self, tenant: str | None) -> StoreStats:
        """What the store holds, in all or of one tenant."""
        ...

    async def ready(self) -> None:
        """Return if the store answers; raise `StoreError` if it does not."""
        ...

    async def close(self) -> None:
        """Release files, sockets and threads. Idempotent."""
        ...


class ServingStore(ExactStore, Protocol):
    """A store that a process serves from."""

    @property
    def purge_times(self) -> PurgeTimes:
        """When tenants were purged, as far as this process has heard. Only within a running event
        loop."""
        ...

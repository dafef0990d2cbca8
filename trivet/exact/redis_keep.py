"""Redis housekeeping in the background: what was read lately, and the bound over all tenants."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from trivet.errors import StoreError
from trivet.exact import redis_scripts as scripts
from trivet.exact.store import Bound

_TICK_S = 2.0
_SWEEP_S = 10
"""Seconds between two sweeps of the whole fleet: one process at a time does it."""
_REGISTERED_S = 60.0
_MAX_TOUCHED = 4096
_CHUNK = 500


class Housekeeping:
    """Notes reads for the eviction order, prunes what expired, trims the largest tenants.

    Runs as a task from the first entry on. Trouble ends a round, and the next one tries again.
    """

    def __init__(
        self,
        command: Callable[..., Awaitable[Any]],
        script: Callable[..., Awaitable[Any]],
        shared: bytes,
        most: Bound,
        clock: Callable[[], float],
        also: Callable[[], Awaitable[None]],
    ) -> None:
        """`also` is done in each round too."""
        self._command = command
        self._script = script
        self._shared = shared
        self._most = most
        self._clock = clock
        self._also = also
        self._touched: dict[bytes, set[bytes]] = {}
        self._count = 0
        self._registered: dict[bytes, float] = {}
        self._task: asyncio.Task[None] | None = None

    def touch(self, prefix: bytes, name: bytes) -> None:
        """Note that an entry was read. Beyond a few thousand a round, reads go unnoted."""
        if self._count < _MAX_TOUCHED:
            self._touched.setdefault(prefix, set()).add(name)
            self._count += 1
        self._start()

    async def register(self, prefix: bytes) -> None:
        """Make sure that sweeps find the tenant."""
        self._start()
        now = self._clock()
        if abs(now - self._registered.get(prefix, float("-inf"))) < _REGISTERED_S:
            return
        if len(self._registered) > 10_000:
            self._registered.clear()
        self._registered[prefix] = now
        try:
            await self._command("SADD", self._shared + b"tenants", prefix)
        except (StoreError, asyncio.CancelledError):
            self._registered.pop(prefix, None)
            raise

    async def totals(self) -> tuple[int | None, int | None]:
        """Entries and bytes over all tenants at the last sweep; None before the first one."""
        found = await self._command("GET", self._shared + b"totals")
        if found is None:
            return None, None
        entries, held = found.split()
        return int(entries), int(held)

    async def check_policy(self) -> None:
        """Raise `StoreError("policy")` if Redis may evict indexes and tombstones."""
        try:
            info = await self._command("INFO", "memory")
        except StoreError:
            return  # INFO may be denied, and then nobody can tell.
        found = re.search(r"maxmemory_policy\W+(allkeys-\w+)", str(info))
        if found:
            raise StoreError(
                "policy",
                f"policy: maxmemory-policy {found[1]} may evict purges:"
                " set noeviction or one of volatile-*",
            )

    async def close(self) -> None:
        """Stop. What was not noted yet is lost."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    def _start(self) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            with suppress(StoreError):
                await self._also()
                await self._flush()
                if await self._command("SET", self._shared + b"sweep", b"1", "NX", "EX", _SWEEP_S):
                    await self.sweep()

    async def _flush(self) -> None:
        touched, self._touched, self._count = self._touched, {}, 0
        now = int(self._clock() * 1000)
        for prefix, names in touched.items():
            scored = [part for name in names for part in (now, name)]
            await self._command("ZADD", prefix + b"o", "XX", *scored)

    async def sweep(self) -> None:
        """Prune every tenant, and trim the largest until all together are within the bound."""
        held: list[tuple[int, int, bytes]] = []
        tenants = await self._command("SMEMBERS", self._shared + b"tenants")
        # A sweep costs a call for each tenant: with thousands of them, sweep more rarely.
        pause = max(_SWEEP_S, len(tenants) // 20)
        await self._command("EXPIRE", self._shared + b"sweep", pause)
        for prefix in tenants:
            entries, size, _ = await self._trim(prefix, 0, 0)
            if entries:
                held.append((size, entries, prefix))
            else:
                await self._command("SREM", self._shared + b"tenants", prefix)
        entries, size = await self._level(held)
        await self._command("SET", self._shared + b"totals", f"{entries} {size}")

    async def _level(self, held: list[tuple[int, int, bytes]]) -> tuple[int, int]:
        """Trim the largest tenants. Returns what all together hold then."""
        entries = sum(item[1] for item in held)
        size = sum(item[0] for item in held)
        over = 0 if self._most.entries is None else entries - self._most.entries
        over_bytes = 0 if self._most.bytes is None else size - self._most.bytes
        held.sort(reverse=True)
        while held and (over > 0 or over_bytes > 0):
            size_before, before, prefix = held[0]
            after, size_after, evicted = await self._trim(prefix, max(0, over), max(0, over_bytes))
            over, over_bytes = over - (before - after), over_bytes - (size_before - size_after)
            entries, size = entries - (before - after), size - (size_before - size_after)
            held[0] = (size_after, after, prefix)
            if not evicted or not after:
                held.pop(0)
        return entries, size

    async def _trim(self, prefix: bytes, entries: int, size: int) -> tuple[int, int, int]:
        now = int(self._clock() * 1000)
        kept, held, evicted = await self._script(
            scripts.TRIM, (prefix + b"m",), prefix, now, _CHUNK, entries, size
        )
        return int(kept), int(held), int(evicted)

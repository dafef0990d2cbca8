"""The store that several machines share: Redis or Valkey, standalone, Sentinel or Cluster.

Reads and writes have clients of their own, so that a slow script never holds up a read. Needs
the extra `redis`.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from redis.exceptions import NoScriptError

from trivet.errors import StoreError
from trivet.exact import redis_scripts as scripts
from trivet.exact.codec import Rejected, decode, encode
from trivet.exact.entry import Entry
from trivet.exact.merge import MergedReads
from trivet.exact.opened import Opened
from trivet.exact.purges import Changes, Purge, key_label, seal_purge, unseal_purge
from trivet.exact.redis_client import Link, connect, translated
from trivet.exact.redis_keep import Housekeeping
from trivet.exact.redis_purged import KnownPurges
from trivet.exact.redis_secret import SecretMark
from trivet.exact.seal import Seal
from trivet.exact.store import Bound, StoreStats
from trivet.exact.store_url import Address
from trivet.messages import ExactKey
from trivet.telemetry import EntryRejected, Observer, ignore

_CONNECT_S = 0.25
_WRITE_S = 1.0
_WRITERS = 16
_PURGE_CHUNK = 500
"""Entries that one script deletes: a few milliseconds during which Redis serves nobody else."""
_TOMBSTONES_KEPT = 1024
_PREFIX = len(b"trivet:{}:") + 32
"""Bytes with which all names of one tenant begin."""
_NEVER = float("-inf")
_IN_THREAD = 64 << 10
"""Bytes from which an entry is packed and unpacked in a thread."""


class RedisStore:
    """Entries in Redis under names that only this secret's owner can tell.

    `get_s` is the time that a read may take; the client gives up after twice that, so that a
    frozen server does not pile up calls. Bounds of a tenant hold at each put, the bound over all
    tenants (`most`) at each sweep, every few seconds.
    """

    name = "redis"

    def __init__(
        self,
        address: Address,
        seal: Seal,
        *,
        most: Bound,
        observer: Observer = ignore,
        get_s: float = 0.05,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._seal = seal
        self._most = most
        self._observe = observer
        self._clock = clock
        self._evictions = 0
        self._one_group = address.kind != "cluster"
        self._reader = connect(
            address, timeout_s=2 * get_s, connect_s=max(_CONNECT_S, get_s), connections=64
        )
        self._writer = connect(
            address, timeout_s=_WRITE_S, connect_s=max(_CONNECT_S, get_s), connections=64
        )
        self.opened = Opened(seal)
        """Another one, that keeps something, takes its place before the first call."""
        self._reads = MergedReads(self._find)
        self._purged = KnownPurges(self._tombstones)
        self._slots = asyncio.Semaphore(_WRITERS)
        shared = b"trivet:{%b}:" % seal.pseudonym("").hex().encode()
        self._feed = (shared + b"z", shared + b"n")
        self._secret = SecretMark(self._script, seal.mark, observer)
        self._keep = Housekeeping(
            self._command, self._script, shared, most, clock, self._secret.leave
        )

    async def get(self, tenant: str, key: ExactKey) -> Entry | None:
        """See `ExactStore.get`. Reads of one event-loop tick are one MGET."""
        prefix = self._prefix(tenant)
        name = key.hex().encode()
        group = b"" if self._one_group else prefix
        raw, token = await self._reads.get(group, prefix + b"e:" + name)
        if raw is None:
            return None
        found: Entry | Rejected | None = self.opened.find(raw, tenant, key)
        if found is None:
            found = await self._decode(raw, tenant, key)
        if not isinstance(found, Rejected):
            known = self._purged.of(prefix, token)
            if known is None:
                known = await self._purged.read(group, prefix)
            if known and self._buried(known, found):
                found = Rejected("purged")
        if isinstance(found, Rejected):
            self._observe(EntryRejected(self.name, found.reason))
            with suppress(StoreError):  # It is a miss, whether Redis takes a write or not.
                await self._remove(prefix, name)
            return None
        if self._clock() >= found.stale_until:
            return None
        self._keep.touch(prefix, name)
        return found

    async def _decode(self, raw: bytes, tenant: str, key: ExactKey) -> Entry | Rejected:
        if len(raw) < _IN_THREAD:
            return self.opened.decode(raw, tenant, key)
        found = await asyncio.to_thread(decode, raw, tenant, key, self._seal)
        if isinstance(found, Entry):
            self.opened.keep(raw, found)
        return found

    async def put(self, entry: Entry, bound: Bound) -> str:
        """See `ExactStore.put`."""
        now = self._clock()
        if entry.stale_until <= now:
            return "expired"
        if entry.size < _IN_THREAD:
            value = encode(entry, self._seal)
        else:
            value = await asyncio.to_thread(encode, entry, self._seal)
        prefix = self._prefix(entry.tenant)
        bound = _tighter(bound, self._most)
        await self._keep.register(prefix)
        evicted = await self._script(
            scripts.PUT,
            (prefix + b"m",),
            prefix,
            entry.key.hex(),
            value,
            entry.size,
            repr(entry.created),
            max(1, int((entry.stale_until - now) * 1000)),
            int(now * 1000),
            -1 if bound.entries is None else bound.entries,
            -1 if bound.bytes is None else bound.bytes,
            self._label(entry.tenant, key_label(entry.key)),
            *(self._label(entry.tenant, label) for label in entry.labels),
        )
        self._evictions += max(0, evicted)
        return scripts.PUT_REFUSED.get(evicted, "")

    async def delete(self, tenant: str, key: ExactKey) -> None:
        """See `ExactStore.delete`."""
        await self._remove(self._prefix(tenant), key.hex().encode())
        await self._announce(Purge(tenant, None, self._clock(), key))

    async def purge(self, tenant: str, label: str | None, at: float) -> int:
        """See `ExactStore.purge`. Deletes a few hundred at a time, others in between.

        An entry that somebody else put back without its place in the indexes is neither found nor
        counted: the next get of it finds it purged, and deletes it.
        """
        prefix = self._prefix(tenant)
        name = b"" if label is None else self._label(tenant, label)
        given = (prefix, name, repr(at), _TOMBSTONES_KEPT, secrets.token_hex(8))
        await self._script(scripts.BURY, (prefix + b"t",), *given)
        await self._announce(Purge(tenant, label, at))
        count = 0
        while True:
            gone: int = await self._script(
                scripts.PURGE, (prefix + b"m",), prefix, name, repr(at), _PURGE_CHUNK
            )
            count += gone
            if gone < _PURGE_CHUNK:
                return count

    async def changes(self, cursor: int) -> Changes:
        """See `SharedStore.changes`."""
        last, records = await self._script(scripts.CHANGES, self._feed, cursor)
        if last == cursor:
            return Changes(last, ())
        found = [unseal_purge(record.partition(b":")[2], self._seal) for record in records]
        known = tuple(purge for purge in found if purge is not None)
        return Changes(last, known) if len(found) == last - cursor else Changes(last, None, known)

    async def usage(self, tenant: str | None) -> StoreStats:
        """See `ExactStore.usage`. The total is the last sweep's, a few seconds old."""
        if tenant is None:
            entries, held = await self._keep.totals()
            return StoreStats(self.name, entries, held, self._evictions)
        prefix = self._prefix(tenant)
        entries, held, _ = await self._script(
            scripts.TRIM, (prefix + b"m",), prefix, int(self._clock() * 1000), _PURGE_CHUNK, 0, 0
        )
        return StoreStats(self.name, entries, held, self._evictions)

    async def ready(self) -> None:
        """See `ExactStore.ready`. Also refuses a Redis that may evict what guards the entries."""
        await self._mget([self._feed[1]])
        await self._keep.check_policy()
        await self._secret.leave()

    async def close(self) -> None:
        """See `ExactStore.close`."""
        await self._keep.close()
        await self._reads.close()
        await self._purged.close()
        await self._reader.close()
        await self._writer.close()

    async def _find(self, names: Sequence[bytes]) -> Sequence[tuple[bytes | None, bytes | None]]:
        """The entries of these names, each with the token of its tenant's last purge."""
        prefixes = dict.fromkeys(name[:_PREFIX] for name in names)
        values = await self._mget([*names, *(prefix + b"w" for prefix in prefixes)])
        tokens = dict(zip(prefixes, values[len(names) :], strict=True))
        return [(value, tokens[name[:_PREFIX]]) for name, value in zip(names, values, strict=False)]

    async def _tombstones(self, prefixes: Sequence[bytes]) -> list[dict[bytes, bytes]]:
        keys = [prefix + b"t" for prefix in prefixes]
        async with translated():
            found = await _execute(self._reader, scripts.TOMBSTONES, keys)
        return [dict(zip(flat[::2], flat[1::2], strict=True)) for flat in found]

    def _buried(self, known: Mapping[bytes, float], entry: Entry) -> bool:
        """Whether the entry was purged, by the names and the time that its seal covers."""
        created, tenant = entry.created, entry.tenant
        return created <= known.get(b"", _NEVER) or any(
            created <= known.get(self._seal.pseudonym(tenant, label), _NEVER)
            for label in (key_label(entry.key), *entry.labels)
        )

    async def _mget(self, names: Sequence[bytes]) -> Sequence[bytes | None]:
        async with translated():
            values: Sequence[bytes | None] = await self._reader.execute("MGET", *names)
        return values

    async def _remove(self, prefix: bytes, name: bytes) -> None:
        await self._script(scripts.DELETE, (prefix + b"m",), prefix, name)

    async def _announce(self, purge: Purge) -> None:
        now = int(self._clock() * 1000)
        await self._script(scripts.ANNOUNCE, self._feed, seal_purge(purge, self._seal), now)

    async def _script(self, script: scripts.Script, keys: Sequence[bytes], *args: Any) -> Any:
        async with self._slots, translated():
            return await _execute(self._writer, script, keys, *args)

    async def _command(self, *args: Any) -> Any:
        async with self._slots, translated():
            return await self._writer.execute(*args)

    def _prefix(self, tenant: str) -> bytes:
        return b"trivet:{%b}:" % self._seal.pseudonym(tenant).hex().encode()

    def _label(self, tenant: str, label: str) -> bytes:
        return self._seal.pseudonym(tenant, label).hex().encode()


async def _execute(link: Link, script: scripts.Script, keys: Sequence[bytes], *args: Any) -> Any:
    given = (len(keys), *keys, *args)
    try:
        return await link.execute("EVALSHA", script.sha, *given)
    except NoScriptError:
        return await link.execute("EVAL", script.text, *given)


def _tighter(one: Bound, other: Bound) -> Bound:
    def least(a: int | None, b: int | None) -> int | None:
        return b if a is None else a if b is None else min(a, b)

    return Bound(least(one.entries, other.entries), least(one.bytes, other.bytes))

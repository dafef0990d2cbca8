"""Running counts in a Redis or Valkey that several machines share. Needs the extra `redis`.

A hash holds the sealed rows, a sorted set the order in which they were written; one script at a
time writes both, and only where the rows still are what the new ones were made from. All keys share
one hash slot.
"""

from __future__ import annotations

import asyncio
import math
import secrets
from collections.abc import Mapping
from random import uniform
from typing import Any

from redis import exceptions as errors

from trivet.errors import StoreError
from trivet.semantic.monitor_codec import RowCodec
from trivet.semantic.monitor_store import MOST, REMEMBERED_S, Changed, Update
from trivet.semantic.records import Sealer
from trivet.semantic.redis_records import Link
from trivet.semantic.tally import Cell
from trivet.telemetry import EntryRejected, Observer, ignore

_DONE_S = 3600
"""Seconds for which a batch is remembered."""
_TRIES = 40
"""Each writer that was first makes the others try again: more than there are at once."""
_PAUSE_S = 0.02

# KEYS[1]: where the token lies; the other keys begin with it. ARGV: the batch and names. Returns
# whether the batch was stored already, and the rows.
_GET = """
local base, found = KEYS[1], {}
for at = 2, #ARGV do found[at - 1] = redis.call('HGET', base .. ':h', ARGV[at]) end
return {redis.call('EXISTS', base .. ':b:' .. ARGV[1]), found}
"""
# ARGV: a new token, the batch, its seconds, and for each row its name, what it was ('' for none)
# and what it will be. Returns 0, and has done nothing, where a row was written meanwhile, and 2
# where the batch was stored already.
_SET = """
local base = KEYS[1]
if redis.call('EXISTS', base .. ':b:' .. ARGV[2]) == 1 then return 2 end
for at = 4, #ARGV, 3 do
    if (redis.call('HGET', base .. ':h', ARGV[at]) or '') ~= ARGV[at + 1] then return 0 end
end
redis.call('SET', base, ARGV[1], 'NX')
redis.call('SET', base .. ':b:' .. ARGV[2], 1, 'EX', ARGV[3])
for at = 4, #ARGV, 3 do
    redis.call('HSET', base .. ':h', ARGV[at], ARGV[at + 2])
    redis.call('ZADD', base .. ':z', redis.call('INCR', base .. ':n'), ARGV[at])
end
return 1
"""
# ARGV: a new token, the cursor, how many at most. What is numbered beyond the count is nobody's.
_CHANGES = """
local base = KEYS[1]
redis.call('SET', base, ARGV[1], 'NX')
local last = redis.call('GET', base .. ':n') or 0
local found = redis.call('ZRANGEBYSCORE', base .. ':z', '(' .. ARGV[2], last, 'WITHSCORES',
    'LIMIT', 0, ARGV[3])
local rows = {}
for i = 1, #found, 2 do
    rows[#rows + 1] = {found[i], found[i + 1], redis.call('HGET', base .. ':h', found[i])}
end
return {redis.call('GET', base), rows}
"""


class RedisMonitorStore:
    """A `MonitorStore` over a link, which it closes."""

    name = "redis"

    def __init__(self, link: Link, sealer: Sealer, observer: Observer = ignore) -> None:
        self._link = link
        self._codec = RowCodec(sealer)
        self._observe = observer
        self._key = f"trivet:{{{sealer.pseudonym('').hex()}}}:monitor"
        self._writing = asyncio.Lock()

    def name_of(self, cell: Cell) -> str:
        """See `MonitorStore.name_of`."""
        return self._codec.name(cell)

    async def add(self, batch: str, updates: Mapping[Cell, Update]) -> None:
        """See `MonitorStore.add`."""
        await self._add(batch, updates, _DONE_S)

    async def add_once(self, name: str, cell: Cell, update: Update) -> bool:
        """See `MonitorStore.add_once`."""
        return await self._add(f"once:{name}", {cell: update}, REMEMBERED_S)

    async def changes(self, cursor: int) -> Changed:
        """See `MonitorStore.changes`."""
        token, found = await self._eval(_CHANGES, secrets.token_hex(8), cursor, MOST)
        rows, bad = self._codec.unseal_all(
            (name.decode("utf-8", "replace"), sealed) for name, _, sealed in found
        )
        for reason in bad.values():
            self._observe(EntryRejected("semantic-monitor", reason))
        # A number with a fraction is nobody's either: with the next whole one it is passed by.
        last = math.ceil(float(found[-1][1])) if found else cursor
        more = len(found) == MOST
        return Changed(token.decode("utf-8", "replace"), last, rows, more, frozenset(bad))

    async def close(self) -> None:
        """See `MonitorStore.close`."""
        await self._link.close()

    async def _add(self, batch: str, updates: Mapping[Cell, Update], done_s: int) -> bool:
        """Whether the batch was stored now. It is remembered for `done_s` seconds."""
        names = [self._codec.name(cell) for cell in updates]
        async with self._writing:
            for _ in range(_TRIES):
                done, found = await self._eval(_GET, batch, *names)
                if done:
                    return False
                rows = self._rows(updates, found)
                stored = await self._eval(_SET, secrets.token_hex(8), batch, done_s, *rows)
                if stored:
                    return bool(stored == 1)
                await asyncio.sleep(uniform(0, _PAUSE_S))
        raise StoreError("busy", "busy: other processes wrote the same rows again and again")

    def _rows(self, updates: Mapping[Cell, Update], found: list[Any]) -> list[str | bytes]:
        """For each cell its name, its row before, and its row after."""
        flat: list[str | bytes] = []
        for (cell, update), before in zip(updates.items(), found, strict=True):
            after = self._codec.sealed_after(cell, before, update)
            flat += [self._codec.name(cell), before or b"", after]
        return flat

    async def _eval(self, script: str, *arguments: Any) -> Any:
        try:
            return await self._link.execute("EVAL", script, 1, self._key, *arguments)
        except (errors.RedisError, errors.RedisClusterException, OSError) as error:
            reason = "timeout" if isinstance(error, errors.TimeoutError) else "redis"
            told = f"{reason}: {type(error).__name__}: {str(error)[:200]}"
            raise StoreError(reason, told) from error

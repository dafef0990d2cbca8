"""Running counts in a Redis or Valkey that several machines share. Needs the extra `redis`.

A hash holds the cells, a sorted set the order in which they were written; one script at a time
writes both. All keys share one hash slot.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from typing import Any

from redis import exceptions as errors

from trivet.errors import StoreError
from trivet.semantic.monitor_store import MOST, Changed, Row, Update, cell_name, named_cell
from trivet.semantic.redis_records import Link
from trivet.semantic.tally import Cell, Counts

_DONE_S = 3600
"""Seconds for which a batch is remembered."""
_FIELDS = len(Counts._fields)

# KEYS[1]: where the token lies; the other keys begin with it. ARGV: a new token, the batch, its
# seconds, and for each cell its name, known counts, further counts, and why it is closed.
_ADD = f"""
local base = KEYS[1]
redis.call('SET', base, ARGV[1], 'NX')
if not redis.call('SET', base .. ':b:' .. ARGV[2], 1, 'NX', 'EX', ARGV[3]) then return 0 end
for at = 4, #ARGV, {2 * _FIELDS + 2} do
    local name = ARGV[at]
    local row = redis.call('HGET', base .. ':h', name)
    local counts, closed = {{}}, ''
    if row then
        local found = cjson.decode(row)
        for i = 1, {_FIELDS} do counts[i] = found[i] end
        closed = found[{_FIELDS + 1}]
    else
        for i = 1, {_FIELDS} do counts[i] = tonumber(ARGV[at + i]) end
    end
    for i = 1, {_FIELDS} do counts[i] = counts[i] + tonumber(ARGV[at + {_FIELDS} + i]) end
    if closed == '' then closed = ARGV[at + {2 * _FIELDS + 1}] end
    counts[{_FIELDS + 1}] = closed
    redis.call('HSET', base .. ':h', name, cjson.encode(counts))
    redis.call('ZADD', base .. ':z', redis.call('INCR', base .. ':n'), name)
end
return 1
"""
# ARGV: a new token, the cursor, how many at most.
_CHANGES = """
local base = KEYS[1]
redis.call('SET', base, ARGV[1], 'NX')
local found = redis.call('ZRANGEBYSCORE', base .. ':z', '(' .. ARGV[2], '+inf', 'WITHSCORES',
    'LIMIT', 0, ARGV[3])
local rows = {}
for i = 1, #found, 2 do
    rows[#rows + 1] = {found[i], found[i + 1], redis.call('HGET', base .. ':h', found[i])}
end
return {redis.call('GET', base), rows}
"""


class RedisMonitorStore:
    """A `MonitorStore` over a link, which it closes. `prefix` tells deployments apart."""

    name = "redis"

    def __init__(self, link: Link, prefix: str) -> None:
        self._link = link
        self._key = f"trivet:{{{prefix}}}:monitor"

    async def add(self, batch: str, updates: Mapping[Cell, Update]) -> None:
        """See `MonitorStore.add`."""
        flat: list[str | int] = []
        for cell, (known, more, closed) in updates.items():
            flat += [cell_name(cell), *known, *more, closed]
        await self._eval(_ADD, secrets.token_hex(8), batch, _DONE_S, *flat)

    async def changes(self, cursor: int) -> Changed:
        """See `MonitorStore.changes`."""
        token, found = await self._eval(_CHANGES, secrets.token_hex(8), cursor, MOST)
        rows = {}
        for name, _, value in found:
            cell, row = named_cell(name.decode("utf-8", "replace")), _row(value)
            if cell is not None and row is not None:
                rows[cell] = row
        last = int(float(found[-1][1])) if found else cursor
        return Changed(token.decode(), last, rows, len(found) == MOST)

    async def close(self) -> None:
        """See `MonitorStore.close`."""
        await self._link.close()

    async def _eval(self, script: str, *arguments: Any) -> Any:
        try:
            return await self._link.execute("EVAL", script, 1, self._key, *arguments)
        except (errors.RedisError, errors.RedisClusterException, OSError) as error:
            reason = "timeout" if isinstance(error, errors.TimeoutError) else "redis"
            told = f"{reason}: {type(error).__name__}: {str(error)[:200]}"
            raise StoreError(reason, told) from error


def _row(value: bytes | None) -> Row | None:
    try:
        *counts, closed = json.loads(value or b"")
        return Row(Counts(*(int(count) for count in counts)), str(closed))
    except (ValueError, TypeError):
        return None

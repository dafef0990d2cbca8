"""Lua that keeps the records of a deployment and their feed together in one Redis slot.

All keys begin with `P`, `trivet:{<pseudonym>}:r:`, whose braces are the hash tag. A member is
`<tenant's pseudonym>:<id>`; a name is a pseudonym of a tenant or of one of its labels.

    e:<member>  hash     r (sealed record); where Redis itself searches, also p (partition in hex),
                         e (expires), v (float32 vector)
    m           hash     member -> "size name name ...", the names of its labels
    x           zset     member by expires (s)
    c:<name>    zset     member by created (s), for its tenant and for each of its labels
    b           string   bytes held
    s           stream   <number>-0 -> k (added, confirmed, event), v (member, or a sealed event)
    n           string   number of the feed's last event. The count starts at a time, so that a
                         reader notices when everything was flushed.
    t           zset     name by the time of its last purge (s);  f  string  the rest's floor
    g           zset     member that was removed for good, by when

A Redis that is full refuses a script's first write, if that needs memory, and none after it: what
has to work then deletes `v`, which never exists, first.

Numbers of the feed have no holes: a reader whose next one is missing is too far behind.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

FEED_KEPT = 16384
"""Events that the stream remembers, about."""
TOMBSTONES_KEPT = 16384
CHUNK = 256


@dataclass(frozen=True, slots=True)
class Script:
    """A Lua script and the SHA-1 under which Redis keeps it (EVALSHA)."""

    text: str
    sha: str = field(init=False)

    def __post_init__(self) -> None:
        digest = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()
        object.__setattr__(self, "sha", digest)


_COMMON = f"""
local P = ARGV[1]
local function drop(member)
  local meta = redis.call('HGET', P..'m', member)
  if not meta then return end
  redis.call('ZREM', P..'c:'..string.match(member, '^%x+'), member)
  for name in string.gmatch(meta, ' (%x+)') do redis.call('ZREM', P..'c:'..name, member) end
  redis.call('ZREM', P..'x', member)
  redis.call('DECRBY', P..'b', string.match(meta, '^%d+'))
  redis.call('HDEL', P..'m', member)
  redis.call('DEL', P..'e:'..member)
end
local function prune(now, most)
  for _, one in ipairs(redis.call('ZRANGEBYSCORE', P..'x', '-inf', now, 'LIMIT', 0, most)) do
    drop(one)
    redis.call('ZREM', P..'x', one)
  end
end
local function begin(now)
  if redis.call('EXISTS', P..'n') == 1 then return end
  redis.call('SET', P..'n', string.format('%.0f', now * 1000000))
  redis.call('DEL', P..'s')
end
local function feed(now, kind, value)
  begin(now)
  local number = redis.call('INCR', P..'n')
  local id = string.format('%.0f-0', number)
  redis.call('XADD', P..'s', 'MAXLEN', '~', {FEED_KEPT}, id, 'k', kind, 'v', value)
end
"""

# ARGV: P, now (s), kind, member, sealed record, created, expires, tenant's bound, bound of
# entries, bound of bytes, partition, vector or '', name of a label ... Returns 1 if it was stored.
PUT = Script(
    _COMMON
    + """
local now, member, value, created = ARGV[2], ARGV[4], ARGV[5], tonumber(ARGV[6])
local most, all_most, all_bytes = tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10])
local tenant = string.match(member, '^%x+')
local names, meta = {tenant}, tostring(#value)
for i = 13, #ARGV do names[#names + 1] = ARGV[i]; meta = meta..' '..ARGV[i] end
prune(now, 20)
drop(member)
if most < 1 or #value > all_bytes or tonumber(ARGV[7]) <= tonumber(now) then return 0 end
if redis.call('ZSCORE', P..'g', member) then return 0 end
local floor = redis.call('GET', P..'f')
if floor and created <= tonumber(floor) then return 0 end
for _, name in ipairs(names) do
  local at = redis.call('ZSCORE', P..'t', name)
  if at and created <= tonumber(at) then return 0 end
end
for _ = 1, 1000 do
  local own = redis.call('ZCARD', P..'c:'..tenant)
  local full = redis.call('HLEN', P..'m') + 1 > all_most
    or tonumber(redis.call('GET', P..'b') or 0) + #value > all_bytes
  if own + 1 <= most and not full then break end
  local from = own > 0 and P..'c:'..tenant or P..'x'
  local oldest = redis.call('ZRANGE', from, 0, 0)[1]
  if not oldest then break end
  drop(oldest)
  redis.call('ZREM', from, oldest)
end
redis.call('HSET', P..'e:'..member, 'r', value)
if ARGV[12] ~= '' then
  redis.call('HSET', P..'e:'..member, 'p', ARGV[11], 'e', ARGV[7], 'v', ARGV[12])
end
redis.call('HSET', P..'m', member, meta)
redis.call('ZADD', P..'x', ARGV[7], member)
redis.call('INCRBY', P..'b', #value)
for _, name in ipairs(names) do redis.call('ZADD', P..'c:'..name, ARGV[6], member) end
feed(now, ARGV[3], member)
return 1
"""
)

# ARGV: P, now (s), member, sealed event.
REMOVE = Script(
    _COMMON
    + f"""
redis.call('DEL', P..'v')
drop(ARGV[3])
redis.call('ZADD', P..'g', ARGV[2], ARGV[3])
redis.call('ZREMRANGEBYRANK', P..'g', 0, -{TOMBSTONES_KEPT + 1})
feed(ARGV[2], 'event', ARGV[4])
"""
)

# ARGV: P, now (s), name, at (s), sealed event. Remembers a purge and tells of it.
BURY = Script(
    _COMMON
    + f"""
redis.call('DEL', P..'v')
redis.call('ZADD', P..'t', 'GT', ARGV[4], ARGV[3])
if redis.call('ZCARD', P..'t') > {TOMBSTONES_KEPT} then
  local oldest = redis.call('ZPOPMIN', P..'t')
  local floor = redis.call('GET', P..'f')
  if not floor or tonumber(oldest[2]) > tonumber(floor) then
    redis.call('SET', P..'f', oldest[2])
  end
end
feed(ARGV[2], 'event', ARGV[5])
"""
)

# ARGV: P, name, at (s), most. Deletes some of what was purged; returns how many.
PURGE = Script(
    _COMMON
    + """
local from = P..'c:'..ARGV[2]
local doomed = redis.call('ZRANGEBYSCORE', from, '-inf', ARGV[3], 'LIMIT', 0, ARGV[4])
for _, member in ipairs(doomed) do
  drop(member)
  redis.call('ZREM', from, member)
end
return #doomed
"""
)

# ARGV: P, now (s), most.
SWEEP = Script(_COMMON + "prune(ARGV[2], ARGV[3])")

# ARGV: P, now (s). Returns {last number of the feed, records}.
START = Script(
    _COMMON + "begin(ARGV[2])\nreturn {redis.call('GET', P..'n'), redis.call('HLEN', P..'m')}"
)

# ARGV: P, cursor, most. Returns {last number or false, {number, kind, member, value} ...}; a
# record that is gone has the value false, and so has what is no event of ours.
CHANGES = Script(
    """
local P, last = ARGV[1], redis.call('GET', ARGV[1]..'n')
if not last or last == ARGV[2] then return {last, {}} end
local found = {}
for _, item in ipairs(redis.call('XRANGE', P..'s', '('..ARGV[2]..'-0', '+', 'COUNT', ARGV[3])) do
  local kind, value, member = item[2][2], item[2][4] or '', ''
  if kind ~= 'event' then
    member = value
    value = redis.pcall('HGET', P..'e:'..member, 'r')
    if type(value) == 'table' then value = false end
  end
  found[#found + 1] = {item[1], kind, member, value}
end
return {last, found}
"""
)

# ARGV: P, member ... Returns the sealed record of each, or false.
FETCH = Script(
    """
local found = {}
for i = 2, #ARGV do found[i - 1] = redis.call('HGET', ARGV[1]..'e:'..ARGV[i], 'r') end
return found
"""
)

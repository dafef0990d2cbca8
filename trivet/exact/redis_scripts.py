"""Lua that keeps a tenant's entries, bounds, labels and tombstones together in one Redis slot.

A tenant's keys all begin with `P`, `trivet:{<pseudonym>}:`, which is their hash tag:

    e:<key>     string   a sealed entry; expires at its stale_until
    m           hash     key -> "size label label ..."
    n           string   bytes held
    o           zset     key by last use (ms): the order of eviction
    x           zset     key by stale_until (ms)
    l:<label>   zset     key by creation (s); `l:` itself holds all keys
    t           hash     label -> time of its last purge (s); "" is the tenant, "floor" the rest,
                         "token" what `w` says
    w           string   a token of the last purge: another one says that `t` is to be read anew

A Redis that is full refuses a script's first write, if that needs memory, and none after it: what
has to work then deletes `v`, which never exists, first.

Only e:* carries a TTL, so that `volatile-*` eviction takes entries and never what guards them.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from trivet.exact.purges import FEED_KEPT


@dataclass(frozen=True, slots=True)
class Script:
    """A Lua script and the SHA-1 under which Redis keeps it (EVALSHA)."""

    text: str
    sha: str = field(init=False)

    def __post_init__(self) -> None:
        digest = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()
        object.__setattr__(self, "sha", digest)


_DROP = """
local P = ARGV[1]
local function drop(k)
  local meta = redis.call('HGET', P..'m', k)
  if not meta then return 0 end
  for label in string.gmatch(meta, ' (%x+)') do redis.call('ZREM', P..'l:'..label, k) end
  redis.call('ZREM', P..'l:', k)
  redis.call('ZREM', P..'o', k)
  redis.call('ZREM', P..'x', k)
  redis.call('DECRBY', P..'n', string.match(meta, '^%d+'))
  redis.call('HDEL', P..'m', k)
  redis.call('DEL', P..'e:'..k)
  return 1
end
local function prune(now, most)
  local expired = redis.call('ZRANGEBYSCORE', P..'x', '-inf', now, 'LIMIT', 0, most)
  for _, k in ipairs(expired) do drop(k) end
end
local function held()
  return redis.call('HLEN', P..'m'), tonumber(redis.call('GET', P..'n') or 0)
end
"""

# ARGV: P, key, value, size, created, ttl in ms, now in ms, max entries, max bytes, the label that
# a purge of the key goes by, label ...
# A bound of -1 is none. Returns the entries evicted, or what `PUT_REFUSED` has.
PUT = Script(
    _DROP
    + """
local k, size, created, now = ARGV[2], tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[7])
local most, most_bytes = tonumber(ARGV[8]), tonumber(ARGV[9])
local names, labels = {'', 'floor', ARGV[10]}, ''
for i = 11, #ARGV do names[#names + 1] = ARGV[i]; labels = labels..' '..ARGV[i] end
for _, at in ipairs(redis.call('HMGET', P..'t', unpack(names))) do
  if at and created <= tonumber(at) then return -1 end
end
prune(now, 20)
drop(k)
local function over(entries, bytes)
  return (most >= 0 and entries + 1 > most) or (most_bytes >= 0 and bytes + size > most_bytes)
end
if over(0, 0) then return -2 end
local evicted, entries, bytes = 0, held()
while evicted < 1000 and over(entries, bytes) do
  local oldest = redis.call('ZRANGE', P..'o', 0, 0)[1]
  if not oldest then break end
  evicted = evicted + drop(oldest)
  redis.call('ZREM', P..'o', oldest)
  entries, bytes = held()
end
redis.call('SET', P..'e:'..k, ARGV[3], 'PX', ARGV[6])
redis.call('HSET', P..'m', k, ARGV[4]..labels)
redis.call('INCRBY', P..'n', ARGV[4])
redis.call('ZADD', P..'o', now, k)
redis.call('ZADD', P..'x', now + tonumber(ARGV[6]), k)
redis.call('ZADD', P..'l:', ARGV[5], k)
for i = 11, #ARGV do redis.call('ZADD', P..'l:'..ARGV[i], ARGV[5], k) end
return evicted
"""
)
PUT_REFUSED = {-1: "purged", -2: "too-large"}
"""Why `PUT` did not store the entry; see `ExactStore.put`."""

# ARGV: P, key.
DELETE = Script(_DROP + "return drop(ARGV[2]) + redis.call('DEL', P..'e:'..ARGV[2])")

# ARGV: P, label, time in s, most fields, token. Remembers a purge.
BURY = Script(
    """
redis.call('DEL', ARGV[1]..'v')
local t, at = ARGV[1]..'t', tonumber(ARGV[3])
local before = redis.call('HGET', t, ARGV[2])
if before and tonumber(before) >= at then return 0 end
redis.call('HSET', t, ARGV[2], ARGV[3], 'token', ARGV[5])
redis.call('SET', ARGV[1]..'w', ARGV[5])
if redis.call('HLEN', t) <= tonumber(ARGV[4]) then return 1 end
local all, name, oldest = redis.call('HGETALL', t), nil, nil
for i = 1, #all, 2 do
  local seen = tonumber(all[i + 1])
  local fixed = all[i] == 'floor' or all[i] == '' or all[i] == 'token'
  if not fixed and (not oldest or seen < oldest) then name, oldest = all[i], seen end
end
local floor = redis.call('HGET', t, 'floor')
if not floor or tonumber(floor) < oldest then
  redis.call('HSET', t, 'floor', redis.call('HGET', t, name))
end
redis.call('HDEL', t, name)
return 1
"""
)

# KEYS: the hash `t` of each tenant that is asked for. Returns their fields and values, in turn.
TOMBSTONES = Script(
    """
local found = {}
for i, t in ipairs(KEYS) do found[i] = redis.call('HGETALL', t) end
return found
"""
)

# ARGV: P, label, time in s, most. Deletes purged entries; returns how many.
PURGE = Script(
    _DROP
    + """
local doomed = redis.call('ZRANGEBYSCORE', P..'l:'..ARGV[2], '-inf', ARGV[3], 'LIMIT', 0, ARGV[4])
local gone = 0
for _, k in ipairs(doomed) do
  gone = gone + drop(k)
  redis.call('ZREM', P..'l:'..ARGV[2], k)
end
return gone
"""
)

# ARGV: P, now in ms, most, entries to free, bytes to free. Returns {entries, bytes, evicted}.
TRIM = Script(
    _DROP
    + """
local most, want, want_bytes = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
prune(ARGV[2], most)
local evicted, entries, bytes = 0, held()
local goal, goal_bytes = entries - want, bytes - want_bytes
while evicted < most and (entries > goal or bytes > goal_bytes) do
  local oldest = redis.call('ZRANGE', P..'o', 0, 0)[1]
  if not oldest then break end
  evicted = evicted + drop(oldest)
  redis.call('ZREM', P..'o', oldest)
  entries, bytes = held()
end
return {entries, bytes, evicted}
"""
)

# KEYS: feed zset, feed counter. ARGV: purge, now in ms. The count starts at a time, so that a
# reader notices when everything was flushed.
ANNOUNCE = Script(
    f"""
redis.call('DEL', KEYS[2]..'v')
if redis.call('EXISTS', KEYS[2]) == 0 then redis.call('SET', KEYS[2], ARGV[2]) end
local seq = redis.call('INCR', KEYS[2])
redis.call('ZADD', KEYS[1], seq, string.format('%.0f', seq)..':'..ARGV[1])
redis.call('ZREMRANGEBYRANK', KEYS[1], 0, -{FEED_KEPT + 1})
return seq
"""
)

# KEYS: feed zset, feed counter. ARGV: cursor. Returns {last number, purges after the cursor}.
CHANGES = Script(
    """
local last = tonumber(redis.call('GET', KEYS[2]) or 0)
if last == tonumber(ARGV[1]) then return {last, {}} end
return {last, redis.call('ZRANGEBYSCORE', KEYS[1], '('..ARGV[1], '+inf')}
"""
)

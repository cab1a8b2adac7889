"""What Redis does in one step for us; each script is short, touches its named keys alone, and no clock."""

from __future__ import annotations

from hashlib import sha1
from typing import Final, NamedTuple


class Script(NamedTuple):
    """A script and the name by which a server that has seen it knows it."""

    text: str
    sha: str


def _script(text: str) -> Script:
    return Script(text, sha1(text.encode(), usedforsecurity=False).hexdigest())


_ORDER: Final = """
local function order(value)
  local ok, row = pcall(cmsgpack.unpack, value)
  if ok and type(row) == 'table' and type(row[2]) == 'number' and type(row[3]) == 'number' then
    return row[2], row[3]
  end
  return -1, -1
end
"""

PUT: Final = _script(
    _ORDER
    + """
local old = redis.call('GET', KEYS[1])
if old then
  local version, turn = order(old)
  local v, t = tonumber(ARGV[2]), tonumber(ARGV[3])
  if version > v or (version == v and turn > t) then return old end
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[4])
return false
"""
)
"""Key; value, its version, its turn, milliseconds -> nil, or the newer value that stays."""

SWAP: Final = _script(
    _ORDER
    + """
local old = redis.call('GET', KEYS[1])
local version = -1
if old then version = order(old) end
if version ~= tonumber(ARGV[2]) then return old or '' end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[3])
return false
"""
)
"""Key; value, expected version (-1: none), milliseconds -> nil, or what is there."""

SAY: Final = _script(
    """
redis.call('PUBLISH', ARGV[3], ARGV[4])
local was = redis.call('EXISTS', KEYS[1])
local kept = redis.pcall('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
if type(kept) == 'table' and kept.err then return {was, kept.err} end
return {was, ''}
"""
)
"""Key; vector, milliseconds, channel, message -> whether the key was there, and why nothing was kept."""

HOLD: Final = _script(
    """
local old = redis.call('GET', KEYS[1]) or ''
if old ~= ARGV[2] then return 0 end
if ARGV[1] == '' then
  redis.call('DEL', KEYS[1])
  redis.call('SREM', KEYS[2], ARGV[4])
  return 1
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[3])
redis.call('SADD', KEYS[2], ARGV[4])
if redis.call('PTTL', KEYS[2]) < tonumber(ARGV[3]) then redis.call('PEXPIRE', KEYS[2], ARGV[3]) end
return 1
"""
)
"""Key, the set of names; value, what is expected there, milliseconds, name -> 1 if it was done."""

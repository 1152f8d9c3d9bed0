//! Lua scripts of conversations.

use super::keys;

/// Lua code for scripts that remove conversations, with `sizes`, the key of a hash: conversation →
/// bytes, organisation → the sum of its own, and '' → the sum of all. A value that has expired has no
/// size any more, so the hash has those of all conversations in the set.
///
/// Nodes of earlier releases neither write nor remove sizes: what they delete stays counted. So an
/// organisation without conversations, and a set without any, begin at 0 again.
macro_rules! sizes {
    () => {
        r"
local function resize(name, bytes)
  local more = bytes - (redis.call('HGET', sizes, name) or 0)
  if bytes > 0 then redis.call('HSET', sizes, name, bytes) else redis.call('HDEL', sizes, name) end
  if more == 0 then return end
  redis.call('HINCRBY', sizes, string.match(name, '^[^/]*'), more)
  redis.call('HINCRBY', sizes, '', more)
end
local function remove(set, theirs, name)
  redis.call('ZREM', set, name)
  redis.call('ZREM', theirs, name)
  resize(name, 0)
  if redis.call('EXISTS', set) == 0 then
    redis.call('DEL', sizes)
  elseif redis.call('EXISTS', theirs) == 0 then
    local org = string.match(name, '^[^/]*')
    redis.call('HINCRBY', sizes, '', 0 - (redis.call('HGET', sizes, org) or 0))
    redis.call('HDEL', sizes, org)
  end
end
"
    };
}

/// keys: conversation, conversations, those of its organisation, sizes · args: name, the version to
/// replace or '', bytes, time until it is due and until it expires, the prefixes of the keys of
/// conversations and of organisations' sets, the TTL of a due conversation, the maximum number and
/// bytes per organisation, and in total → its version or '', and how many others were evicted before
/// their time. Versions are microseconds of Redis's clock, and grow even if the clock steps back.
/// Evicted is one that has expired, else the one that would be due first of those that are not due. A
/// lease counts in the set of all conversations only, so leased ones are skipped there. The number of
/// evictions is limited: what is left above a limit is evicted by later saves.
pub(super) const SAVE_CONVERSATION: &str = concat!(
    keys!(4),
    r"
local standing = string.match(redis.call('GETRANGE', KEYS[1], 0, 31), '^%d+') or ''
if standing ~= ARGV[2] then return {'', 0} end
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local sizes = KEYS[4]
",
    sizes!(),
    r"
local function theirs(name) return ARGV[7] .. string.match(name, '^[^/]*') end
local function one_of(set, sum, number, bytes)
  local fits = (redis.call('HGET', sizes, sum) or 0) + #ARGV[3] <= tonumber(bytes)
  if redis.call('ZCARD', set) < tonumber(number) and fits then return nil end
  local first = redis.call('ZRANGE', set, 0, 0)[1]
  if not first then return nil end
  local due = redis.call('ZSCORE', theirs(first), first)
  if due and due + ARGV[8] <= now then return first end
  local later = '(' .. string.format('%.0f', now)
  for _, name in ipairs(redis.call('ZRANGEBYSCORE', set, later, '+inf', 'LIMIT', 0, 100)) do
    local due = redis.call('ZSCORE', theirs(name), name)
    if due and tonumber(due) > now then return name end
  end
  return first
end
if redis.call('ZSCORE', KEYS[2], ARGV[1]) then remove(KEYS[2], KEYS[3], ARGV[1]) end
local org = string.match(ARGV[1], '^[^/]*')
local gone = 0
for _ = 1, 100 do
  local goes = one_of(KEYS[3], org, ARGV[9], ARGV[10]) or one_of(KEYS[2], '', ARGV[11], ARGV[12])
  if not goes then break end
  gone = gone + redis.call('DEL', ARGV[6] .. goes)
  remove(KEYS[2], theirs(goes), goes)
end
local version = t[1] * 1000000 + t[2]
if standing ~= '' and tonumber(standing) >= version then version = tonumber(standing) + 1 end
local text = string.format('%.0f', version)
redis.call('SET', KEYS[1], text .. ' ' .. ARGV[3], 'PX', ARGV[5])
redis.call('ZADD', KEYS[2], now + ARGV[4], ARGV[1])
redis.call('ZADD', KEYS[3], now + ARGV[4], ARGV[1])
resize(ARGV[1], #ARGV[3])
return {text, gone}
"
);

/// keys: conversation, conversations, those of its organisation, sizes · args: name, version →
/// whether that version was stored.
pub(super) const DELETE_CONVERSATION: &str = concat!(
    keys!(4),
    r"
if string.match(redis.call('GETRANGE', KEYS[1], 0, 31), '^%d+') ~= ARGV[2] then return 0 end
local sizes = KEYS[4]
",
    sizes!(),
    r"
redis.call('DEL', KEYS[1])
remove(KEYS[2], KEYS[3], ARGV[1])
return 1
"
);

/// keys: conversations · args: the prefix of the keys of conversations, the maximum, lease, the
/// prefix of organisations' sets, the TTL of a due conversation, the share of an organisation, how
/// many are read, the key of sizes, then for organisations with conversations in flight: organisation, how many →
/// name and value of those that are due. The organisation with the fewest in flight is next. Expired
/// ones are removed, a limited number at a time. One that is missing and has not expired is at
/// another shard, and stays. If there may be more than was read, those that exceed the share of
/// their organisation become the last ones that are due, so that the next claim reads others.
pub(super) const CLAIM_DUE_CONVERSATIONS: &str = concat!(
    "local sizes = ARGV[8]",
    sizes!(),
    r"
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local share, most = tonumber(ARGV[6]), tonumber(ARGV[7])
local orgs, names, nexts, used, given = {}, {}, {}, {}, {}
for i = 9, #ARGV, 2 do used[ARGV[i]] = tonumber(ARGV[i + 1]) end
local due = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, most)
for _, name in ipairs(due) do
  local org = string.match(name, '^[^/]*')
  if not names[org] then
    orgs[#orgs + 1], names[org], nexts[org], used[org] = org, {}, 1, used[org] or 0
  end
  table.insert(names[org], name)
end
local function give(org)
  while names[org][nexts[org]] do
    local name = names[org][nexts[org]]
    nexts[org] = nexts[org] + 1
    local value = redis.call('GET', ARGV[1] .. name)
    if value then
      redis.call('ZADD', KEYS[1], now + ARGV[3], name)
      given[#given + 1] = {name, value}
      used[org] = used[org] + 1
      return
    end
    local theirs = ARGV[4] .. org
    local at = redis.call('ZSCORE', theirs, name) or redis.call('ZSCORE', KEYS[1], name)
    if at + ARGV[5] <= now then remove(KEYS[1], theirs, name) end
  end
end
for level = 0, share - 1 do
  for _, org in ipairs(orgs) do
    if #given == tonumber(ARGV[2]) then break end
    if used[org] == level then give(org) end
  end
end
if #due == most then
  for _, org in ipairs(orgs) do
    for i = nexts[org] + math.max(share - used[org], 0), #names[org] do
      redis.call('ZADD', KEYS[1], now, names[org][i])
    end
  end
end
return given
"
);

//! Lua scripts of conversations.

use super::keys;

/// keys: conversation, conversations, those of its organisation · args: name, the version to
/// replace or '', bytes, time until it is due and until it expires, the maximum per organisation
/// and in total, the prefixes of the keys of conversations and of organisations' sets, the TTL of
/// a due conversation → its version or '', and how many others were evicted before their time.
/// Versions are microseconds of Redis's clock, and grow even if the clock steps back. Evicted is
/// one that has expired, else the one that would be due first of those that are not due. A lease
/// counts in the set of all conversations only, so leased ones are skipped there.
pub(super) const SAVE_CONVERSATION: &str = concat!(
    keys!(3),
    r"
local standing = string.match(redis.call('GETRANGE', KEYS[1], 0, 31), '^%d+') or ''
if standing ~= ARGV[2] then return {'', 0} end
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local function theirs(name) return ARGV[9] .. string.match(name, '^[^/]*') end
local function one_of(set, most)
  if redis.call('ZCARD', set) < tonumber(most) then return nil end
  local first = redis.call('ZRANGE', set, 0, 0)[1]
  local due = redis.call('ZSCORE', theirs(first), first)
  if due and due + ARGV[10] <= now then return first end
  local later = '(' .. string.format('%.0f', now)
  for _, name in ipairs(redis.call('ZRANGEBYSCORE', set, later, '+inf', 'LIMIT', 0, 100)) do
    local due = redis.call('ZSCORE', theirs(name), name)
    if due and tonumber(due) > now then return name end
  end
  return first
end
local goes = not redis.call('ZSCORE', KEYS[2], ARGV[1]) and (one_of(KEYS[3], ARGV[6]) or one_of(KEYS[2], ARGV[7]))
local gone = 0
if goes then
  gone = redis.call('DEL', ARGV[8] .. goes)
  redis.call('ZREM', KEYS[2], goes)
  redis.call('ZREM', theirs(goes), goes)
end
local version = t[1] * 1000000 + t[2]
if standing ~= '' and tonumber(standing) >= version then version = tonumber(standing) + 1 end
local text = string.format('%.0f', version)
redis.call('SET', KEYS[1], text .. ' ' .. ARGV[3], 'PX', ARGV[5])
redis.call('ZADD', KEYS[2], now + ARGV[4], ARGV[1])
redis.call('ZADD', KEYS[3], now + ARGV[4], ARGV[1])
return {text, gone}
"
);

/// keys: conversation, conversations, those of its organisation · args: name, version → whether
/// that version was stored.
pub(super) const DELETE_CONVERSATION: &str = concat!(
    keys!(3),
    r"
if string.match(redis.call('GETRANGE', KEYS[1], 0, 31), '^%d+') ~= ARGV[2] then return 0 end
redis.call('DEL', KEYS[1])
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('ZREM', KEYS[3], ARGV[1])
return 1
"
);

/// keys: conversations · args: the prefix of the keys of conversations, the maximum, lease, the
/// prefix of organisations' sets, the TTL of a due conversation, the share of an organisation, how
/// many are read, then for organisations with conversations in flight: organisation, how many →
/// name and value of those that are due. The organisation with the fewest in flight is next. Expired
/// ones are removed, a limited number at a time. One that is missing and has not expired is at
/// another shard, and stays. If there may be more than was read, those that exceed the share of
/// their organisation become the last ones that are due, so that the next claim reads others.
pub(super) const CLAIM_DUE_CONVERSATIONS: &str = r"
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local share, most = tonumber(ARGV[6]), tonumber(ARGV[7])
local orgs, names, nexts, used, given = {}, {}, {}, {}, {}
for i = 8, #ARGV, 2 do used[ARGV[i]] = tonumber(ARGV[i + 1]) end
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
    if at + ARGV[5] <= now then
      redis.call('ZREM', KEYS[1], name)
      redis.call('ZREM', theirs, name)
    end
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
";

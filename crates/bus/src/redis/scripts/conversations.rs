//! Lua scripts of conversations.

use super::keys;

/// Lua code for scripts that save or delete conversations, after `sizes` and `prefix`: the keys of a
/// sorted set and of conversations. The set has the bytes of each organisation, and those of all
/// organisations as `~`. A conversation counts with the length of its value and 300 bytes for its
/// names and entries.
///
/// The bytes are an upper bound: a conversation that has expired, or that a node of an earlier release
/// has deleted, stays counted until its organisation is counted again. That is done at most once a
/// minute, when the bytes exceed a limit; `ORG counted` is when, as a negative number.
macro_rules! sizes {
    () => {
        r"
local function org_of(name) return string.match(name, '^[^/]*') end
local function size(name)
  local bytes = redis.call('STRLEN', prefix .. name)
  return bytes > 0 and bytes + 300 or 0
end
local function bytes_of(member) return tonumber(redis.call('ZSCORE', sizes, member) or 0) end
local function add(org, bytes)
  local before = bytes_of(org)
  local after = math.max(before + bytes, 0)
  local total = bytes_of('~') + after - before
  if after > 0 then
    redis.call('ZADD', sizes, after, org)
  else
    redis.call('ZREM', sizes, org, org .. ' counted')
  end
  if total > 0 then redis.call('ZADD', sizes, total, '~') else redis.call('ZREM', sizes, '~') end
end
"
    };
}

/// keys: conversation, conversations, those of its organisation, sizes · args: name, the version to
/// replace or '', bytes, time until it is due and until it expires, the prefixes of the keys of
/// conversations and of organisations' sets, the TTL of a due conversation, the maximum number and
/// bytes per organisation, and in total → its version or '', how many others were evicted before
/// their time, and what is stored if it was not saved. Versions are microseconds of Redis's clock, and
/// grow even if the clock steps back.
///
/// Evicted is one of the organisation that exceeds its limit. Beyond the total number it is one of all,
/// and beyond the total bytes one of the organisation that has most. It is one that has expired, else
/// the one that would be due first of those that are not due. A lease counts in the set of all
/// conversations only, so leased ones are skipped there. What is left above a limit after 32 evictions
/// is evicted by later saves.
pub(super) const SAVE_CONVERSATION: &str = concat!(
    keys!(4),
    r"
local current = string.match(redis.call('GETRANGE', KEYS[1], 0, 31), '^%d+') or ''
if current ~= ARGV[2] then return {'', 0, redis.call('GET', KEYS[1])} end
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local version = t[1] * 1000000 + t[2]
if current ~= '' and tonumber(current) >= version then version = tonumber(current) + 1 end
local text = string.format('%.0f', version)
local value = text .. ' ' .. ARGV[3]
local sizes, prefix = KEYS[4], ARGV[6]
",
    sizes!(),
    r"
local function org_set(org) return ARGV[7] .. org end
local function count_again(org)
  local counted = org .. ' counted'
  local at = redis.call('ZSCORE', sizes, counted)
  if at and now + at < 60000 then return false end
  local bytes = 0
  for _, name in ipairs(redis.call('ZRANGE', org_set(org), 0, -1)) do bytes = bytes + size(name) end
  add(org, bytes - bytes_of(org))
  if bytes > 0 then redis.call('ZADD', sizes, -now, counted) end
  return true
end
local function select_from(set)
  local first = redis.call('ZRANGE', set, 0, 0)[1]
  if not first then return nil end
  local due = redis.call('ZSCORE', org_set(org_of(first)), first)
  if due and due + ARGV[8] <= now then return first end
  local later = '(' .. string.format('%.0f', now)
  for _, name in ipairs(redis.call('ZRANGEBYSCORE', set, later, '+inf', 'LIMIT', 0, 100)) do
    local due = redis.call('ZSCORE', org_set(org_of(name)), name)
    if due and tonumber(due) > now then return name end
  end
  return first
end
local org, added = org_of(ARGV[1]), #value + 300
local function exceeds(member, most) return bytes_of(member) + added > tonumber(most) end
local function select_eviction()
  if exceeds(org, ARGV[10]) then count_again(org) end
  if redis.call('ZCARD', KEYS[3]) >= tonumber(ARGV[9]) or exceeds(org, ARGV[10]) then
    return select_from(KEYS[3])
  end
  if redis.call('ZCARD', KEYS[2]) >= tonumber(ARGV[11]) then return select_from(KEYS[2]) end
  for _ = 1, 8 do
    if not exceeds('~', ARGV[12]) then return nil end
    local most = redis.call('ZREVRANGE', sizes, 1, 1)[1]
    if not most then return nil end
    if not count_again(most) then return select_from(org_set(most)) end
  end
end
local function store(more)
  redis.call('SET', KEYS[1], value, 'PX', ARGV[5])
  redis.call('ZADD', KEYS[2], now + ARGV[4], ARGV[1])
  redis.call('ZADD', KEYS[3], now + ARGV[4], ARGV[1])
  add(org, more)
end
if redis.call('ZREM', KEYS[2], ARGV[1]) == 1 then
  local more = added - size(ARGV[1])
  if bytes_of(org) + more <= tonumber(ARGV[10]) and bytes_of('~') + more <= tonumber(ARGV[12]) then
    store(more)
    return {text, 0, false}
  end
  redis.call('ZREM', KEYS[3], ARGV[1])
  add(org, more - added)
end
local evicted = 0
for _ = 1, 32 do
  local name = select_eviction()
  if not name then break end
  local owner, bytes = org_of(name), size(name)
  evicted = evicted + redis.call('DEL', prefix .. name)
  redis.call('ZREM', KEYS[2], name)
  redis.call('ZREM', org_set(owner), name)
  add(owner, -bytes)
end
store(added)
return {text, evicted, false}
"
);

/// keys: conversation, conversations, those of its organisation, sizes · args: name, version →
/// whether that version was stored. The first write is a deletion: a full Redis then lets it change
/// the sizes.
pub(super) const DELETE_CONVERSATION: &str = concat!(
    keys!(4),
    r"
if string.match(redis.call('GETRANGE', KEYS[1], 0, 31), '^%d+') ~= ARGV[2] then return 0 end
local sizes, prefix = KEYS[4], string.sub(KEYS[1], 1, -1 - #ARGV[1])
",
    sizes!(),
    r"
local bytes = size(ARGV[1])
redis.call('DEL', KEYS[1])
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('ZREM', KEYS[3], ARGV[1])
add(org_of(ARGV[1]), -bytes)
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

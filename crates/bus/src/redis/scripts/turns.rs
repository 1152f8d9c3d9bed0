//! Lua scripts of the turn queue: the stream of turns, its places and its postponed turns.

/// Lua code: `leave(org, turn)` returns the place of a turn that is no longer in the queue.
///
/// Each organisation with turns has a consumer group of its name on the stream, in which all of
/// its turns are pending: their number is the number of its places. A group moves with the stream,
/// in one step, and is deleted with its last turn. An earlier version leaves the place of a turn
/// that it completes; [`ENQUEUE_TURN`] returns such places.
///
/// Turns with a picture are also pending in the group `pictures`, for a consumer of the name of
/// their organisation.
macro_rules! places {
    () => {
        r"
local function leave_group(group, turn)
  if redis.call('XACK', KEYS[1], group, turn) == 0 then return end
  if redis.call('XPENDING', KEYS[1], group)[1] == 0 then
    redis.call('XGROUP', 'DESTROY', KEYS[1], group)
  end
end
local function leave(org, turn)
  leave_group(org, turn)
  leave_group('pictures', turn)
end
"
    };
}

/// keys: turns · args: group, the maximum number of turns, and of those of one organisation, their
/// TTL, organisation, the maximum number of pictures, and of those of one organisation, or '' twice
/// for a turn without one, then fields and values → the position, or '' when the queue or the share
/// of the organisation is full. Then turns that no worker claimed within their TTL are deleted first;
/// these are behind the last one that was delivered. The only turn of its organisation has the field
/// `sole`.
pub(super) const ENQUEUE_TURN: &str = concat!(
    places!(),
    r"
local org = ARGV[5]
local function stale()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000) - ARGV[4]
end
local function last_delivered()
  for _, group in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
    local about = {}
    for i = 1, #group, 2 do about[group[i]] = group[i + 1] end
    if about['name'] == ARGV[1] then return about['last-delivered-id'] end
  end
  return '0-0'
end
local function places()
  local held = redis.pcall('XPENDING', KEYS[1], org)
  return held[1]
end
if redis.call('XLEN', KEYS[1]) >= tonumber(ARGV[2]) then
  local from, to = '(' .. last_delivered(), string.format('%.0f', stale())
  for _, waiting in ipairs(redis.call('XRANGE', KEYS[1], from, to, 'COUNT', 100)) do
    redis.call('XDEL', KEYS[1], waiting[1])
    for i = 1, #waiting[2], 2 do
      if waiting[2][i] == 'org' then leave(waiting[2][i + 1], waiting[1]) end
    end
  end
  if redis.call('XLEN', KEYS[1]) >= tonumber(ARGV[2]) then return '' end
end
local held = places()
if (held or 0) >= tonumber(ARGV[3]) then
  local from, oldest = '(' .. last_delivered(), stale()
  for _, pending in ipairs(redis.call('XPENDING', KEYS[1], org, '-', '+', 100)) do
    local turn = pending[1]
    local is_stale = tonumber(string.match(turn, '^%d+')) <= oldest
    if is_stale and #redis.call('XRANGE', KEYS[1], from, turn, 'COUNT', 1) > 0 then
      redis.call('XDEL', KEYS[1], turn)
    end
    if #redis.call('XRANGE', KEYS[1], turn, turn) == 0 then leave(org, turn) end
  end
  held = places()
  if (held or 0) >= tonumber(ARGV[3]) then return '' end
end
local function pictures()
  local held = redis.pcall('XPENDING', KEYS[1], 'pictures')
  local own = 0
  for _, consumer in ipairs(held[4] or {}) do
    if consumer[1] == org then own = tonumber(consumer[2]) end
  end
  return held[1], own
end
local function has_room()
  local all, own = pictures()
  return (all or 0) < tonumber(ARGV[6]) and own < tonumber(ARGV[7])
end
local with_picture = ARGV[6] ~= ''
if with_picture and not has_room() then
  for _, pending in ipairs(redis.call('XPENDING', KEYS[1], 'pictures', '-', '+', ARGV[6])) do
    local turn = pending[1]
    if #redis.call('XRANGE', KEYS[1], turn, turn) == 0 then leave_group('pictures', turn) end
  end
  if not has_room() then return '' end
end
if (held or 0) == 0 then
  ARGV[#ARGV + 1] = 'sole'
  ARGV[#ARGV + 1] = '1'
end
local turn = redis.call('XADD', KEYS[1], '*', unpack(ARGV, 8))
if not held then redis.call('XGROUP', 'CREATE', KEYS[1], org, '$') end
redis.call('XCLAIM', KEYS[1], org, 'queue', 0, turn, 'FORCE', 'JUSTID')
if with_picture then
  if not pictures() then redis.call('XGROUP', 'CREATE', KEYS[1], 'pictures', '$') end
  redis.call('XCLAIM', KEYS[1], 'pictures', org, 0, turn, 'FORCE', 'JUSTID')
end
return turn
"
);

/// keys: turns · args: group, worker, then turn, its organisation, and 1 or 0 for whether the
/// worker has room for it, in turn → now, then for each turn its delivery count; 0 if the worker
/// does not hold it, or has postponed it here.
///
/// A postponed turn is pending for the consumer `postponed:ORG`, with the delivery count before
/// this delivery. A turn behind a postponed one of its organisation is postponed as well.
pub(super) const ADMIT_TURNS: &str = r"
local t = redis.call('TIME')
local counts = {}
for i = 3, #ARGV, 3 do
  local turn, postponed = ARGV[i], 'postponed:' .. ARGV[i + 1]
  local held = redis.call('XPENDING', KEYS[1], ARGV[1], turn, turn, 1, ARGV[2])
  local count = held[1] and held[1][4] or 0
  local has_room = ARGV[i + 2] == '1'
  if has_room and count > 0 then
    has_room = #redis.call('XPENDING', KEYS[1], ARGV[1], '-', turn, 1, postponed) == 0
  end
  if not has_room and count > 0 then
    local before = string.format('%.0f', count - 1)
    redis.call('XCLAIM', KEYS[1], ARGV[1], postponed, 0, turn, 'RETRYCOUNT', before, 'JUSTID')
    count = 0
  end
  counts[#counts + 1] = count
end
return {t[1] * 1000 + math.floor(t[2] / 1000), counts}
";

/// keys: turns · args: group → the organisations with postponed turns. Their consumers are deleted
/// when they have none.
pub(super) const LIST_POSTPONED: &str = r"
local orgs = {}
local consumers = redis.pcall('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])
if consumers.err then return orgs end
for _, consumer in ipairs(consumers) do
  local about = {}
  for i = 1, #consumer, 2 do about[consumer[i]] = consumer[i + 1] end
  local org = string.match(about['name'], '^postponed:(.*)$')
  if org and about['pending'] > 0 then
    orgs[#orgs + 1] = org
  elseif org then
    redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], about['name'])
  end
end
return orgs
";

/// keys: turns · args: group, worker, the maximum number of turns, then organisation and its room
/// in turn → entries of postponed turns, which are delivered to the worker; the organisations take
/// turns, each in its order.
pub(super) const CLAIM_POSTPONED: &str = r"
local entries, left, found = {}, tonumber(ARGV[3]), true
while left > 0 and found do
  found = false
  for i = 4, #ARGV, 2 do
    local postponed, room = 'postponed:' .. ARGV[i], tonumber(ARGV[i + 1])
    local first
    if left > 0 and room > 0 then
      first = redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', 1, postponed)[1]
    end
    if first then
      found = true
      local entry = redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, first[1])[1]
      if entry then
        entries[#entries + 1] = entry
        left = left - 1
        ARGV[i + 1] = room - 1
      else
        redis.call('XACK', KEYS[1], ARGV[1], first[1])
      end
    end
  end
end
return entries
";

/// keys: turns · args: group, worker, the mark for side effects, then turn and attempt in turn →
/// the indexes of those that the worker still holds; their leases are renewed.
pub(super) const RENEW_TURNS: &str = r"
local kept = {}
for i = 4, #ARGV, 2 do
  local held = redis.pcall('XPENDING', KEYS[1], ARGV[1], ARGV[i], ARGV[i], 1, ARGV[2])
  if not held.err and held[1] and held[1][4] % ARGV[3] == tonumber(ARGV[i + 1]) then
    local renewed = redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, ARGV[i], 'JUSTID')
    if #renewed > 0 then kept[#kept + 1] = (i - 4) / 2 end
  end
end
return kept
";

/// keys: turns · args: group, worker, the mark for side effects, turn, attempt → whether the worker
/// still holds the turn. The mark is added to Redis's delivery count, so it moves with the stream.
pub(super) const MARK_SIDE_EFFECTS: &str = r"
local held = redis.pcall('XPENDING', KEYS[1], ARGV[1], ARGV[4], ARGV[4], 1, ARGV[2])
if held.err or not held[1] or held[1][4] % ARGV[3] ~= tonumber(ARGV[5]) then return 0 end
if #redis.call('XRANGE', KEYS[1], ARGV[4], ARGV[4]) == 0 then return 0 end
local count = string.format('%.0f', ARGV[3] + ARGV[5])
redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, ARGV[4], 'RETRYCOUNT', count, 'JUSTID')
return 1
";

/// keys: turns · args: group, worker, the mark for side effects, turn, attempt, organisation.
pub(super) const COMPLETE_TURN: &str = concat!(
    places!(),
    r"
local held = redis.pcall('XPENDING', KEYS[1], ARGV[1], ARGV[4], ARGV[4], 1, ARGV[2])
if held.err or not held[1] or held[1][4] % ARGV[3] ~= tonumber(ARGV[5]) then return 0 end
redis.call('XACK', KEYS[1], ARGV[1], ARGV[4])
redis.call('XDEL', KEYS[1], ARGV[4])
leave(ARGV[6], ARGV[4])
return 1
"
);

/// keys: turns · args: group, then turn and its organisation in turn. Acknowledges and deletes
/// together, see [`super::DELETE_ENTRIES`].
pub(super) const DELETE_TURNS: &str = concat!(
    places!(),
    r"
for i = 2, #ARGV, 2 do
  redis.call('XACK', KEYS[1], ARGV[1], ARGV[i])
  redis.call('XDEL', KEYS[1], ARGV[i])
  leave(ARGV[i + 1], ARGV[i])
end
return 1
"
);

//! What must happen in Redis in one step. Whatever changes the services of an entry publishes it
//! in the same step, on the channel in `registered`: `{org} {digest or -} {device}`.
//! Never: a script that takes time in proportion to anything unbounded.

use redis::{Cmd, Script};

/// How long a node counts as alive after its last beat.
pub(super) const LEASE_MS: u64 = 9_000;

/// All scripts of one connection, by name.
pub(super) struct Scripts {
    pub(super) claim: Script,
    pub(super) enter: Script,
    pub(super) release: Script,
    pub(super) find: Script,
    pub(super) list: Script,
    pub(super) beat: Script,
    pub(super) reap: Script,
    pub(super) entrust: Script,
}

impl Scripts {
    pub(super) fn new() -> Self {
        Self {
            claim: Script::new(CLAIM),
            enter: Script::new(ENTER),
            release: Script::new(RELEASE),
            find: Script::new(FIND),
            list: Script::new(LIST),
            beat: Script::new(BEAT),
            reap: Script::new(REAP),
            entrust: Script::new(ENTRUST),
        }
    }

    pub(super) fn all(&self) -> [(&Script, &'static str); 8] {
        [
            (&self.claim, CLAIM),
            (&self.enter, ENTER),
            (&self.release, RELEASE),
            (&self.find, FIND),
            (&self.list, LIST),
            (&self.beat, BEAT),
            (&self.reap, REAP),
            (&self.entrust, ENTRUST),
        ]
    }
}

/// `EVALSHA` with these keys; arguments follow.
pub(super) fn run(script: &Script, keys: &[String]) -> Cmd {
    let mut cmd = redis::cmd("EVALSHA");
    cmd.arg(script.get_hash()).arg(keys.len()).arg(keys);
    cmd
}

/// keys: live, ids, orgs · args: device, node, org, registered → epoch, former entry.
/// Epochs are microseconds of Redis's clock, and grow even if that steps back.
const CLAIM: &str = r"
local t = redis.call('TIME')
local epoch = t[1] * 1000000 + t[2]
local former = redis.call('HGET', KEYS[1], ARGV[1])
if former then
  local old = tonumber(string.match(former, '^%d+'))
  if old >= epoch then epoch = old + 1 end
end
local text = string.format('%.0f', epoch)
redis.call('HSET', KEYS[1], ARGV[1], text .. ' ' .. ARGV[2] .. ' -')
redis.call('ZADD', KEYS[2], 0, ARGV[1])
redis.call('SADD', KEYS[3], ARGV[3])
if former and string.sub(former, -2) ~= ' -' then
  redis.call('PUBLISH', ARGV[4], ARGV[3] .. ' - ' .. ARGV[1])
end
return {text, former or ''}
";

/// keys: live, ids, orgs · args: device, node, org, epoch, digest, registered → a newer
/// epoch that stands.
const ENTER: &str = r"
local standing = redis.call('HGET', KEYS[1], ARGV[1])
local before = '-'
if standing then
  local epoch = string.match(standing, '^%d+')
  if tonumber(epoch) > tonumber(ARGV[4]) then return epoch end
  before = string.match(standing, '%S+$')
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[4] .. ' ' .. ARGV[2] .. ' ' .. ARGV[5])
redis.call('ZADD', KEYS[2], 0, ARGV[1])
redis.call('SADD', KEYS[3], ARGV[3])
if before ~= ARGV[5] then
  redis.call('PUBLISH', ARGV[6], ARGV[3] .. ' ' .. ARGV[5] .. ' ' .. ARGV[1])
end
return ''
";

/// keys: live, ids, orgs · args: device, org, epoch, registered.
const RELEASE: &str = r"
local standing = redis.call('HGET', KEYS[1], ARGV[1])
if not standing or string.match(standing, '^%d+') ~= ARGV[3] then return 0 end
redis.call('HDEL', KEYS[1], ARGV[1])
redis.call('ZREM', KEYS[2], ARGV[1])
if redis.call('HLEN', KEYS[1]) == 0 then redis.call('SREM', KEYS[3], ARGV[2]) end
if string.sub(standing, -2) ~= ' -' then
  redis.call('PUBLISH', ARGV[4], ARGV[2] .. ' - ' .. ARGV[1])
end
return 1
";

/// keys: live, nodes · args: lease, devices… → the entry of each, '' when no live node has it.
const FIND: &str = r"
local t = redis.call('TIME')
local alive = t[1] * 1000 + t[2] / 1000 - ARGV[1]
local found = {}
for i = 2, #ARGV do
  local entry = redis.call('HGET', KEYS[1], ARGV[i])
  local node = entry and string.match(entry, '^%d+ (%S+)')
  local beat = node and redis.call('ZSCORE', KEYS[2], node)
  found[i - 1] = beat and tonumber(beat) >= alive and entry or ''
end
return found
";

/// keys: live, ids, nodes · args: lease, from, limit → how many were looked at, the last of
/// them, then device and entry of those whose node lives.
const LIST: &str = r"
local t = redis.call('TIME')
local alive = t[1] * 1000 + t[2] / 1000 - ARGV[1]
local ids = redis.call('ZRANGEBYLEX', KEYS[2], ARGV[2], '+', 'LIMIT', 0, ARGV[3])
local found = {tostring(#ids), ids[#ids] or ''}
for _, id in ipairs(ids) do
  local entry = redis.call('HGET', KEYS[1], id)
  local node = entry and string.match(entry, '^%d+ (%S+)')
  local beat = node and redis.call('ZSCORE', KEYS[3], node)
  if beat and tonumber(beat) >= alive then
    found[#found + 1] = id
    found[#found + 1] = entry
  end
end
return found
";

/// keys: nodes, shelf · args: lease, node, registered → whether the node's own lease had ended or was never there,
/// nodes whose lease has ended. A node that comes back after its own had ended brings its entries back all at once.
const BEAT: &str = r"
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local before = redis.call('ZSCORE', KEYS[1], ARGV[2])
local ended = before and tonumber(before) < now - ARGV[1]
if ended then redis.call('PUBLISH', ARGV[3], 'missed') end
redis.call('ZADD', KEYS[1], now, ARGV[2])
redis.call('PEXPIRE', KEYS[2], 2 * ARGV[1])
local dead = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', '(' .. string.format('%.0f', now - ARGV[1]))
return {(ended or not before) and 1 or 0, dead}
";

/// keys: live, ids, orgs · args: org, node, registered, devices… → for each its epoch, '' if it is not that node's.
const REAP: &str = r"
local reaped = {}
for i = 4, #ARGV do
  local entry = redis.call('HGET', KEYS[1], ARGV[i])
  local epoch, node, digest
  if entry then epoch, node, digest = string.match(entry, '^(%d+) (%S+) (%S+)') end
  if node == ARGV[2] then
    redis.call('HDEL', KEYS[1], ARGV[i])
    redis.call('ZREM', KEYS[2], ARGV[i])
    if digest ~= '-' then redis.call('PUBLISH', ARGV[3], ARGV[1] .. ' - ' .. ARGV[i]) end
    reaped[i - 3] = epoch
  else
    reaped[i - 3] = ''
  end
end
if redis.call('HLEN', KEYS[1]) == 0 then redis.call('SREM', KEYS[3], ARGV[1]) end
return reaped
";

/// keys: trust, revoked, version · args: keys or '', now, then token and expiry in turn.
const ENTRUST: &str = r"
local changed = false
if ARGV[1] ~= '' and redis.call('GET', KEYS[1]) ~= ARGV[1] then
  redis.call('SET', KEYS[1], ARGV[1])
  changed = true
end
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', ARGV[2])
for i = 3, #ARGV, 2 do
  if redis.call('ZADD', KEYS[2], 'NX', ARGV[i + 1], ARGV[i]) == 1 then changed = true end
end
if changed or redis.call('EXISTS', KEYS[3]) == 0 then
  local t = redis.call('TIME')
  redis.call('SET', KEYS[3], string.format('%.0f', t[1] * 1000000 + t[2]))
end
return 1
";

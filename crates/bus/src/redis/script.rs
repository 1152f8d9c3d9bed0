//! What must happen in Redis in one step. Whatever changes the services of an entry publishes it
//! in the same step, by the command in `publish` on the channel in `registered`: `{org} {digest or -} {device}`.
//! The keys of each, and its channel, are in one slot of a cluster.
//! Never: a script that takes time in proportion to anything unbounded; one that takes a key that it finds by a name in
//! a set for gone when it is not there, since it may be on its way from one shard to another.

use redis::{Arg, Cmd, Script};

/// How long a node counts as alive after its last beat.
pub(super) const LEASE_MS: u64 = 9_000;

/// All scripts of one connection, by name.
pub(super) struct Scripts {
    pub(super) claim: Script,
    pub(super) enter: Script,
    pub(super) release: Script,
    pub(super) find: Script,
    pub(super) list: Script,
    pub(super) living: Script,
    pub(super) beat: Script,
    pub(super) reap: Script,
    pub(super) entrust: Script,
    pub(super) begin: Script,
    pub(super) taken: Script,
    pub(super) keep: Script,
    pub(super) acted: Script,
    pub(super) end: Script,
    pub(super) strike: Script,
    pub(super) keep_conversation: Script,
    pub(super) drop_conversation: Script,
    pub(super) due: Script,
}

impl Scripts {
    pub(super) fn new() -> Self {
        Self {
            claim: Script::new(CLAIM),
            enter: Script::new(ENTER),
            release: Script::new(RELEASE),
            find: Script::new(FIND),
            list: Script::new(LIST),
            living: Script::new(LIVING),
            beat: Script::new(BEAT),
            reap: Script::new(REAP),
            entrust: Script::new(ENTRUST),
            begin: Script::new(BEGIN),
            taken: Script::new(TAKEN),
            keep: Script::new(KEEP),
            acted: Script::new(ACTED),
            end: Script::new(END),
            strike: Script::new(STRIKE),
            keep_conversation: Script::new(KEEP_CONVERSATION),
            drop_conversation: Script::new(DROP_CONVERSATION),
            due: Script::new(DUE),
        }
    }

    pub(super) fn all(&self) -> [(&Script, &'static str); 18] {
        [
            (&self.claim, CLAIM),
            (&self.enter, ENTER),
            (&self.release, RELEASE),
            (&self.find, FIND),
            (&self.list, LIST),
            (&self.living, LIVING),
            (&self.beat, BEAT),
            (&self.reap, REAP),
            (&self.entrust, ENTRUST),
            (&self.begin, BEGIN),
            (&self.taken, TAKEN),
            (&self.keep, KEEP),
            (&self.acted, ACTED),
            (&self.end, END),
            (&self.strike, STRIKE),
            (&self.keep_conversation, KEEP_CONVERSATION),
            (&self.drop_conversation, DROP_CONVERSATION),
            (&self.due, DUE),
        ]
    }
}

/// `EVALSHA` with these keys; arguments follow.
pub(super) fn run(script: &Script, keys: &[String]) -> Cmd {
    let mut cmd = redis::cmd("EVALSHA");
    cmd.arg(script.get_hash()).arg(keys.len()).arg(keys);
    cmd
}

/// The same with its first key as the only one that Redis is told of. For a server that a slot is on its way to, when
/// its former owner has just said that none of the keys is there any more: what is not here either is nowhere, which the
/// server can not know, so it would refuse to look at several keys. Nothing but a script with more than one key has this.
pub(super) fn with_one_key(command: &Cmd) -> Option<Cmd> {
    let mut parts = command.args_iter();
    let (Arg::Simple(b"EVALSHA"), Arg::Simple(hash), Arg::Simple(keys)) =
        (parts.next()?, parts.next()?, parts.next()?)
    else {
        return None;
    };
    let keys: usize = str::from_utf8(keys).ok()?.parse().ok()?;
    if keys < 2 {
        return None;
    }
    let mut one = redis::cmd("EVALSHA");
    one.arg(hash).arg(1);
    for part in parts {
        let Arg::Simple(part) = part else { return None };
        one.arg(part);
    }
    Some(one)
}

/// Takes the keys that Redis was not told of from the arguments, where they stand first: see [`with_one_key`].
macro_rules! keys {
    ($count:literal) => {
        concat!(
            "while #KEYS < ",
            $count,
            " do KEYS[#KEYS + 1] = table.remove(ARGV, 1) end"
        )
    };
}

/// keys: live, ids, orgs · args: device, node, org, publish, registered → epoch, former entry.
/// Epochs are microseconds of Redis's clock, and grow even if that steps back.
const CLAIM: &str = concat!(
    keys!(3),
    r"
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
  redis.call(ARGV[4], ARGV[5], ARGV[3] .. ' - ' .. ARGV[1])
end
return {text, former or ''}
"
);

/// keys: live, ids, orgs · args: device, node, org, epoch, digest, publish, registered → a newer
/// epoch that stands.
const ENTER: &str = concat!(
    keys!(3),
    r"
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
  redis.call(ARGV[6], ARGV[7], ARGV[3] .. ' ' .. ARGV[5] .. ' ' .. ARGV[1])
end
return ''
"
);

/// keys: live, ids, orgs · args: device, org, epoch, publish, registered.
const RELEASE: &str = concat!(
    keys!(3),
    r"
local standing = redis.call('HGET', KEYS[1], ARGV[1])
if not standing or string.match(standing, '^%d+') ~= ARGV[3] then return 0 end
redis.call('HDEL', KEYS[1], ARGV[1])
redis.call('ZREM', KEYS[2], ARGV[1])
if redis.call('HLEN', KEYS[1]) == 0 then redis.call('SREM', KEYS[3], ARGV[2]) end
if string.sub(standing, -2) ~= ' -' then
  redis.call(ARGV[4], ARGV[5], ARGV[2] .. ' - ' .. ARGV[1])
end
return 1
"
);

/// keys: live, and nodes where one server has both · args: lease, devices… → the entry of each, '' when there is none,
/// or none of a live node as far as that can be seen here.
const FIND: &str = r"
local t = redis.call('TIME')
local alive = t[1] * 1000 + t[2] / 1000 - ARGV[1]
local found = {}
for i = 2, #ARGV do
  local entry = redis.call('HGET', KEYS[1], ARGV[i])
  if entry and KEYS[2] then
    local beat = redis.call('ZSCORE', KEYS[2], string.match(entry, '^%d+ (%S+)'))
    entry = beat and tonumber(beat) >= alive and entry
  end
  found[i - 1] = entry or ''
end
return found
";

/// keys: live, ids, and nodes where one server has them all · args: lease, from, limit → how many were looked at, the
/// last of them, then device and entry of those whose node lives as far as that can be seen here.
const LIST: &str = concat!(
    keys!(2),
    r"
local t = redis.call('TIME')
local alive = t[1] * 1000 + t[2] / 1000 - ARGV[1]
local ids = redis.call('ZRANGEBYLEX', KEYS[2], ARGV[2], '+', 'LIMIT', 0, ARGV[3])
local found = {tostring(#ids), ids[#ids] or ''}
for _, id in ipairs(ids) do
  local entry = redis.call('HGET', KEYS[1], id)
  if entry and KEYS[3] then
    local beat = redis.call('ZSCORE', KEYS[3], string.match(entry, '^%d+ (%S+)'))
    entry = beat and tonumber(beat) >= alive and entry
  end
  if entry then
    found[#found + 1] = id
    found[#found + 1] = entry
  end
end
return found
"
);

/// keys: nodes · args: lease, nodes… → those of them that live.
const LIVING: &str = r"
local t = redis.call('TIME')
local alive = t[1] * 1000 + t[2] / 1000 - ARGV[1]
local living = {}
for i = 2, #ARGV do
  local beat = redis.call('ZSCORE', KEYS[1], ARGV[i])
  if beat and tonumber(beat) >= alive then living[#living + 1] = ARGV[i] end
end
return living
";

/// keys: nodes · args: lease, node, publish, registered → whether the node's own lease had ended or was never there,
/// nodes whose lease has ended. A node that comes back after its own had ended brings its entries back all at once.
const BEAT: &str = r"
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local before = redis.call('ZSCORE', KEYS[1], ARGV[2])
local ended = before and tonumber(before) < now - ARGV[1]
if ended then redis.call(ARGV[3], ARGV[4], 'missed') end
redis.call('ZADD', KEYS[1], now, ARGV[2])
local dead = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', '(' .. string.format('%.0f', now - ARGV[1]))
return {(ended or not before) and 1 or 0, dead}
";

/// keys: live, ids, orgs · args: org, node, publish, registered, devices… → for each its epoch, '' if it is not that node's.
const REAP: &str = concat!(
    keys!(3),
    r"
local reaped = {}
for i = 5, #ARGV do
  local entry = redis.call('HGET', KEYS[1], ARGV[i])
  local epoch, node, digest
  if entry then epoch, node, digest = string.match(entry, '^(%d+) (%S+) (%S+)') end
  if node == ARGV[2] then
    redis.call('HDEL', KEYS[1], ARGV[i])
    redis.call('ZREM', KEYS[2], ARGV[i])
    if digest ~= '-' then redis.call(ARGV[3], ARGV[4], ARGV[1] .. ' - ' .. ARGV[i]) end
    reaped[i - 4] = epoch
  else
    reaped[i - 4] = ''
  end
end
if redis.call('HLEN', KEYS[1]) == 0 then redis.call('SREM', KEYS[3], ARGV[1]) end
return reaped
"
);

/// keys: trust, revoked, version · args: keys or '', now, then token and expiry in turn.
const ENTRUST: &str = concat!(
    keys!(3),
    r"
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
"
);

/// keys: turns · args: group, how many there may be, how long one waits, then names and values → its place in the
/// order, '' when there are too many. Of those that nobody took in time, behind the last that anybody took, some make way.
const BEGIN: &str = r"
if redis.call('XLEN', KEYS[1]) >= tonumber(ARGV[2]) then
  local t = redis.call('TIME')
  local stale = string.format('%.0f', t[1] * 1000 + math.floor(t[2] / 1000) - ARGV[3])
  local last = '0-0'
  for _, group in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
    local about = {}
    for i = 1, #group, 2 do about[group[i]] = group[i + 1] end
    if about['name'] == ARGV[1] then last = about['last-delivered-id'] end
  end
  for _, waiting in ipairs(redis.call('XRANGE', KEYS[1], '(' .. last, stale, 'COUNT', 100)) do
    redis.call('XDEL', KEYS[1], waiting[1])
  end
  if redis.call('XLEN', KEYS[1]) >= tonumber(ARGV[2]) then return '' end
end
return redis.call('XADD', KEYS[1], '*', unpack(ARGV, 4))
";

/// keys: turns · args: group, taker, turns… → now, then for each how often it was delivered, as Redis counts it; 0 if it
/// is not the taker's.
const TAKEN: &str = r"
local t = redis.call('TIME')
local known = {}
for i = 3, #ARGV do
  local held = redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[i], ARGV[i], 1, ARGV[2])
  known[i - 2] = held[1] and held[1][4] or 0
end
return {t[1] * 1000 + math.floor(t[2] / 1000), known}
";

/// keys: turns · args: group, taker, what is counted for one that acted, then turn and how often it had been taken in
/// turn → which of them are the taker's still, counted from 0, their leases renewed.
const KEEP: &str = r"
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

/// keys: turns · args: group, taker, what is counted for one that acted, turn, how often it had been taken → whether it is
/// the taker's still. That it acted is kept in Redis's own count of deliveries, so that it is wherever the stream is.
const ACTED: &str = r"
local held = redis.pcall('XPENDING', KEYS[1], ARGV[1], ARGV[4], ARGV[4], 1, ARGV[2])
if held.err or not held[1] or held[1][4] % ARGV[3] ~= tonumber(ARGV[5]) then return 0 end
if #redis.call('XRANGE', KEYS[1], ARGV[4], ARGV[4]) == 0 then return 0 end
local count = string.format('%.0f', ARGV[3] + ARGV[5])
redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, ARGV[4], 'RETRYCOUNT', count, 'JUSTID')
return 1
";

/// keys: turns · args: group, taker, what is counted for one that acted, turn, how often it had been taken.
const END: &str = r"
local held = redis.pcall('XPENDING', KEYS[1], ARGV[1], ARGV[4], ARGV[4], 1, ARGV[2])
if held.err or not held[1] or held[1][4] % ARGV[3] ~= tonumber(ARGV[5]) then return 0 end
redis.call('XACK', KEYS[1], ARGV[1], ARGV[4])
redis.call('XDEL', KEYS[1], ARGV[4])
return 1
";

/// keys: a stream · args: group, entries… Both at once: what is deleted and not acknowledged is looked at for ever by
/// Redis 6, what is acknowledged and not deleted is given to nobody.
const STRIKE: &str = r"
for i = 2, #ARGV do
  redis.call('XACK', KEYS[1], ARGV[1], ARGV[i])
  redis.call('XDEL', KEYS[1], ARGV[i])
end
return 1
";

/// keys: conversation, conversations, those of its organisation · args: name, the version that is to stand or '', bytes,
/// how long until it is due and until it ends, how many there may be of the organisation and of all, what the key of each
/// and of each organisation's begins with, how long each is kept when it is due → its version or '', how many others went
/// for it before their time. Versions are microseconds of Redis's clock, and grow even if that steps back. For one too many
/// goes one that has ended, else the one that would be due first of those that are not; a lease counts only among all, so
/// such a one is passed over.
const KEEP_CONVERSATION: &str = concat!(
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

/// keys: conversation, conversations, those of its organisation · args: name, version → whether it stood.
const DROP_CONVERSATION: &str = concat!(
    keys!(3),
    r"
if string.match(redis.call('GETRANGE', KEYS[1], 0, 31), '^%d+') ~= ARGV[2] then return 0 end
redis.call('DEL', KEYS[1])
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('ZREM', KEYS[3], ARGV[1])
return 1
"
);

/// keys: conversations · args: what the key of each begins with, how many, lease, what the key of each organisation's
/// begins with, how long each is kept when it is due → name and value of those that are due. Those that have ended are
/// taken out, some at a time; one that has not and is not here is at another shard, and is left alone.
const DUE: &str = r"
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local given = {}
for _, name in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, ARGV[2] + 1000)) do
  if #given >= tonumber(ARGV[2]) then break end
  local value = redis.call('GET', ARGV[1] .. name)
  if value then
    redis.call('ZADD', KEYS[1], now + ARGV[3], name)
    given[#given + 1] = {name, value}
  else
    local theirs = ARGV[4] .. string.match(name, '^[^/]*')
    local due = redis.call('ZSCORE', theirs, name) or redis.call('ZSCORE', KEYS[1], name)
    if due + ARGV[5] <= now then
      redis.call('ZREM', KEYS[1], name)
      redis.call('ZREM', theirs, name)
    end
  end
end
return given
";

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(command: &str, expected: Option<&str>) {
        let mut words = command.split(' ');
        let mut said = redis::cmd(words.next().unwrap());
        said.arg(words.collect::<Vec<_>>());
        let one = with_one_key(&said).map(|one| {
            let parts = one.args_iter().map(|part| match part {
                Arg::Simple(part) => str::from_utf8(part).unwrap().to_owned(),
                _ => panic!("no command of ours has such a part"),
            });
            parts.collect::<Vec<_>>().join(" ")
        });
        assert_eq!(one.as_deref(), expected, "{command}");
    }

    #[test]
    fn keys_become_arguments() {
        check("EVALSHA hash 3 a b c x y", Some("EVALSHA hash 1 a b c x y"));
        check("EVALSHA hash 1 a x", None);
        check("GET a", None);
        check("EVALSHA hash", None);
    }
}

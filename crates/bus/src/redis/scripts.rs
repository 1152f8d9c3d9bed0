//! Lua scripts: what must happen in Redis atomically.
//!
//! A script that changes the services of an entry publishes the change in the same step: with the
//! command in `publish`, on the channel in `registered`, as `{org} {digest or -} {device}`.
//! Invariant: the keys of a script, and its channel, are in one slot of a cluster; no script takes
//! time in proportion to anything unbounded; a key that a script finds by a name in a set may be
//! at another shard while its slot moves, so its absence alone does not mean that it is gone.

mod turns;

use redis::{Arg, Cmd, Script};

/// How long a node counts as alive after the last renewal of its lease.
pub(super) const LEASE_MS: u64 = 9_000;

/// All scripts, by name.
pub(super) struct Scripts {
    pub(super) claim: Script,
    pub(super) upsert: Script,
    pub(super) release: Script,
    pub(super) find: Script,
    pub(super) list: Script,
    pub(super) filter_alive: Script,
    pub(super) renew_lease: Script,
    pub(super) remove_dead: Script,
    pub(super) publish_keys: Script,
    pub(super) publish_suspended: Script,
    pub(super) enqueue_turn: Script,
    pub(super) admit_turns: Script,
    pub(super) list_postponed: Script,
    pub(super) claim_postponed: Script,
    pub(super) renew_turns: Script,
    pub(super) mark_side_effects: Script,
    pub(super) complete_turn: Script,
    pub(super) delete_turns: Script,
    pub(super) delete_entries: Script,
    pub(super) save_conversation: Script,
    pub(super) delete_conversation: Script,
    pub(super) claim_due_conversations: Script,
}

impl Scripts {
    pub(super) fn new() -> Self {
        Self {
            claim: Script::new(CLAIM),
            upsert: Script::new(UPSERT),
            release: Script::new(RELEASE),
            find: Script::new(FIND),
            list: Script::new(LIST),
            filter_alive: Script::new(FILTER_ALIVE),
            renew_lease: Script::new(RENEW_LEASE),
            remove_dead: Script::new(REMOVE_DEAD),
            publish_keys: Script::new(PUBLISH_KEYS),
            publish_suspended: Script::new(PUBLISH_SUSPENDED),
            enqueue_turn: Script::new(turns::ENQUEUE_TURN),
            admit_turns: Script::new(turns::ADMIT_TURNS),
            list_postponed: Script::new(turns::LIST_POSTPONED),
            claim_postponed: Script::new(turns::CLAIM_POSTPONED),
            renew_turns: Script::new(turns::RENEW_TURNS),
            mark_side_effects: Script::new(turns::MARK_SIDE_EFFECTS),
            complete_turn: Script::new(turns::COMPLETE_TURN),
            delete_turns: Script::new(turns::DELETE_TURNS),
            delete_entries: Script::new(DELETE_ENTRIES),
            save_conversation: Script::new(SAVE_CONVERSATION),
            delete_conversation: Script::new(DELETE_CONVERSATION),
            claim_due_conversations: Script::new(CLAIM_DUE_CONVERSATIONS),
        }
    }

    pub(super) fn all(&self) -> [(&Script, &'static str); 22] {
        [
            (&self.claim, CLAIM),
            (&self.upsert, UPSERT),
            (&self.release, RELEASE),
            (&self.find, FIND),
            (&self.list, LIST),
            (&self.filter_alive, FILTER_ALIVE),
            (&self.renew_lease, RENEW_LEASE),
            (&self.remove_dead, REMOVE_DEAD),
            (&self.publish_keys, PUBLISH_KEYS),
            (&self.publish_suspended, PUBLISH_SUSPENDED),
            (&self.enqueue_turn, turns::ENQUEUE_TURN),
            (&self.admit_turns, turns::ADMIT_TURNS),
            (&self.list_postponed, turns::LIST_POSTPONED),
            (&self.claim_postponed, turns::CLAIM_POSTPONED),
            (&self.renew_turns, turns::RENEW_TURNS),
            (&self.mark_side_effects, turns::MARK_SIDE_EFFECTS),
            (&self.complete_turn, turns::COMPLETE_TURN),
            (&self.delete_turns, turns::DELETE_TURNS),
            (&self.delete_entries, DELETE_ENTRIES),
            (&self.save_conversation, SAVE_CONVERSATION),
            (&self.delete_conversation, DELETE_CONVERSATION),
            (&self.claim_due_conversations, CLAIM_DUE_CONVERSATIONS),
        ]
    }
}

/// `EVALSHA` with these keys; the caller appends the arguments.
pub(super) fn call(script: &Script, keys: &[String]) -> Cmd {
    let mut cmd = redis::cmd("EVALSHA");
    cmd.arg(script.get_hash()).arg(keys.len()).arg(keys);
    cmd
}

/// The same command, with its first key as the only one that Redis knows of.
///
/// It is for a server that imports a slot, when the former owner reported that none of the keys
/// is there. Then a key that is missing at the importing server does not exist anywhere, but that
/// server would refuse a command with several keys. `None` for anything but a script with more
/// than one key.
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

/// Lua code that moves the keys of which Redis does not know from the first arguments to `KEYS`:
/// see [`with_one_key`].
macro_rules! keys {
    ($count:literal) => {
        concat!(
            "while #KEYS < ",
            $count,
            " do KEYS[#KEYS + 1] = table.remove(ARGV, 1) end"
        )
    };
}

/// keys: live, ids, orgs · args: device, node, org, publish, registered → epoch, previous entry.
/// Epochs are microseconds of Redis's clock, and grow even if the clock steps back.
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

/// keys: live, ids, orgs · args: device, node, org, epoch, digest, publish, registered → the newer
/// epoch that is stored, or ''.
const UPSERT: &str = concat!(
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

/// keys: live, and nodes where one server has both · args: lease, devices… → the entry of each; ''
/// when there is none, or when its node is known to be dead.
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

/// keys: live, ids, and nodes where one server has them all · args: lease, from, limit → how many
/// ids were scanned, the last of them, then device and entry of those whose node is not known to
/// be dead.
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

/// keys: nodes · args: lease, nodes… → those of them that are alive.
const FILTER_ALIVE: &str = r"
local t = redis.call('TIME')
local alive = t[1] * 1000 + t[2] / 1000 - ARGV[1]
local living = {}
for i = 2, #ARGV do
  local beat = redis.call('ZSCORE', KEYS[1], ARGV[i])
  if beat and tonumber(beat) >= alive then living[#living + 1] = ARGV[i] end
end
return living
";

/// keys: nodes · args: lease, node, publish, registered → whether the node's own lease had expired
/// or did not exist, and the nodes whose lease has expired. A node that returns after its lease
/// had expired makes all of its entries visible again, so it publishes `missed`.
const RENEW_LEASE: &str = r"
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local before = redis.call('ZSCORE', KEYS[1], ARGV[2])
local ended = before and tonumber(before) < now - ARGV[1]
if ended then redis.call(ARGV[3], ARGV[4], 'missed') end
redis.call('ZADD', KEYS[1], now, ARGV[2])
local dead = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', '(' .. string.format('%.0f', now - ARGV[1]))
return {(ended or not before) and 1 or 0, dead}
";

/// keys: live, ids, orgs · args: org, node, publish, registered, devices… → the epoch of each
/// removed entry; '' for an entry that is not the node's.
const REMOVE_DEAD: &str = concat!(
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

/// keys: keys, revoked, version · args: keys or '', now, then token and expiry in turn.
const PUBLISH_KEYS: &str = concat!(
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

/// keys: suspended, version · args: suspended organisations in JSON → 1.
const PUBLISH_SUSPENDED: &str = concat!(
    keys!(2),
    r"
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  redis.call('SET', KEYS[1], ARGV[1])
  local t = redis.call('TIME')
  redis.call('SET', KEYS[2], string.format('%.0f', t[1] * 1000000 + t[2]))
end
return 1
"
);

/// keys: a stream · args: group, entries… Acknowledges and deletes together: Redis 6 scans an entry
/// that is deleted only for ever, and never delivers one that is acknowledged only.
const DELETE_ENTRIES: &str = r"
for i = 2, #ARGV do
  redis.call('XACK', KEYS[1], ARGV[1], ARGV[i])
  redis.call('XDEL', KEYS[1], ARGV[i])
end
return 1
";

/// keys: conversation, conversations, those of its organisation · args: name, the version to
/// replace or '', bytes, time until it is due and until it expires, the maximum per organisation
/// and in total, the prefixes of the keys of conversations and of organisations' sets, the TTL of
/// a due conversation → its version or '', and how many others were evicted before their time.
/// Versions are microseconds of Redis's clock, and grow even if the clock steps back. Evicted is
/// one that has expired, else the one that would be due first of those that are not due. A lease
/// counts in the set of all conversations only, so leased ones are skipped there.
const SAVE_CONVERSATION: &str = concat!(
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
const DELETE_CONVERSATION: &str = concat!(
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
/// prefix of organisations' sets, the TTL of a due conversation → name and value of those that are
/// due. Expired ones are removed, a limited number at a time. One that is missing and has not
/// expired is at another shard, and stays.
const CLAIM_DUE_CONVERSATIONS: &str = r"
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
        let mut parts = command.split(' ');
        let mut original = redis::cmd(parts.next().unwrap());
        original.arg(parts.collect::<Vec<_>>());
        let one = with_one_key(&original).map(|one| {
            let parts = one.args_iter().map(|part| match part {
                Arg::Simple(part) => str::from_utf8(part).unwrap().to_owned(),
                _ => panic!("commands have simple arguments only"),
            });
            parts.collect::<Vec<_>>().join(" ")
        });
        assert_eq!(one.as_deref(), expected, "{command}");
    }

    #[test]
    fn further_keys_become_arguments() {
        check("EVALSHA hash 3 a b c x y", Some("EVALSHA hash 1 a b c x y"));
        check("EVALSHA hash 1 a x", None);
        check("GET a", None);
        check("EVALSHA hash", None);
    }
}

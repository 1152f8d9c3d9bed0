//! Lua scripts: what must happen in Redis atomically.
//!
//! A script that changes the services of an entry publishes the change in the same step: with the
//! command in `publish`, on the channel in `registered`, as `{org} {digest or -} {device}`.
//! Invariant: the keys of a script, and its channel, are in one slot of a cluster; no script takes
//! time in proportion to anything unbounded; a key that a script finds by a name in a set may be
//! at another shard while its slot moves, so its absence alone does not mean that it is gone.

mod conversations;
mod live;
mod turns;

use redis::{Arg, Cmd, Script};

use crate::backend::LEASE;

/// [`LEASE`] as the scripts expect it.
pub(super) const LEASE_MS: u64 = LEASE.as_secs() * 1_000;

/// All scripts, by name.
pub(super) struct Scripts {
    pub(super) claim: Script,
    pub(super) upsert: Script,
    pub(super) release: Script,
    pub(super) find: Script,
    pub(super) list: Script,
    pub(super) read_leases: Script,
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
    pub(super) append_events: Script,
    pub(super) delete_events: Script,
    pub(super) keep_log: Script,
    pub(super) append_log: Script,
    pub(super) read_log: Script,
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
            read_leases: Script::new(READ_LEASES),
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
            append_events: Script::new(APPEND_EVENTS),
            delete_events: Script::new(DELETE_EVENTS),
            keep_log: Script::new(live::KEEP_LOG),
            append_log: Script::new(live::APPEND_LOG),
            read_log: Script::new(live::READ_LOG),
            save_conversation: Script::new(conversations::SAVE_CONVERSATION),
            delete_conversation: Script::new(conversations::DELETE_CONVERSATION),
            claim_due_conversations: Script::new(conversations::CLAIM_DUE_CONVERSATIONS),
        }
    }

    pub(super) fn all(&self) -> [(&Script, &'static str); 27] {
        [
            (&self.claim, CLAIM),
            (&self.upsert, UPSERT),
            (&self.release, RELEASE),
            (&self.find, FIND),
            (&self.list, LIST),
            (&self.read_leases, READ_LEASES),
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
            (&self.append_events, APPEND_EVENTS),
            (&self.delete_events, DELETE_EVENTS),
            (&self.keep_log, live::KEEP_LOG),
            (&self.append_log, live::APPEND_LOG),
            (&self.read_log, live::READ_LOG),
            (&self.save_conversation, conversations::SAVE_CONVERSATION),
            (
                &self.delete_conversation,
                conversations::DELETE_CONVERSATION,
            ),
            (
                &self.claim_due_conversations,
                conversations::CLAIM_DUE_CONVERSATIONS,
            ),
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
use keys;

/// Lua code for scripts whose fourth key has an organisation's registrations. `drop` ends the use of
/// a registration by an entry that is removed or replaced; with its last entry, the text is deleted.
/// It follows a deletion where there is one: a full Redis then lets it change a number.
///
/// An entry that is counted there ends with ` +`. Nodes of earlier releases store the texts
/// themselves, write entries without that, and ignore it: when they replace or remove a counted
/// entry, it stays counted, and its text stored. So the hash is deleted where the last entry of an
/// organisation is removed. An organisation of which a device is always connected keeps what such
/// nodes left behind until all of its devices are disconnected once.
macro_rules! registrations {
    () => {
        r"
local function drop(entry)
  local digest = entry and string.match(entry, '^%S+ %S+ (%S+) %+$')
  if not digest or redis.call('HINCRBY', KEYS[4], '#' .. digest, -1) > 0 then return end
  local size = redis.call('HSTRLEN', KEYS[4], digest)
  redis.call('HDEL', KEYS[4], digest, '#' .. digest)
  if redis.call('HINCRBY', KEYS[4], 'bytes', -size) <= 0 then redis.call('DEL', KEYS[4]) end
end
"
    };
}

/// keys: live, ids, orgs · args: device, node, org, limit, the node's last epoch → epoch, previous
/// entry, whether the connection is entered; or '' and the number of entries, if the device has none
/// and there are as many as the limit allows (0: any number). A registered connection keeps its entry
/// until the new one has registered. Epochs are microseconds of Redis's clock. If the clock steps back,
/// they grow for each node, and for a device with an entry.
const CLAIM: &str = concat!(
    keys!(3),
    r"
local t = redis.call('TIME')
local epoch = t[1] * 1000000 + t[2]
local former = redis.call('HGET', KEYS[1], ARGV[1])
local limit = tonumber(ARGV[4])
if not former and limit > 0 then
  local count = redis.call('HLEN', KEYS[1])
  if count >= limit then return {'', tostring(count), 0} end
end
local last = tonumber(ARGV[5])
if former then last = math.max(last, tonumber(string.match(former, '^%d+'))) end
local text = string.format('%.0f', math.max(epoch, last + 1))
if former and string.sub(former, -2) ~= ' -' then return {text, former, 0} end
redis.call('HSET', KEYS[1], ARGV[1], text .. ' ' .. ARGV[2] .. ' -')
redis.call('ZADD', KEYS[2], 0, ARGV[1])
redis.call('SADD', KEYS[3], ARGV[3])
return {text, former or '', 1}
"
);

/// keys: live, ids, orgs, services · args: device, node, org, epoch, digest, publish, registered,
/// text or '', the most bytes of all texts → the newer epoch that is stored; 'missing' when the text
/// is not stored and not given; 'full' when it does not fit; 'new' when there was no entry; 'was NODE'
/// when an older connection's entry was replaced; or '' when the entry was this connection's. Two
/// connections have the same epoch if the clock stepped back between their claims: the first that is
/// entered wins.
const UPSERT: &str = concat!(
    keys!(4),
    registrations!(),
    r"
local standing = redis.call('HGET', KEYS[1], ARGV[1])
local before, answer = '-', 'new'
if standing then
  local epoch, node
  epoch, node, before = string.match(standing, '^(%d+) (%S+) (%S+)')
  if tonumber(epoch) > tonumber(ARGV[4]) then return epoch end
  if epoch == ARGV[4] and node ~= ARGV[2] then return string.format('%.0f', epoch + 1) end
  answer = epoch == ARGV[4] and '' or 'was ' .. node
end
local mark = ''
if ARGV[5] ~= '-' then
  mark = ' +'
  if redis.call('HEXISTS', KEYS[4], ARGV[5]) == 0 then
    if ARGV[8] == '' then return 'missing' end
    local bytes = tonumber(redis.call('HGET', KEYS[4], 'bytes') or '0') + #ARGV[8]
    if redis.call('HGET', KEYS[4], '#' .. before) == '1' then
      bytes = bytes - redis.call('HSTRLEN', KEYS[4], before)
    end
    if bytes > tonumber(ARGV[9]) then return 'full' end
    redis.call('HSET', KEYS[4], ARGV[5], ARGV[8])
    redis.call('HINCRBY', KEYS[4], 'bytes', #ARGV[8])
  end
  redis.call('HINCRBY', KEYS[4], '#' .. ARGV[5], 1)
end
drop(standing)
redis.call('HSET', KEYS[1], ARGV[1], ARGV[4] .. ' ' .. ARGV[2] .. ' ' .. ARGV[5] .. mark)
redis.call('ZADD', KEYS[2], 0, ARGV[1])
redis.call('SADD', KEYS[3], ARGV[3])
if before ~= ARGV[5] then
  redis.call(ARGV[6], ARGV[7], ARGV[3] .. ' ' .. ARGV[5] .. ' ' .. ARGV[1])
end
return answer
"
);

/// keys: live, ids, orgs, services · args: device, org, epoch, publish, registered, for how many
/// milliseconds the device is moving, the key that marks it → whether the entry was removed. That key is
/// no key of the script: it is usually missing, and a slot that migrates refuses scripts some of whose
/// keys are.
const RELEASE: &str = concat!(
    keys!(4),
    registrations!(),
    r"
local standing = redis.call('HGET', KEYS[1], ARGV[1])
if not standing or string.match(standing, '^%d+') ~= ARGV[3] then return 0 end
redis.call('HDEL', KEYS[1], ARGV[1])
drop(standing)
redis.call('ZREM', KEYS[2], ARGV[1])
if redis.call('HLEN', KEYS[1]) == 0 then
  redis.call('SREM', KEYS[3], ARGV[2])
  redis.call('DEL', KEYS[4])
end
if string.sub(standing, -2) ~= ' -' then
  redis.call(ARGV[4], ARGV[5], ARGV[2] .. ' - ' .. ARGV[1])
end
if tonumber(ARGV[6]) > 0 then redis.pcall('SET', ARGV[7], '1', 'PX', ARGV[6]) end
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

/// keys: live, ids, and nodes where one server has them all · args: lease, from, limit, to → how many
/// ids were scanned, the last of them, then device and entry of those whose node is not known to
/// be dead.
const LIST: &str = concat!(
    keys!(2),
    r"
local t = redis.call('TIME')
local alive = t[1] * 1000 + t[2] / 1000 - ARGV[1]
local ids = redis.call('ZRANGEBYLEX', KEYS[2], ARGV[2], ARGV[4], 'LIMIT', 0, ARGV[3])
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

/// keys: nodes · args: lease, nodes… → how long the lease of each lasts, in milliseconds; 0 for a node
/// without one.
const READ_LEASES: &str = r"
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local left = {}
for i = 2, #ARGV do
  local beat = redis.call('ZSCORE', KEYS[1], ARGV[i])
  left[i - 1] = beat and math.max(beat + ARGV[1] - now, 0) or 0
end
return left
";

/// keys: nodes, edges · args: lease, node, publish, registered, whether the node accepts devices →
/// whether the node's own lease had expired or did not exist, the nodes whose lease has expired, the
/// time in microseconds, and how many other nodes accept devices. A node that returns after its lease
/// had expired makes all of its entries visible again, so it publishes `missed`. The first write is a
/// deletion: a full Redis then lets the script renew the lease.
const RENEW_LEASE: &str = concat!(
    keys!(2),
    r"
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local before = redis.call('ZSCORE', KEYS[1], ARGV[2])
local ended = before and tonumber(before) < now - ARGV[1]
if ended then redis.call(ARGV[3], ARGV[4], 'missed') end
redis.call('ZREM', KEYS[2], ARGV[2])
redis.call('ZADD', KEYS[1], now, ARGV[2])
local dead = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', '(' .. string.format('%.0f', now - ARGV[1]))
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now - ARGV[1])
local others = redis.call('ZCARD', KEYS[2])
if ARGV[5] == '1' then redis.call('ZADD', KEYS[2], now, ARGV[2]) end
return {(ended or not before) and 1 or 0, dead, t[1] * 1000000 + t[2], others}
"
);

/// keys: live, ids, orgs, services · args: org, node, publish, registered, devices… → the epoch of each
/// removed entry; '' for an entry that is not the node's.
const REMOVE_DEAD: &str = concat!(
    keys!(4),
    registrations!(),
    r"
local reaped = {}
for i = 5, #ARGV do
  local entry = redis.call('HGET', KEYS[1], ARGV[i])
  local epoch, node, digest
  if entry then epoch, node, digest = string.match(entry, '^(%d+) (%S+) (%S+)') end
  if node == ARGV[2] then
    redis.call('HDEL', KEYS[1], ARGV[i])
    drop(entry)
    redis.call('ZREM', KEYS[2], ARGV[i])
    if digest ~= '-' then redis.call(ARGV[3], ARGV[4], ARGV[1] .. ' - ' .. ARGV[i]) end
    reaped[i - 4] = epoch
  else
    reaped[i - 4] = ''
  end
end
if redis.call('HLEN', KEYS[1]) == 0 then
  redis.call('SREM', KEYS[3], ARGV[1])
  redis.call('DEL', KEYS[4])
end
return reaped
"
);

/// keys: keys, revoked, version, signed keys · args: keys or '', for how many seconds a revocation is
/// kept after the expiry of its token, signed keys or '', then token and expiry in turn.
const PUBLISH_KEYS: &str = concat!(
    keys!(4),
    r"
local t = redis.call('TIME')
local changed = false
if ARGV[1] ~= '' and redis.call('GET', KEYS[1]) ~= ARGV[1] then
  redis.call('SET', KEYS[1], ARGV[1])
  changed = true
end
if ARGV[3] ~= '' and redis.call('GET', KEYS[4]) ~= ARGV[3] then
  redis.call('SET', KEYS[4], ARGV[3])
  changed = true
end
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', t[1] - ARGV[2])
for i = 4, #ARGV, 2 do
  if redis.call('ZADD', KEYS[2], 'NX', ARGV[i + 1], ARGV[i]) == 1 then changed = true end
end
if changed or redis.call('EXISTS', KEYS[3]) == 0 then
  redis.call('SET', KEYS[3], string.format('%.0f', t[1] * 1000000 + t[2]))
end
return 1
"
);

/// keys: suspended, version, version of suspended · args: suspended organisations in JSON, their
/// version → 1, or 0 if a later version is stored.
const PUBLISH_SUSPENDED: &str = concat!(
    keys!(3),
    r"
if tonumber(redis.call('GET', KEYS[3]) or '0') > tonumber(ARGV[2]) then return 0 end
redis.call('SET', KEYS[3], ARGV[2])
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

/// Lua code that resets the bytes of device events when there is none. Nodes of earlier releases add
/// and delete events without counting them; the stream is normally empty within seconds. The hash is
/// not deleted: a server whose slot migrates does not create it again.
macro_rules! reset_event_bytes {
    () => {
        "
if redis.call('XLEN', KEYS[1]) == 0 and redis.call('HGET', KEYS[2], 'total') ~= '0' then
  redis.call('HSET', KEYS[2], 'total', 0)
  for _, org in ipairs(redis.call('HKEYS', KEYS[2])) do
    if org ~= 'total' then redis.call('HDEL', KEYS[2], org) end
  end
end
"
    };
}

/// keys: events, their bytes · args: the most bytes of one organisation and of all, then for each
/// event its organisation and JSON → the numbers, from 1, of the events that do not fit. An event
/// counts as its JSON and 64 bytes, for the entry of the stream.
const APPEND_EVENTS: &str = concat!(
    keys!(2),
    reset_event_bytes!(),
    r"
local refused, used, added, sum = {}, {}, {}, 0
local total = tonumber(redis.call('HGET', KEYS[2], 'total') or '0')
for i = 3, #ARGV, 2 do
  local org, size = ARGV[i], #ARGV[i + 1] + 64
  used[org] = used[org] or tonumber(redis.call('HGET', KEYS[2], org) or '0')
  if used[org] + size > tonumber(ARGV[1]) or total + sum + size > tonumber(ARGV[2]) then
    refused[#refused + 1] = (i - 1) / 2
  else
    redis.call('XADD', KEYS[1], '*', 'fact', ARGV[i + 1])
    used[org] = used[org] + size
    added[org] = (added[org] or 0) + size
    sum = sum + size
  end
end
for org, size in pairs(added) do redis.call('HINCRBY', KEYS[2], org, size) end
if sum > 0 then redis.call('HINCRBY', KEYS[2], 'total', sum) end
return refused
"
);

/// keys: events, their bytes · args: group, then for each event its entry, its organisation and the
/// length of its JSON. Like [`DELETE_ENTRIES`].
const DELETE_EVENTS: &str = concat!(
    keys!(2),
    r"
for i = 2, #ARGV, 3 do
  redis.call('XACK', KEYS[1], ARGV[1], ARGV[i])
  if redis.call('XDEL', KEYS[1], ARGV[i]) == 1 then
    local size = ARGV[i + 2] + 64
    if redis.call('HINCRBY', KEYS[2], ARGV[i + 1], -size) <= 0 then
      redis.call('HDEL', KEYS[2], ARGV[i + 1])
    end
    redis.call('HINCRBY', KEYS[2], 'total', -size)
  end
end
",
    reset_event_bytes!(),
    "return 1"
);

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

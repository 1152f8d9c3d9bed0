//! Compatibility tests of the keys, channels and scripts in Redis.
//!
//! Nodes of two releases share one Redis during an upgrade. See `tests/compatibility` for the
//! frozen values.

use redis::{Script, Value};
use switchboard_protocol::id::OrgId;
use switchboard_test_support::{redis_server::RedisServer, snapshot};
use uuid::Uuid;

use super::{
    keys::{Keys, PARTS},
    scripts::Scripts,
};
use crate::node::NodeId;

#[test]
fn redis_keys_and_channels_keep_their_names() {
    let single = Keys::new("sb");
    let cluster = single.clone().sharded().unwrap();
    let (node, org) = (NodeId::from("edge~1"), OrgId::from_uuid(Uuid::from_u128(7)));
    let text = org.to_string();
    let mut lines = vec![
        format!(
            "publish {} {}",
            single.pubsub.publish, cluster.pubsub.publish
        ),
        format!(
            "subscribers {} {}",
            single.pubsub.count_subscribers, cluster.pubsub.count_subscribers
        ),
        format!("partitions {PARTS}"),
        format!("inbox {}", single.inbox(&node)),
        format!("broadcast {}", single.broadcast()),
        format!("echo {}", single.echo(&node)),
        format!("registrations-lost {}", single.lagged_channel()),
        format!("nodes {}", single.nodes()),
        format!("services {}", single.node_services(&node)),
        format!("status {}", single.node_status(&node)),
        format!("services-of-org {}", single.registrations(org)),
        format!("removal-lock {}", single.removal_lock(&node)),
        format!("count-lock {}", single.count_lock()),
        format!("count {}", single.device_count()),
        format!("directory {}", single.directory(org)),
        format!("device-ids {}", single.ids(org)),
        format!("token-keys {}", single.token_keys()),
        format!("signed-token-keys {}", single.signed_keys()),
        format!("revoked-tokens {}", single.revoked()),
        format!("token-keys-version {}", single.key_set_version()),
        format!("suspended-orgs {}", single.suspended_orgs()),
        format!("suspended-orgs-version {}", single.suspended_version()),
        format!("ticket-key {}", single.ticket_secret(7)),
        format!("quotas {}", single.quotas()),
        format!("device-events {}", single.events()),
        format!("device-event-bytes {}", single.event_bytes()),
        format!("turns {}", single.turns()),
        format!("conversations {}", single.conversations()),
        format!("conversations-of-org {}", single.org_conversations(&text)),
        format!("conversation {}", single.conversation("org/npc/device:a")),
    ];
    for number in [0, 1, 7, u128::MAX] {
        let part = Keys::part(OrgId::from_uuid(Uuid::from_u128(number)));
        lines.push(format!("partition-of-org {number:x} {part}"));
        lines.push(format!("orgs {}", single.orgs(part)));
        lines.push(format!("registrations {}", single.catalog_channel(part)));
    }
    snapshot::check("redis-keys.txt", lines);
    // A cluster uses the same names.
    assert_eq!(single.inbox(&node), cluster.inbox(&node));
    assert_eq!(single.catalog_channels().count(), usize::from(PARTS) + 1);
}

/// Commands and scripts in their order, each with the arguments that it is called with. `_` is a
/// space, `''` is empty.
const STEPS: &str = r#"
ZADD nodes 9999999999999 edge~1 1 edge~9
claim 3 live ids orgs toy-1 edge~1 org 0 0
claim 3 live ids orgs toy-1 edge~2 org 0 0
claim 1 live ids orgs toy-4 edge~1 org 3 0
claim 3 live ids orgs toy-8 edge~1 org 2 0
enter 4 live ids orgs services toy-2 edge~1 org 7 d1 PUBLISH changes text 9
enter 4 live ids orgs services toy-2 edge~2 org 6 d2 PUBLISH changes text 9
enter 4 live ids orgs services toy-3 edge~9 org 5 - PUBLISH changes text 9
HGET live toy-2
claim 3 live ids orgs toy-2 edge~2 org 1 0
HGET live toy-2
claim 3 live ids orgs toy-9 edge~1 org 0 8000000000000000
release 4 live ids orgs services toy-9 org 8000000000000001 PUBLISH changes 0 missing
enter 4 live ids orgs services toy-5 edge~1 org 7 d1 PUBLISH changes '' 9
enter 4 live ids orgs services toy-6 edge~1 org 7 d2 PUBLISH changes '' 9
enter 4 live ids orgs services toy-6 edge~1 org 7 d2 PUBLISH changes other_text 9
HGETALL services
enter 4 live ids orgs services toy-5 edge~1 org 7 - PUBLISH changes '' 9
enter 4 live ids orgs services toy-7 edge~1 org 7 d1 PUBLISH changes '' 9
enter 4 live ids orgs services toy-7 edge~1 org 7 d1 PUBLISH changes '' 9
enter 4 live ids orgs services toy-7 edge~2 org 7 d1 PUBLISH changes '' 9
enter 4 live ids orgs services toy-7 edge~2 org 8 d1 PUBLISH changes '' 9
release 4 live ids orgs services toy-7 org 8 PUBLISH changes 5000 moving
GET moving
SMEMBERS orgs
find 2 live nodes 9000 toy-2 toy-3 none
find 1 live 9000 toy-2 toy-3 none
list 3 live ids nodes 9000 (toy-1 10 +
list 3 live ids nodes 9000 [toy-2 10 (toy-5
list 2 live ids 9000 (toy-1 1 +
ZLEXCOUNT ids [toy-2 (toy-5
leases 1 nodes 2000000000000000 edge~1 nobody
leases 1 nodes 0 edge~9
release 4 live ids orgs services toy-2 org 6 PUBLISH changes 5000 missing
release 4 live ids orgs services toy-2 org 7 PUBLISH changes 0 missing
EXISTS missing
reap 4 live ids orgs services org edge~9 PUBLISH changes toy-3 none
EXISTS services
ZRANGE ids 0 -1
beat 2 nodes edges 9000 edge~3 PUBLISH changes 1
beat 2 nodes edges 9000 edge~9 PUBLISH changes 0
beat 2 nodes edges 9000 edge~3 PUBLISH changes 0
entrust 4 keys revoked version signed [] 100 jwt tok-1 200
GET keys
GET signed
ZRANGE revoked 0 -1 WITHSCORES
GET version
entrust 4 keys revoked version signed '' 300 ''
GET signed
ZCARD revoked
suspend 3 suspended version suspended-version ["org"] 20
suspend 3 suspended version suspended-version [] 19
GET suspended
GET suspended-version
GET version
XGROUP CREATE turns chat 0 MKSTREAM
XGROUP CREATE turns org 0
XADD turns 3-0 org org
XADD turns 4-0 org org
XREADGROUP GROUP chat node STREAMS turns >
XCLAIM turns org queue 0 3-0 4-0 FORCE JUSTID
begin 1 turns chat 3 2 1000 org '' '' org org text hi
begin 1 turns chat 2 9 1000 org '' '' org org text hi
begin 1 turns chat 3 2 1000 other '' '' org other text hi
XPENDING turns other
begin 1 turns chat 9 9 1000 other 9 1 org other text hi picture GIF89a
begin 1 turns chat 9 9 1000 other 9 1 org other text hi picture GIF89a
XPENDING turns pictures
DEL turns
XADD turns 5-0 text hi
XGROUP CREATE turns chat 0
XREADGROUP GROUP chat node STREAMS turns >
taken 1 turns chat node 5-0 org 0 6-0 org 1
postponed 1 turns chat
XPENDING turns chat
claim_postponed 1 turns chat node 9 org 1 other 1
taken 1 turns chat node 5-0 org 1
postponed 1 turns chat
keep 1 turns chat node 1000000 5-0 1 6-0 1
keep 1 turns chat other 1000000 5-0 1
acted 1 turns chat node 1000000 5-0 2
acted 1 turns chat node 1000000 5-0 1
taken 1 turns chat node 5-0 org 1
end 1 turns chat node 1000000 5-0 2 org
end 1 turns chat node 1000000 5-0 1 org
XLEN turns
XGROUP CREATE turns org 0
XADD turns 6-0 text hi
XCLAIM turns org queue 0 6-0 FORCE JUSTID
end_all 1 turns chat 6-0 org 7-0 org
XLEN turns
XADD turns 8-0 text hi
strike 1 turns chat 8-0 9-0
XLEN turns
tell 2 events event-bytes 70 100 org {} org {} other {}
HGETALL event-bytes
XLEN events
strike_events 2 events event-bytes control 1-0 org 2
HGETALL event-bytes
keep_conversation 4 conv:org/a conv conv:org sizes org/a '' bytes 1000 5000 conv: conv: 3600000 10 999 100 999
keep_conversation 4 conv:org/a conv conv:org sizes org/a 1 bytes 1000 5000 conv: conv: 3600000 10 999 100 999
keep_conversation 4 conv:org/b conv conv:org sizes org/b '' bytes 1000 5000 conv: conv: 3600000 1 999 100 999
GET conv:org/b
keep_conversation 4 conv:org/d conv conv:org sizes org/d '' more 1000 5000 conv: conv: 3600000 10 400 100 999
ZRANGE sizes 0 -1 WITHSCORES
SET conv:org/c 7_old
ZADD conv 1 org/c
ZADD conv:org 1 org/c
due 1 conv conv: 10 60000 conv: 3600000 8 1000 org 2
drop_conversation 4 conv:org/c conv conv:org sizes org/c 6
drop_conversation 4 conv:org/c conv conv:org sizes org/c 7
ZRANGE conv 0 -1
"#;

/// A reply as text; times of the server are masked.
fn show(reply: &Value) -> String {
    let text = |bytes: &[u8]| {
        let mut shown = String::new();
        for word in bytes.split_inclusive(|byte| !byte.is_ascii_digit()) {
            let digits = word.iter().take_while(|byte| byte.is_ascii_digit()).count();
            let mask = match digits {
                13 => "<ms>",
                16 => "<us>",
                // The number of a position within its millisecond.
                1.. if shown.ends_with("<ms>-") => "<n>",
                _ => {
                    shown.push_str(&word.escape_ascii().to_string());
                    continue;
                }
            };
            shown.push_str(mask);
            shown.push_str(&word[digits..].escape_ascii().to_string());
        }
        shown
    };
    match reply {
        Value::Array(all) => format!("[{}]", all.iter().map(show).collect::<Vec<_>>().join(", ")),
        Value::BulkString(bytes) => format!("\"{}\"", text(bytes)),
        Value::Int(number) => text(number.to_string().as_bytes()),
        other => format!("{other:?}"),
    }
}

fn named(scripts: &Scripts) -> [(&'static str, &Script); 24] {
    [
        ("claim", &scripts.claim),
        ("enter", &scripts.upsert),
        ("release", &scripts.release),
        ("find", &scripts.find),
        ("list", &scripts.list),
        ("leases", &scripts.read_leases),
        ("beat", &scripts.renew_lease),
        ("reap", &scripts.remove_dead),
        ("entrust", &scripts.publish_keys),
        ("suspend", &scripts.publish_suspended),
        ("begin", &scripts.enqueue_turn),
        ("taken", &scripts.admit_turns),
        ("postponed", &scripts.list_postponed),
        ("claim_postponed", &scripts.claim_postponed),
        ("keep", &scripts.renew_turns),
        ("acted", &scripts.mark_side_effects),
        ("end", &scripts.complete_turn),
        ("end_all", &scripts.delete_turns),
        ("strike", &scripts.delete_entries),
        ("tell", &scripts.append_events),
        ("strike_events", &scripts.delete_events),
        ("keep_conversation", &scripts.save_conversation),
        ("drop_conversation", &scripts.delete_conversation),
        ("due", &scripts.claim_due_conversations),
    ]
}

#[tokio::test]
async fn redis_scripts_keep_their_text_and_contract() {
    let server = RedisServer::start();
    let client = redis::Client::open(server.url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let scripts = Scripts::new();
    for (_, text) in scripts.all() {
        let mut load = redis::cmd("SCRIPT");
        load.arg("LOAD").arg(text);
        load.query_async::<Value>(&mut connection).await.unwrap();
    }
    let named = named(&scripts);
    let mut lines: Vec<String> = named
        .iter()
        .map(|(name, script)| format!("{name} sha1 {}", script.get_hash()))
        .collect();
    for step in STEPS.lines().filter(|line| !line.is_empty()) {
        let (name, rest) = step.split_once(' ').unwrap();
        let mut command = match named.iter().find(|(known, _)| *known == name) {
            Some((_, script)) => {
                let mut run = redis::cmd("EVALSHA");
                run.arg(script.get_hash());
                run
            }
            None => redis::cmd(name),
        };
        for word in rest.split(' ') {
            command.arg(if word == "''" {
                String::new()
            } else {
                word.replace('_', " ")
            });
        }
        let reply = command.query_async::<Value>(&mut connection).await;
        lines.push(format!("{step} -> {}", show(&reply.unwrap())));
    }
    for (name, _) in named {
        assert!(STEPS.contains(&format!("\n{name} ")), "{name} is not run");
    }
    snapshot::check("redis-scripts.txt", lines);
}

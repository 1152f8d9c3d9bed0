//! Compatibility of what a node sends to Redis and stores there, and of what it reads from there.
//!
//! Nodes of two releases share one Redis during an upgrade. See `tests/compatibility` for the
//! frozen values.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{BufRead as _, BufReader, Write as _},
    net::TcpStream,
    time::Duration,
};

use bytes::Bytes;
use redis::{Value, cmd};
use switchboard_bus::{
    Bus, CancelKey, CatalogEvent, DeviceEvent, Epoch, NewMessage, Played, PublishedKeys,
    QuotaLimits, Recording,
};
use switchboard_protocol::{
    id::{DeviceKey, TokenId},
    message::Picture,
    schema::Digest,
    token::{SignedKeySet, SigningKey},
};
use switchboard_runtime::quota::{Limits, Quota};
use switchboard_test_support::{eventually::eventually, snapshot};
use uuid::Uuid;

use crate::{
    conversations::{conversation_key, create, due, read},
    test_edge::{TestEdge, TestSystem, call, device, org},
    turns::{OTHER, TASK, TEST_TIMEOUT, cancel, claim, enqueue},
};

const LONG_DELAY: Duration = Duration::from_secs(600);
const FAR_FUTURE_S: u64 = 4_000_000_000;

/// Commands that change something or are seen by other nodes.
const WRITES: [&str; 9] = [
    "EVALSHA",
    "HSET",
    "HDEL",
    "PEXPIRE",
    "PUBLISH",
    "SET",
    "SUBSCRIBE",
    "XADD",
    "XGROUP",
];

/// The beginning of the names of the keys of tickets.
const TICKET_KEYS: &str = "test:{trust}:ticket-key:";

/// Every command that Redis receives, as `MONITOR` prints it.
struct Monitor(BufReader<TcpStream>);

impl Monitor {
    fn start(system: &TestSystem) -> Self {
        let mut socket = TcpStream::connect(system.redis_address()).unwrap();
        socket.write_all(b"MONITOR\r\n").unwrap();
        let mut monitor = Self(BufReader::new(socket));
        assert_eq!(monitor.line(), "+OK");
        monitor
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// The different writing commands about keys and channels of this test up to `ECHO end`.
    fn commands(mut self) -> BTreeSet<String> {
        let mut commands = BTreeSet::new();
        loop {
            let line = self.line();
            let Some((client, command)) = line.split_once("] ") else {
                continue;
            };
            if command == "\"ECHO\" \"end\"" {
                return commands;
            }
            // Reads are made when there is time for them; the contents show what they find.
            let is_write = WRITES
                .iter()
                .any(|name| command.starts_with(&format!("\"{name}\"")));
            // The second one reads the leases of nodes with cached entries; the last one has random keys.
            let is_periodic = ["{figures}", "\" \"1\" \"test:{nodes}\" ", TICKET_KEYS]
                .iter()
                .any(|part| command.contains(part));
            if is_write && command.contains("test:") && !client.ends_with("lua") && !is_periodic {
                commands.extend(each_event(&mask(&without_payload(command))));
            }
        }
    }
}

/// A command for each device event: how many are appended together depends on when they happen.
fn each_event(command: &str) -> Vec<String> {
    if !command.contains(r#""test:facts""#) || !command.contains(r#" "{\"kind\":"#) {
        return vec![command.to_owned()];
    }
    let mut parts = command.split(r#" "org_"#);
    let append = parts.next().unwrap_or_default();
    let events = parts.map(|event| format!(r#"{append} "org_{event}"#));
    events.collect()
}

/// The command without what another snapshot freezes: the bytes of messages between nodes.
fn without_payload(command: &str) -> String {
    match command.split_once(" \"\\x03") {
        Some((publish, _)) => format!("{publish} <message>"),
        None => command.to_owned(),
    }
}

/// The text without what differs in each run: times, incarnations of nodes, random ids.
fn mask(text: &str) -> String {
    let is_part = |letter: char| letter.is_ascii_hexdigit() || letter == '-';
    let mut masked = String::new();
    let mut rest = text;
    while let Some(start) = rest.find(is_part) {
        masked.push_str(&rest[..start]);
        rest = &rest[start..];
        let (word, behind) = rest.split_at(rest.find(|one| !is_part(one)).unwrap_or(rest.len()));
        let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        let (first, second) = word.split_once('-').unwrap_or((word, ""));
        masked.push_str(match word.len() {
            32 if masked.ends_with("~2.") => "<node>",
            36 if Uuid::parse_str(word).is_ok() => "<uuid>",
            10 if is_number(word) => "<s>",
            13 if is_number(word) => "<ms>",
            16 if is_number(word) => "<us>",
            15.. if first.len() == 13 && is_number(first) && is_number(second) => "<ms>-<n>",
            _ => word,
        });
        rest = behind;
    }
    masked + rest
}

/// All keys with their types and values.
async fn stored(system: &TestSystem) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for key in system.query::<Vec<String>>(cmd("KEYS").arg("test:*")).await {
        let kind: String = system.query(cmd("TYPE").arg(&key)).await;
        if key.starts_with(TICKET_KEYS) {
            all.insert(format!("{TICKET_KEYS}<period> {kind} <32 bytes>"));
            continue;
        }
        let mut read = match kind.as_str() {
            "string" => cmd("GET"),
            "hash" => cmd("HGETALL"),
            "set" => cmd("SMEMBERS"),
            "zset" => cmd("ZRANGE"),
            _ => cmd("XRANGE"),
        };
        read.arg(&key);
        match kind.as_str() {
            "zset" => read.arg(0).arg(-1).arg("WITHSCORES"),
            "stream" => read.arg("-").arg("+"),
            _ => &mut read,
        };
        let value = match system.query::<Value>(&read).await {
            // The order of entries depends on times, so each is a line.
            Value::Array(entries) if kind == "stream" => entries,
            Value::Array(members) if kind == "zset" => {
                let pairs = members.chunks(2).map(|pair| Value::Array(pair.to_vec()));
                pairs.collect()
            }
            Value::Array(fields) if kind == "hash" => {
                let mut pairs: Vec<Vec<Value>> = fields.chunks(2).map(<[_]>::to_vec).collect();
                pairs.sort_by_key(|pair| show(&pair[0]));
                vec![Value::Array(pairs.concat())]
            }
            value => vec![value],
        };
        for value in value {
            if !key.contains("{figures}") {
                all.insert(mask(&format!("{key} {kind} {}", show(&value))));
            }
        }
    }
    all
}

fn show(value: &Value) -> String {
    match value {
        Value::Array(all) => format!("[{}]", all.iter().map(show).collect::<Vec<_>>().join(", ")),
        Value::Map(all) => {
            let all: BTreeMap<_, _> = all.iter().map(|(k, v)| (show(k), show(v))).collect();
            format!("{all:?}")
        }
        Value::BulkString(bytes) => bytes.escape_ascii().to_string(),
        Value::SimpleString(text) => text.clone(),
        Value::Int(number) => number.to_string(),
        other => format!("{other:?}"),
    }
}

/// Publishes keys and quotas, connects devices, and calls one.
async fn use_directory(caller: &Bus, edge: &TestEdge) -> (DeviceKey, Epoch) {
    let key = SigningKey::from_seed(&[7; 32]);
    let token = TokenId::from_uuid(Uuid::from_u128(1));
    let keys = vec![key.verifying_key()];
    let set = SignedKeySet {
        keys: keys.clone(),
        sequence: 7,
        expires_at: FAR_FUTURE_S,
    };
    let signed = SigningKey::from_seed(&[9; 32]).sign_key_set(&set).ok();
    let keys = PublishedKeys { keys, signed };
    caller.publish_keys(keys, vec![]).await.unwrap();
    caller.revoke(token, FAR_FUTURE_S).await.unwrap();
    // Not of connected devices, whose quota becomes an argument of claims once a node has read it.
    let quotas = QuotaLimits {
        defaults: Limits(BTreeMap::from([(Quota::TurnsPerDay, 100)])),
        orgs: vec![(org(), Limits(BTreeMap::from([(Quota::ApiKeys, 5)])))],
        locales: Vec::new(),
        journal_params: Vec::new(),
        approving: Some(Vec::new()),
    };
    caller.publish_quotas(&quotas).await.unwrap();
    let (lamp, gone) = (device("toy-1"), device("toy-2"));
    edge.connect(&gone).await;
    edge.disconnect(&gone);
    let epoch = edge.connect(&lamp).await;
    edge.register(&lamp, "{\"echo\":{}}").await;
    let event = Bytes::from_static(b"{\"name\":\"button\"}");
    edge.bus.record_custom_event(lamp.clone(), epoch, event);
    let presence = caller.find(&lamp).await.unwrap().unwrap();
    assert!(caller.services(org(), &presence).await.unwrap().is_some());
    assert_eq!(caller.list(org(), None, 10).await.unwrap().len(), 1);
    call(caller, &lamp).await.unwrap();
    caller.cancel_call(CancelKey([3; 16])).await.unwrap();
    let prompts = CatalogEvent::Prompts { org: None };
    caller.publish_catalog_event(prompts).await.unwrap();
    (lamp, epoch)
}

/// Answers a turn, cancels one, and leaves a written and a spoken one waiting.
async fn use_turns(worker: &Bus, edge: &TestEdge, target: &(DeviceKey, Epoch)) {
    enqueue(edge, target, TASK, "现在几点了? ##END").await;
    let turn = claim(worker).await;
    let lost = worker.renew_turns(std::slice::from_ref(&turn.id)).await;
    assert!(lost.unwrap().is_empty());
    assert!(worker.mark_side_effects(&turn.id).await.unwrap());
    worker.send_text(&turn, "this");
    let replies = async || edge.replies();
    eventually(TEST_TIMEOUT, replies, |replies| replies.contains("this")).await;
    worker.complete_turn(&turn.id).await.unwrap();
    enqueue(edge, target, OTHER, "unwanted").await;
    cancel(edge, target, Some(OTHER)).await;
    let waits = NewMessage {
        text: "waits".to_owned(),
        picture: Picture::parse("GIF89a".into()),
        ..NewMessage::default()
    };
    let enqueued = edge.bus.enqueue_turn(&target.0, target.1, TASK, waits);
    enqueued.await.unwrap();
    let spoken = NewMessage {
        text: "spoken".to_owned(),
        is_spoken: true,
        played: Some(Played {
            message: "A story".to_owned(),
            words: "Once upon".to_owned(),
        }),
        audio_ms: 4_200,
        recording: Some(Recording {
            file: Bytes::from_static(b"OggS"),
            ms: 2_400,
        }),
        ..NewMessage::default()
    };
    let enqueued = edge.bus.enqueue_turn(&target.0, target.1, OTHER, spoken);
    enqueued.await.unwrap();
}

/// Deletes a conversation, stores one, and claims one.
async fn use_conversations(worker: &Bus) {
    let [deleted, stored, claimed] = [
        "npc_1/device:toy-1",
        "npc_1/device:toy-2",
        "npc_1/device:toy-3",
    ]
    .map(conversation_key);
    let version = create(worker, &deleted, "words", LONG_DELAY).await;
    let deleted = worker.delete_conversation(&deleted, version).await;
    assert!(deleted.unwrap());
    create(worker, &stored, "more words", LONG_DELAY).await;
    create(worker, &claimed, "soon", Duration::from_millis(1)).await;
    assert_eq!(due(worker, LONG_DELAY).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_commands_and_contents_are_unchanged() {
    let system = TestSystem::redis().await;
    let monitor = Monitor::start(&system);
    let caller = system.start_watcher("gateway").await;
    let edge = system.start_edge("edge").await;
    let target = use_directory(&caller, &edge).await;
    use_turns(&caller, &edge, &target).await;
    use_conversations(&caller).await;

    let events = cmd("XLEN").arg("test:facts").to_owned();
    let count = async || system.query::<u64>(&events).await;
    eventually(TEST_TIMEOUT, count, |count| *count == 5).await;
    snapshot::check("redis-contents.txt", stored(&system).await);
    let events = caller.read_events("one", 1, TEST_TIMEOUT).await.unwrap();
    let acknowledged = caller.ack_events(std::slice::from_ref(&events[0].0));
    acknowledged.await.unwrap();
    system.query::<String>(cmd("ECHO").arg("end")).await;
    snapshot::check("redis-commands.txt", monitor.commands());
}

async fn assert_directory_is_read(system: &TestSystem, node: &Bus) {
    let services = "{\"echo\":{}}";
    let digest = Digest::compute(services.as_bytes()).to_string();
    let edge = system.start_edge("edge").await;
    edge.connect(&device("other")).await;
    let keys: Vec<String> = system.query(cmd("KEYS").arg("test:*:live")).await;
    let live = keys[0].clone();
    let ids = live.replace(":live", ":ids");
    let entry = format!("5 edge~old {digest}");
    let lease = 9_999_999_999_999_u64;
    for write in [
        cmd("HSET").arg(&live).arg("toy-1").arg(entry),
        cmd("ZADD").arg(&ids).arg(0).arg("toy-1"),
        cmd("ZADD").arg("test:{nodes}").arg(lease).arg("edge~old"),
        cmd("HSET")
            .arg("test:node:edge~old:services")
            .arg(&digest)
            .arg(services),
    ] {
        system.query::<()>(write).await;
    }
    let lamp = device("toy-1");
    let presence = node.find(&lamp).await.unwrap().unwrap();
    assert_eq!((presence.node.as_str(), presence.epoch.0), ("edge~old", 5));
    assert_eq!(
        node.services(org(), &presence).await.unwrap().unwrap(),
        services
    );
    let listed = node.list(org(), None, 9).await.unwrap();
    assert!(listed.iter().any(|(id, _)| *id == lamp.device));
}

async fn assert_turn_is_read(system: &TestSystem, node: &Bus) {
    let org = org().to_string();
    for (added_later, audio_ms) in [("added-later", 0), ("audio_ms", 4_200)] {
        let mut add = cmd("XADD");
        add.arg("test:{turns}").arg("*");
        for (field, value) in [
            ("node", "edge~old"),
            ("org", &org),
            ("device", "toy-1"),
            ("epoch", "5"),
            ("task", "task0001"),
            ("text", "hello"),
            (added_later, "4200"),
        ] {
            add.arg(field).arg(value);
        }
        system.query::<String>(&add).await;
        let turn = claim(node).await;
        let read = (&turn.device, turn.epoch.0, &*turn.text, turn.audio_ms);
        assert_eq!(read, (&device("toy-1"), 5, "hello", audio_ms));
        let absent = (turn.is_spoken, turn.picture, turn.recording);
        assert_eq!(absent, (false, None, None));
    }
}

async fn assert_conversation_is_read(system: &TestSystem, node: &Bus) {
    let set = "test:{conversations}";
    let member = format!("{}/npc_1/device:toy-1", org());
    let key = format!("{set}:{member}");
    let write = cmd("SET").arg(key).arg("7 words").to_owned();
    system.query::<()>(&write).await;
    let index = cmd("ZADD").arg(set).arg(1).arg(&member).to_owned();
    system.query::<()>(&index).await;
    let key = conversation_key("npc_1/device:toy-1");
    assert_eq!(read(node, &key).await, Some((7, "words".to_owned())));
    assert_eq!(due(node, LONG_DELAY).await[0].key, key);
}

async fn assert_event_is_read(system: &TestSystem, node: &Bus) {
    let device_json = format!(r#"{{"org":"{}","device":"toy-1"}}"#, org());
    let event = format!(
        r#"{{"kind":"connected","device":{device_json},"epoch":5,"at_ms":6,"added_later":1}}"#
    );
    system.query::<()>(cmd("DEL").arg("test:facts")).await;
    let mut add = cmd("XADD");
    add.arg("test:facts").arg("*").arg("fact").arg(event);
    system.query::<String>(&add).await;
    let read = async || {
        let events = node.read_events("one", 9, TEST_TIMEOUT).await;
        events.unwrap_or_default()
    };
    let events = eventually(TEST_TIMEOUT, read, |events| !events.is_empty()).await;
    let lamp = device("toy-1");
    assert!(matches!(
        &events[0].1,
        DeviceEvent::Connected { device, epoch, at_ms: 6 } if *device == lamp && epoch.0 == 5
    ));
}

async fn assert_keys_are_read(system: &TestSystem, node: &Bus) {
    let key = SigningKey::from_seed(&[7; 32]).verifying_key();
    let keys = format!(
        r#"[{{"kty":"OKP","crv":"Ed25519","kid":"{}","x":"{}"}}]"#,
        key.kid, key.x
    );
    let revoked = TokenId::from_uuid(Uuid::from_u128(1));
    for write in [
        cmd("SET").arg("test:{trust}:keys").arg(keys),
        cmd("ZADD")
            .arg("test:{trust}:revoked")
            .arg(FAR_FUTURE_S)
            .arg(revoked.to_string()),
        cmd("SET").arg("test:{trust}:version").arg(1),
    ] {
        system.query::<()>(write).await;
    }
    node.wait_for_keys(TEST_TIMEOUT * 2).await.unwrap();
    assert!(node.is_revoked(revoked));
}

/// What another release has written is read as before.
#[tokio::test]
async fn redis_contents_of_other_releases_are_read() {
    let system = TestSystem::redis().await;
    let node = system.start_node("node").await;
    assert_directory_is_read(&system, &node).await;
    assert_turn_is_read(&system, &node).await;
    assert_conversation_is_read(&system, &node).await;
    assert_event_is_read(&system, &node).await;
    assert_keys_are_read(&system, &node).await;
}

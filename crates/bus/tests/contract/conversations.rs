//! Conversations: shared by all nodes, versioned, and claimed by one worker when they are due.

use std::{collections::HashSet, time::Duration};

use bytes::Bytes;
use redis::Value;
use switchboard_bus::{
    Bus, BusError, Conversation, ConversationKey, ConversationsInFlight, MAX_CONVERSATION_BYTES,
    MAX_CONVERSATION_NAME_BYTES, SaveOutcome,
};
use switchboard_protocol::id::OrgId;
use switchboard_test_support::eventually::eventually;
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::{
    for_each_backend,
    test_edge::{TestSystem, org},
};

pub const TEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Longer than any test takes.
pub const LONG_DELAY: Duration = Duration::from_secs(600);
/// A short delay that a test waits for.
pub const SHORT_DELAY: Duration = Duration::from_millis(30);

pub fn conversation_key(name: &str) -> ConversationKey {
    let name = name.to_owned();
    ConversationKey { org: org(), name }
}

pub async fn save(
    bus: &Bus,
    key: &ConversationKey,
    replaces: Option<u64>,
    (text, due_after): (&str, Duration),
) -> SaveOutcome {
    let bytes = Bytes::copy_from_slice(text.as_bytes());
    let outcome = bus.save_conversation(key, replaces, bytes, due_after).await;
    outcome.unwrap()
}

/// Saves a new conversation. Returns its version.
pub async fn create(bus: &Bus, key: &ConversationKey, text: &str, due_after: Duration) -> u64 {
    match save(bus, key, None, (text, due_after)).await {
        SaveOutcome::Saved(version) => version,
        SaveOutcome::Conflict(_) => panic!("{key:?} exists already"),
    }
}

pub async fn read(bus: &Bus, key: &ConversationKey) -> Option<(u64, String)> {
    let stored = bus.conversation(key).await.unwrap()?;
    assert_eq!(stored.key, *key);
    let text = String::from_utf8(stored.bytes.to_vec()).unwrap();
    Some((stored.version, text))
}

/// A worker without conversations in flight, and without a share that matters.
pub fn none_in_flight() -> ConversationsInFlight {
    ConversationsInFlight {
        by_org: Vec::new(),
        share: 64,
    }
}

/// Waits until conversations are due, and claims them.
pub async fn due(bus: &Bus, lease: Duration) -> Vec<Conversation> {
    let claim = async || {
        let in_flight = none_in_flight();
        let claimed = bus.claim_due_conversations(10, lease, &in_flight);
        claimed.await.unwrap()
    };
    eventually(TEST_TIMEOUT, claim, |claimed| !claimed.is_empty()).await
}

pub fn names(claimed: &[Conversation]) -> Vec<&str> {
    let names = claimed.iter().map(|one| one.key.name.as_str());
    names.collect()
}

#[tokio::test]
async fn conversation_is_versioned_for_all_nodes() {
    for_each_backend(|system| async move {
        let (one, two) = system.start_nodes("chat-1", "chat-2").await;
        let key = conversation_key("npc_1/device:玩具 1");
        let another = ConversationKey {
            org: OrgId::from_uuid(Uuid::from_u128(1)),
            ..key.clone()
        };
        assert_eq!(read(&one, &key).await, None);
        let first = create(&one, &key, "你好 \r\n##END", LONG_DELAY).await;
        let expected = (first, "你好 \r\n##END".to_owned());
        assert_eq!(read(&two, &key).await, Some(expected));
        assert_eq!(read(&two, &another).await, None);
        let SaveOutcome::Conflict(Some(current)) = save(&two, &key, None, ("b", LONG_DELAY)).await
        else {
            panic!("another one is stored");
        };
        assert_eq!(Some(current), one.conversation(&key).await.unwrap());
        let SaveOutcome::Saved(second) = save(&two, &key, Some(first), ("", LONG_DELAY)).await
        else {
            panic!("no other node saved it");
        };
        assert!(second > first);
        let saved = save(&one, &key, Some(first), ("c", LONG_DELAY)).await;
        assert!(!saved.is_saved());
        assert_eq!(read(&one, &key).await, Some((second, String::new())));
        assert!(!one.delete_conversation(&key, first).await.unwrap());
        assert!(one.delete_conversation(&key, second).await.unwrap());
        assert!(!two.delete_conversation(&key, second).await.unwrap());
        assert_eq!(read(&two, &key).await, None);
        assert_eq!(
            save(&one, &key, Some(second), ("d", LONG_DELAY)).await,
            SaveOutcome::Conflict(None)
        );
        assert!(create(&one, &key, "e", LONG_DELAY).await > second);
    })
    .await;
}

#[tokio::test]
async fn concurrent_saves_have_one_winner() {
    const WRITERS: usize = 4;
    const TIMES: usize = 10;
    for_each_backend(|system| async move {
        let mut writing = JoinSet::new();
        for _ in 0..WRITERS {
            let (bus, key) = (
                system.start_node("chat").await,
                conversation_key("npc_1/device:toy-1"),
            );
            writing.spawn(async move {
                for _ in 0..TIMES {
                    loop {
                        let stored = read(&bus, &key).await;
                        let replaces = stored.as_ref().map(|(version, _)| *version);
                        let count: usize = stored.map_or(0, |(_, text)| text.parse().unwrap());
                        let text = (count + 1).to_string();
                        let saved = save(&bus, &key, replaces, (&text, LONG_DELAY));
                        if saved.await.is_saved() {
                            break;
                        }
                    }
                }
            });
        }
        writing.join_all().await;
        let bus = system.start_node("chat").await;
        let (_, text) = read(&bus, &conversation_key("npc_1/device:toy-1"))
            .await
            .unwrap();
        assert_eq!(text, (WRITERS * TIMES).to_string());
    })
    .await;
}

#[tokio::test]
async fn due_conversation_is_claimed_by_one_worker() {
    const DUE: usize = 30;
    for_each_backend(|system| async move {
        let bus = system.start_node("chat").await;
        create(&bus, &conversation_key("awake"), "awake", LONG_DELAY).await;
        for number in 0..DUE {
            let name = format!("toy-{number}");
            create(&bus, &conversation_key(&name), &name, Duration::ZERO).await;
        }
        let mut claiming = JoinSet::new();
        for _ in 0..3 {
            let worker = system.start_node("chat").await;
            claiming.spawn(async move {
                let mut claimed = Vec::new();
                loop {
                    let more = worker
                        .claim_due_conversations(4, LONG_DELAY, &none_in_flight())
                        .await
                        .unwrap();
                    if more.is_empty() {
                        return claimed;
                    }
                    assert!(more.len() <= 4);
                    claimed.extend(more);
                }
            });
        }
        let claimed = claiming.join_all().await.concat();
        assert_eq!(claimed.len(), DUE, "{claimed:?}");
        let different: HashSet<_> = claimed.iter().map(|one| one.key.clone()).collect();
        assert_eq!(different.len(), DUE);
        for one in claimed {
            assert_eq!(one.bytes, one.key.name);
            let stored = bus.conversation(&one.key).await.unwrap();
            assert_eq!(
                stored.as_ref(),
                Some(&one),
                "it is stored until it is deleted"
            );
            assert!(
                bus.delete_conversation(&one.key, one.version)
                    .await
                    .unwrap()
            );
        }
        assert!(
            bus.claim_due_conversations(0, LONG_DELAY, &none_in_flight())
                .await
                .unwrap()
                .is_empty()
        );
    })
    .await;
}

/// How many of the claimed conversations each of these organisations has.
fn counts<const N: usize>(claimed: &[Conversation], orgs: [OrgId; N]) -> [usize; N] {
    orgs.map(|org| claimed.iter().filter(|one| one.key.org == org).count())
}

#[tokio::test]
async fn organisation_with_many_due_conversations_does_not_delay_others() {
    for_each_backend(|system| async move {
        let bus = system.start_node("chat").await;
        let (greedy, modest) = (org(), OrgId::from_uuid(Uuid::from_u128(1)));
        let create_due = async |org, name: String| {
            create(&bus, &ConversationKey { org, name }, "", Duration::ZERO).await
        };
        for number in 0..20 {
            create_due(greedy, format!("toy-{number:02}")).await;
        }
        for number in 0..3 {
            create_due(modest, format!("toy-{number}")).await;
        }
        let claim = async |max, by_org: &[(OrgId, usize)]| {
            let in_flight = ConversationsInFlight {
                by_org: by_org.to_vec(),
                share: 4,
            };
            let claimed = bus.claim_due_conversations(max, LONG_DELAY, &in_flight);
            claimed.await.unwrap()
        };
        // The organisations take turns; the longest due of each is first.
        let first = claim(4, &[]).await;
        assert_eq!(counts(&first, [greedy, modest]), [2, 2]);
        let of_greedy = first.iter().filter(|one| one.key.org == greedy);
        let of_greedy: Vec<_> = of_greedy.map(|one| one.key.name.as_str()).collect();
        assert_eq!(of_greedy, ["toy-00", "toy-01"]);
        // The one with fewer in flight is next.
        let next = claim(1, &[(greedy, 2), (modest, 1)]).await;
        assert_eq!(counts(&next, [greedy, modest]), [0, 1]);
        // No organisation exceeds its share.
        let rest = claim(10, &[(greedy, 2)]).await;
        assert_eq!(counts(&rest, [greedy, modest]), [2, 0]);
        assert_eq!(claim(10, &[(greedy, 4)]).await, []);
    })
    .await;
}

#[tokio::test]
async fn conversation_behind_thousands_of_another_organisation_is_claimed() {
    for_each_backend(|system| async move {
        let bus = system.start_node("chat").await;
        let mut saving = JoinSet::new();
        for task in 0..10 {
            let bus = bus.clone();
            saving.spawn(async move {
                for number in (0..2_500).skip(task).step_by(10) {
                    let key = conversation_key(&number.to_string());
                    create(&bus, &key, "", Duration::ZERO).await;
                }
            });
        }
        saving.join_all().await;
        let modest = ConversationKey {
            org: OrgId::from_uuid(Uuid::from_u128(1)),
            name: "toy-1".to_owned(),
        };
        create(&bus, &modest, "", Duration::ZERO).await;
        // The other organisation has its share in flight.
        let in_flight = ConversationsInFlight {
            by_org: vec![(org(), 8)],
            share: 8,
        };
        let claim = async || {
            let claimed = bus.claim_due_conversations(8, LONG_DELAY, &in_flight);
            claimed.await.unwrap()
        };
        let claimed = eventually(TEST_TIMEOUT, claim, |claimed| !claimed.is_empty()).await;
        assert_eq!(counts(&claimed, [org(), modest.org]), [0, 1]);
    })
    .await;
}

#[tokio::test]
async fn expired_lease_and_new_save_make_due_again() {
    for_each_backend(|system| async move {
        let (dead, chat) = system.start_nodes("chat-1", "chat-2").await;
        let (left, awake) = (conversation_key("left"), conversation_key("awake"));
        // Due a moment later, and claimed in the order in which they are due.
        let first = create(&dead, &awake, "before", SHORT_DELAY).await;
        let version = create(&dead, &left, "due", SHORT_DELAY * 2).await;
        let mut claimed = Vec::new();
        while claimed.len() < 2 {
            claimed.extend(due(&dead, LONG_DELAY).await);
        }
        assert_eq!(names(&claimed), ["awake", "left"]);
        assert!(
            chat.claim_due_conversations(10, SHORT_DELAY, &none_in_flight())
                .await
                .unwrap()
                .is_empty()
        );
        // The conversation continues.
        let SaveOutcome::Saved(second) =
            save(&chat, &awake, Some(first), ("after", SHORT_DELAY)).await
        else {
            panic!("no other node saved it");
        };
        assert!(!dead.delete_conversation(&awake, first).await.unwrap());
        let saved = save(&dead, &awake, Some(first), ("late", LONG_DELAY)).await;
        assert!(!saved.is_saved());
        let again = due(&chat, SHORT_DELAY).await;
        assert_eq!(names(&again), ["awake"], "the other one is leased");
        assert_eq!(
            (again[0].version, &again[0].bytes[..]),
            (second, &b"after"[..])
        );
        // It is saved with a long delay; the short lease has no effect then.
        let saved = save(&chat, &awake, Some(second), ("more", LONG_DELAY)).await;
        assert!(saved.is_saved());
        let third = create(&chat, &conversation_key("marker"), "", SHORT_DELAY).await;
        assert_eq!(names(&due(&chat, SHORT_DELAY).await), ["marker"]);
        assert_eq!(
            names(&due(&chat, SHORT_DELAY).await),
            ["marker"],
            "its lease has expired"
        );
        assert!(
            chat.delete_conversation(&conversation_key("marker"), third)
                .await
                .unwrap()
        );
        // After an expired lease another worker claims it.
        assert!(dead.delete_conversation(&left, version).await.unwrap());
        let version = create(&dead, &left, "due", Duration::ZERO).await;
        assert_eq!(names(&due(&dead, SHORT_DELAY).await), ["left"]);
        let again = due(&chat, LONG_DELAY).await;
        assert_eq!(names(&again), ["left"]);
        assert_eq!(again[0].version, version);
    })
    .await;
}

#[tokio::test]
async fn invalid_conversation_is_refused() {
    async fn check(bus: &Bus, key: ConversationKey, bytes: usize, expect: Option<&str>) {
        let bytes = Bytes::from(vec![b'a'; bytes]);
        let saved = bus.save_conversation(&key, None, bytes, LONG_DELAY).await;
        match (saved, expect) {
            (Ok(SaveOutcome::Saved(_)), None) => {}
            (Err(BusError::Invalid(error)), Some(expect)) => {
                assert!(error.contains(expect), "{error}")
            }
            (saved, _) => panic!("{key:?}: {saved:?}"),
        }
    }
    for_each_backend(|system| async move {
        let bus = system.start_node("chat").await;
        let longest = "n".repeat(MAX_CONVERSATION_NAME_BYTES);
        check(
            &bus,
            conversation_key(&longest),
            MAX_CONVERSATION_BYTES,
            None,
        )
        .await;
        let too_long = MAX_CONVERSATION_BYTES + 1;
        check(
            &bus,
            conversation_key("toy"),
            too_long,
            Some("65536 bytes; this one has 65537"),
        )
        .await;
        for name in ["", "a\nb", &format!("{longest}n")] {
            check(
                &bus,
                conversation_key(name),
                1,
                Some("1 to 200 bytes and no control"),
            )
            .await;
            let result = bus.conversation(&conversation_key(name)).await;
            assert!(matches!(result, Err(BusError::Invalid(_))), "{result:?}");
            let result = bus.delete_conversation(&conversation_key(name), 1).await;
            assert!(matches!(result, Err(BusError::Invalid(_))), "{result:?}");
        }
        let longest = bus
            .conversation(&conversation_key(&longest))
            .await
            .unwrap()
            .unwrap();
        assert_eq!(longest.bytes.len(), MAX_CONVERSATION_BYTES);
        // The delay is bounded as well.
        create(&bus, &conversation_key("toy"), "", Duration::MAX).await;
        assert!(
            bus.claim_due_conversations(1, Duration::MAX, &none_in_flight())
                .await
                .unwrap()
                .is_empty()
        );
    })
    .await;
}

#[tokio::test]
async fn in_redis_conversation_expires_an_hour_after_due() {
    let system = TestSystem::redis().await;
    let bus = system.start_node("chat").await;
    let key = conversation_key("npc_1/device:toy-1");
    create(&bus, &key, "a", Duration::ZERO).await;
    let value = format!("test:{{conversations}}:{}/{}", key.org, key.name);
    let mut left = redis::cmd("PTTL");
    let left: u64 = system.query(left.arg(&value)).await;
    assert!((3_500_000..=3_600_000).contains(&left), "{left}");
    // After it has expired, its index entries are removed, too.
    let mut end = redis::cmd("DEL");
    assert_eq!(system.query::<u64>(end.arg(&value)).await, 1);
    let org_set = format!("test:{{conversations}}:{}", key.org);
    let member = format!("{}/{}", key.org, key.name);
    for set in ["test:{conversations}", &org_set] {
        let mut earlier = redis::cmd("ZINCRBY");
        earlier.arg(set).arg(-3_600_001).arg(&member);
        system.query::<Value>(&earlier).await;
    }
    assert!(
        bus.claim_due_conversations(10, LONG_DELAY, &none_in_flight())
            .await
            .unwrap()
            .is_empty()
    );
    for set in ["test:{conversations}", &org_set] {
        let mut count = redis::cmd("ZCARD");
        assert_eq!(system.query::<u64>(count.arg(set)).await, 0, "{set}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn empty_redis_restart_loses_conversations() {
    let mut system = TestSystem::redis().await;
    let bus = system.start_node("chat").await;
    let key = conversation_key("npc_1/device:toy-1");
    let version = create(&bus, &key, "before", LONG_DELAY).await;
    system.server().kill();
    let failing = async || bus.conversation(&key).await;
    let error = eventually(TEST_TIMEOUT, failing, Result::is_err)
        .await
        .unwrap_err();
    assert!(matches!(error, BusError::Unavailable), "{error}");
    system.server().restart();
    bus.wait_ready(TEST_TIMEOUT).await.unwrap();
    assert_eq!(read(&bus, &key).await, None);
    assert_eq!(
        save(&bus, &key, Some(version), ("late", LONG_DELAY)).await,
        SaveOutcome::Conflict(None)
    );
    assert!(create(&bus, &key, "after", LONG_DELAY).await > version);
}

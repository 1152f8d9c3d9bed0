//! What is remembered of a conversation is the same for every node, and given to one when it is due.

use std::{collections::HashSet, time::Duration};

use bytes::Bytes;
use prometheus::Registry;
use redis::Value;
use switchboard_bus::{
    Bus, BusError, Conversation, ConversationKey, Kept, MAX_CONVERSATION_BYTES,
    MAX_CONVERSATION_NAME_BYTES,
};
use switchboard_protocol::id::OrgId;
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::{
    eventually::eventually,
    over_all,
    station::{Site, org},
};

const SOON: Duration = Duration::from_secs(5);
/// Longer than any test.
pub const LONG: Duration = Duration::from_secs(600);
/// As short as makes a difference.
const BRIEF: Duration = Duration::from_millis(30);
/// How many are kept of one organisation at most.
const MOST_OF_ORG: usize = 5_000;

pub fn named(name: &str) -> ConversationKey {
    let name = name.to_owned();
    ConversationKey { org: org(), name }
}

pub async fn keep(
    bus: &Bus,
    key: &ConversationKey,
    was: Option<u64>,
    (text, rests_after): (&str, Duration),
) -> Kept {
    let bytes = Bytes::copy_from_slice(text.as_bytes());
    let kept = bus.keep_conversation(key, was, bytes, rests_after).await;
    kept.unwrap()
}

/// Keeps a new one.
pub async fn begin(bus: &Bus, key: &ConversationKey, text: &str, rests_after: Duration) -> u64 {
    match keep(bus, key, None, (text, rests_after)).await {
        Kept::Yes(version) => version,
        Kept::Changed => panic!("{key:?} is there already"),
    }
}

pub async fn text_of(bus: &Bus, key: &ConversationKey) -> Option<(u64, String)> {
    let standing = bus.conversation(key).await.unwrap()?;
    assert_eq!(standing.key, *key);
    let text = String::from_utf8(standing.bytes.to_vec()).unwrap();
    Some((standing.version, text))
}

/// The next that are due, once there are any.
pub async fn due(bus: &Bus, lease: Duration) -> Vec<Conversation> {
    let take = async || bus.take_due_conversations(10, lease).await.unwrap();
    eventually(SOON, take, |taken| !taken.is_empty()).await
}

fn names(taken: &[Conversation]) -> Vec<&str> {
    let names = taken.iter().map(|given| given.key.name.as_str());
    names.collect()
}

#[tokio::test]
async fn a_conversation_is_kept_by_version_for_all_nodes() {
    over_all(|site| async move {
        let (one, two) = (site.caller("chat-1").await, site.caller("chat-2").await);
        let key = named("npc_1/device:玩具 1");
        let another = ConversationKey {
            org: OrgId::from_uuid(Uuid::from_u128(1)),
            ..key.clone()
        };
        assert_eq!(text_of(&one, &key).await, None);
        let first = begin(&one, &key, "你好 \r\n##END", LONG).await;
        let expected = (first, "你好 \r\n##END".to_owned());
        assert_eq!(text_of(&two, &key).await, Some(expected));
        assert_eq!(text_of(&two, &another).await, None);
        assert_eq!(keep(&two, &key, None, ("b", LONG)).await, Kept::Changed);
        let Kept::Yes(second) = keep(&two, &key, Some(first), ("", LONG)).await else {
            panic!("nobody else kept it");
        };
        assert!(second > first);
        assert_eq!(
            keep(&one, &key, Some(first), ("c", LONG)).await,
            Kept::Changed
        );
        assert_eq!(text_of(&one, &key).await, Some((second, String::new())));
        assert!(!one.drop_conversation(&key, first).await.unwrap());
        assert!(one.drop_conversation(&key, second).await.unwrap());
        assert!(!two.drop_conversation(&key, second).await.unwrap());
        assert_eq!(text_of(&two, &key).await, None);
        assert_eq!(
            keep(&one, &key, Some(second), ("d", LONG)).await,
            Kept::Changed
        );
        assert!(begin(&one, &key, "e", LONG).await > second);
    })
    .await;
}

#[tokio::test]
async fn of_those_who_keep_it_at_a_time_one_wins() {
    const WRITERS: usize = 4;
    const TIMES: usize = 10;
    over_all(|site| async move {
        let mut writing = JoinSet::new();
        for _ in 0..WRITERS {
            let (bus, key) = (site.caller("chat").await, named("npc_1/device:toy-1"));
            writing.spawn(async move {
                for _ in 0..TIMES {
                    loop {
                        let standing = text_of(&bus, &key).await;
                        let was = standing.as_ref().map(|(version, _)| *version);
                        let count: usize = standing.map_or(0, |(_, text)| text.parse().unwrap());
                        let text = (count + 1).to_string();
                        if keep(&bus, &key, was, (&text, LONG)).await != Kept::Changed {
                            break;
                        }
                    }
                }
            });
        }
        writing.join_all().await;
        let bus = site.caller("chat").await;
        let (_, text) = text_of(&bus, &named("npc_1/device:toy-1")).await.unwrap();
        assert_eq!(text, (WRITERS * TIMES).to_string());
    })
    .await;
}

#[tokio::test]
async fn what_is_due_is_given_to_one_taker() {
    const DUE: usize = 30;
    over_all(|site| async move {
        let bus = site.caller("chat").await;
        begin(&bus, &named("awake"), "awake", LONG).await;
        for number in 0..DUE {
            let name = format!("toy-{number}");
            begin(&bus, &named(&name), &name, Duration::ZERO).await;
        }
        let mut taking = JoinSet::new();
        for _ in 0..3 {
            let taker = site.caller("chat").await;
            taking.spawn(async move {
                let mut taken = Vec::new();
                loop {
                    let more = taker.take_due_conversations(4, LONG).await.unwrap();
                    if more.is_empty() {
                        return taken;
                    }
                    assert!(more.len() <= 4);
                    taken.extend(more);
                }
            });
        }
        let taken = taking.join_all().await.concat();
        assert_eq!(taken.len(), DUE, "{taken:?}");
        let different: HashSet<_> = taken.iter().map(|given| given.key.clone()).collect();
        assert_eq!(different.len(), DUE);
        for given in taken {
            assert_eq!(given.bytes, given.key.name);
            let standing = bus.conversation(&given.key).await.unwrap();
            assert_eq!(
                standing.as_ref(),
                Some(&given),
                "it stands until it is dropped"
            );
            assert!(
                bus.drop_conversation(&given.key, given.version)
                    .await
                    .unwrap()
            );
        }
        assert!(
            bus.take_due_conversations(0, LONG)
                .await
                .unwrap()
                .is_empty()
        );
    })
    .await;
}

#[tokio::test]
async fn a_taker_that_died_is_followed_and_what_was_kept_anew_rests_anew() {
    over_all(|site| async move {
        let (dead, chat) = (site.caller("chat-1").await, site.caller("chat-2").await);
        let (left, awake) = (named("left"), named("awake"));
        // Due a moment later, and given in the order in which they are due.
        let first = begin(&dead, &awake, "before", BRIEF).await;
        let version = begin(&dead, &left, "rested", BRIEF * 2).await;
        let mut taken = Vec::new();
        while taken.len() < 2 {
            taken.extend(due(&dead, LONG).await);
        }
        assert_eq!(names(&taken), ["awake", "left"]);
        assert!(
            chat.take_due_conversations(10, BRIEF)
                .await
                .unwrap()
                .is_empty()
        );
        // Somebody speaks again.
        let Kept::Yes(second) = keep(&chat, &awake, Some(first), ("after", BRIEF)).await else {
            panic!("nobody else kept it");
        };
        assert!(!dead.drop_conversation(&awake, first).await.unwrap());
        assert_eq!(
            keep(&dead, &awake, Some(first), ("late", LONG)).await,
            Kept::Changed
        );
        let again = due(&chat, BRIEF).await;
        assert_eq!(names(&again), ["awake"], "the other is leased");
        assert_eq!(
            (again[0].version, &again[0].bytes[..]),
            (second, &b"after"[..])
        );
        // It is kept anew for long; the lease of it that was brief means nothing any more.
        let rested = keep(&chat, &awake, Some(second), ("more", LONG)).await;
        assert_ne!(rested, Kept::Changed);
        let third = begin(&chat, &named("marker"), "", BRIEF).await;
        assert_eq!(names(&due(&chat, BRIEF).await), ["marker"]);
        assert_eq!(
            names(&due(&chat, BRIEF).await),
            ["marker"],
            "its lease is over"
        );
        assert!(
            chat.drop_conversation(&named("marker"), third)
                .await
                .unwrap()
        );
        // Whoever takes it with a lease that ends is followed by another.
        assert!(dead.drop_conversation(&left, version).await.unwrap());
        let version = begin(&dead, &left, "rested", Duration::ZERO).await;
        assert_eq!(names(&due(&dead, BRIEF).await), ["left"]);
        let again = due(&chat, LONG).await;
        assert_eq!(names(&again), ["left"]);
        assert_eq!(again[0].version, version);
    })
    .await;
}

#[tokio::test]
async fn what_no_conversation_may_be_is_refused() {
    async fn check(bus: &Bus, key: ConversationKey, bytes: usize, expect: Option<&str>) {
        let bytes = Bytes::from(vec![b'a'; bytes]);
        let kept = bus.keep_conversation(&key, None, bytes, LONG).await;
        match (kept, expect) {
            (Ok(Kept::Yes(_)), None) => {}
            (Err(BusError::Unfit(why)), Some(expect)) => assert!(why.contains(expect), "{why}"),
            (kept, _) => panic!("{key:?} gave {kept:?}"),
        }
    }
    over_all(|site| async move {
        let bus = site.caller("chat").await;
        let longest = "n".repeat(MAX_CONVERSATION_NAME_BYTES);
        check(&bus, named(&longest), MAX_CONVERSATION_BYTES, None).await;
        let too_long = MAX_CONVERSATION_BYTES + 1;
        check(
            &bus,
            named("toy"),
            too_long,
            Some("65536 bytes; this one has 65537"),
        )
        .await;
        for name in ["", "a\nb", &format!("{longest}n")] {
            check(&bus, named(name), 1, Some("1 to 200 bytes and no control")).await;
            let unfit = bus.conversation(&named(name)).await;
            assert!(matches!(unfit, Err(BusError::Unfit(_))), "{unfit:?}");
            let unfit = bus.drop_conversation(&named(name), 1).await;
            assert!(matches!(unfit, Err(BusError::Unfit(_))), "{unfit:?}");
        }
        let longest = bus.conversation(&named(&longest)).await.unwrap().unwrap();
        assert_eq!(longest.bytes.len(), MAX_CONVERSATION_BYTES);
        // Nor can one be kept for ever.
        begin(&bus, &named("toy"), "", Duration::MAX).await;
        assert!(
            bus.take_due_conversations(1, Duration::MAX)
                .await
                .unwrap()
                .is_empty()
        );
    })
    .await;
}

/// How many had to go before their time.
fn dropped(counted: &Registry) -> f64 {
    let families = counted.gather();
    let name = "switchboard_bus_conversations_dropped_total";
    let family = families.iter().find(|family| family.name() == name);
    family.unwrap().get_metric()[0].get_counter().get_value()
}

#[tokio::test]
async fn an_organisation_with_one_too_many_loses_one_of_its_own_that_is_owed_to_nobody() {
    const TASKS: usize = 10;
    over_all(|site| async move {
        let (bus, counted) = site.counting_caller("chat").await;
        let (owed, first, second) = (named("owed"), named("first"), named("second"));
        let neighbour = ConversationKey {
            org: OrgId::from_uuid(Uuid::from_u128(1)),
            name: "neighbour".to_owned(),
        };
        begin(&bus, &neighbour, "", SOON * 10).await;
        begin(&bus, &owed, "", Duration::ZERO).await;
        let version = begin(&bus, &first, "", LONG).await;
        begin(&bus, &second, "", LONG + SOON).await;
        let mut keeping = JoinSet::new();
        for task in 0..TASKS {
            let bus = bus.clone();
            keeping.spawn(async move {
                for number in (3..MOST_OF_ORG).skip(task).step_by(TASKS) {
                    begin(&bus, &named(&number.to_string()), "", LONG * 2).await;
                }
            });
        }
        keeping.join_all().await;
        // One that stands may always be kept anew, and rests as long as was said last.
        let again = keep(&bus, &first, Some(version), ("", LONG * 3)).await;
        assert_ne!(again, Kept::Changed);
        assert!(text_of(&bus, &second).await.is_some());
        assert_eq!(dropped(&counted), 0.0);
        begin(&bus, &named("one more"), "", LONG * 2).await;
        assert_eq!(text_of(&bus, &second).await, None);
        assert_eq!(dropped(&counted), 1.0);
        for stands in [&neighbour, &owed, &first] {
            assert!(text_of(&bus, stands).await.is_some(), "{stands:?}");
        }
        // Nor does one go that somebody is learning from.
        assert_eq!(names(&due(&bus, BRIEF).await), ["owed"]);
        begin(&bus, &named("and another"), "", LONG * 2).await;
        assert!(text_of(&bus, &owed).await.is_some());
        assert_eq!(dropped(&counted), 2.0);
    })
    .await;
}

#[tokio::test]
async fn in_redis_one_too_many_of_all_is_none_that_is_owed_to_anybody() {
    const MOST: usize = 100_000;
    const STEP: usize = 10_000;
    let site = Site::redis().await;
    let (bus, counted) = site.counting_caller("chat").await;
    let of = |org: u128, name: &str| ConversationKey {
        org: OrgId::from_uuid(Uuid::from_u128(org)),
        name: name.to_owned(),
    };
    let (given, owed, first) = (of(1, "given"), of(2, "owed"), of(3, "first"));
    begin(&bus, &given, "", Duration::ZERO).await;
    assert_eq!(names(&due(&bus, LONG / 2).await), ["given"]);
    begin(&bus, &owed, "", Duration::ZERO).await;
    begin(&bus, &first, "", LONG).await;
    let code = "for i = ARGV[1], ARGV[2] do
          local org = 'org' .. i % 50
          redis.call('ZADD', KEYS[1], 9e12, org .. '/' .. i)
          redis.call('ZADD', KEYS[1] .. ':' .. org, 9e12, org .. '/' .. i)
        end";
    for from in (4..=MOST).step_by(STEP) {
        let mut fill = redis::cmd("EVAL");
        fill.arg(code).arg(1).arg("test:{conversations}");
        fill.arg(from).arg(MOST.min(from + STEP - 1));
        site.ask::<()>(&fill).await;
    }
    begin(&bus, &of(4, "one more"), "", LONG).await;
    assert_eq!(text_of(&bus, &first).await, None);
    assert_eq!(dropped(&counted), 1.0);
    for stands in [&given, &owed] {
        assert!(text_of(&bus, stands).await.is_some(), "{stands:?}");
    }
    let count = async |name: &str| {
        let mut count = redis::cmd("ZCARD");
        site.ask::<usize>(count.arg(name)).await
    };
    assert_eq!(count("test:{conversations}").await, MOST);
    let of_first = format!("test:{{conversations}}:{}", first.org);
    assert_eq!(count(&of_first).await, 0);
}

#[tokio::test]
async fn in_redis_it_ends_an_hour_after_it_was_due() {
    let site = Site::redis().await;
    let bus = site.caller("chat").await;
    let key = named("npc_1/device:toy-1");
    begin(&bus, &key, "a", Duration::ZERO).await;
    let value = format!("test:{{conversations}}:{}/{}", key.org, key.name);
    let mut left = redis::cmd("PTTL");
    let left: u64 = site.ask(left.arg(&value)).await;
    assert!((3_500_000..=3_600_000).contains(&left), "{left}");
    // When its end has come, nothing else is left of it either.
    let mut end = redis::cmd("DEL");
    assert_eq!(site.ask::<u64>(end.arg(&value)).await, 1);
    let theirs = format!("test:{{conversations}}:{}", key.org);
    let member = format!("{}/{}", key.org, key.name);
    for set in ["test:{conversations}", &theirs] {
        let mut earlier = redis::cmd("ZINCRBY");
        earlier.arg(set).arg(-3_600_001).arg(&member);
        site.ask::<Value>(&earlier).await;
    }
    assert!(
        bus.take_due_conversations(10, LONG)
            .await
            .unwrap()
            .is_empty()
    );
    for set in ["test:{conversations}", &theirs] {
        let mut count = redis::cmd("ZCARD");
        assert_eq!(site.ask::<u64>(count.arg(set)).await, 0, "{set}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_restarts_empty_has_forgotten_them_and_keeps_new_ones() {
    let mut site = Site::redis().await;
    let bus = site.caller("chat").await;
    let key = named("npc_1/device:toy-1");
    let version = begin(&bus, &key, "before", LONG).await;
    site.server().kill();
    let away = async || bus.conversation(&key).await;
    let error = eventually(SOON, away, Result::is_err).await.unwrap_err();
    assert!(matches!(error, BusError::Unavailable), "{error}");
    site.server().restart();
    bus.ready(SOON).await.unwrap();
    assert_eq!(text_of(&bus, &key).await, None);
    assert_eq!(
        keep(&bus, &key, Some(version), ("late", LONG)).await,
        Kept::Changed
    );
    assert!(begin(&bus, &key, "after", LONG).await > version);
}

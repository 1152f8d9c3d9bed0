//! Limits of conversations: which ones are evicted, and whose.

use std::time::Duration;

use prometheus::Registry;
use switchboard_bus::{ConversationKey, SaveOutcome};
use switchboard_protocol::id::OrgId;
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::{
    conversations::{
        LONG_DELAY, SHORT_DELAY, TEST_TIMEOUT, conversation_key, create, due, names, read, save,
    },
    for_each_backend,
    test_edge::{TestSystem, org},
};

/// The maximum number of conversations of one organisation.
const MAX_PER_ORG: usize = 5_000;

/// How many conversations were evicted before their time.
fn evicted(metrics: &Registry) -> f64 {
    let families = metrics.gather();
    let name = "switchboard_bus_conversations_dropped_total";
    let family = families.iter().find(|family| family.name() == name);
    family.unwrap().get_metric()[0].get_counter().get_value()
}

#[tokio::test]
async fn org_limit_evicts_a_conversation_of_the_same_org() {
    const TASKS: usize = 10;
    for_each_backend(|system| async move {
        let (bus, metrics) = system.start_node_with_metrics("chat").await;
        let (due_key, first, second) = (
            conversation_key("due"),
            conversation_key("first"),
            conversation_key("second"),
        );
        let neighbour = ConversationKey {
            org: OrgId::from_uuid(Uuid::from_u128(1)),
            name: "neighbour".to_owned(),
        };
        create(&bus, &neighbour, "", TEST_TIMEOUT * 10).await;
        create(&bus, &due_key, "", Duration::ZERO).await;
        let version = create(&bus, &first, "", LONG_DELAY).await;
        create(&bus, &second, "", LONG_DELAY + TEST_TIMEOUT).await;
        let mut saving = JoinSet::new();
        for task in 0..TASKS {
            let bus = bus.clone();
            saving.spawn(async move {
                for number in (3..MAX_PER_ORG).skip(task).step_by(TASKS) {
                    create(
                        &bus,
                        &conversation_key(&number.to_string()),
                        "",
                        LONG_DELAY * 2,
                    )
                    .await;
                }
            });
        }
        saving.join_all().await;
        // A stored conversation can always be saved, and is due after the latest delay.
        let again = save(&bus, &first, Some(version), ("", LONG_DELAY * 3)).await;
        assert!(again.is_saved());
        assert!(read(&bus, &second).await.is_some());
        assert_eq!(evicted(&metrics), 0.0);
        create(&bus, &conversation_key("one more"), "", LONG_DELAY * 2).await;
        assert_eq!(read(&bus, &second).await, None);
        assert_eq!(evicted(&metrics), 1.0);
        for stored in [&neighbour, &due_key, &first] {
            assert!(read(&bus, stored).await.is_some(), "{stored:?}");
        }
        // A leased conversation is not evicted either.
        assert_eq!(names(&due(&bus, SHORT_DELAY).await), ["due"]);
        create(&bus, &conversation_key("and another"), "", LONG_DELAY * 2).await;
        assert!(read(&bus, &due_key).await.is_some());
        assert_eq!(evicted(&metrics), 2.0);
    })
    .await;
}

#[tokio::test]
async fn bytes_of_an_org_evict_its_own_conversations() {
    const MAX_BYTES: usize = 64 * 1024;
    /// As many of the maximum size fit into the 32 MiB of an organisation.
    const FIT: usize = 509;
    for_each_backend(|system| async move {
        let (bus, metrics) = system.start_node_with_metrics("chat").await;
        let largest = "x".repeat(MAX_BYTES);
        let neighbour = ConversationKey {
            org: OrgId::from_uuid(Uuid::from_u128(1)),
            name: "neighbour".to_owned(),
        };
        create(&bus, &neighbour, &largest, TEST_TIMEOUT * 10).await;
        let key_of = |number: usize| conversation_key(&number.to_string());
        let mut version = 0;
        for number in 0..FIT {
            version = create(&bus, &key_of(number), &largest, LONG_DELAY).await;
        }
        // What is replaced makes room for what replaces it.
        let last = key_of(FIT - 1);
        let saved = save(&bus, &last, Some(version), (&largest, LONG_DELAY)).await;
        let SaveOutcome::Saved(version) = saved else {
            panic!("{saved:?}");
        };
        assert_eq!(evicted(&metrics), 0.0);
        create(&bus, &key_of(FIT), &largest, LONG_DELAY).await;
        assert_eq!(evicted(&metrics), 1.0);
        // A deleted one makes room for a small one, which may grow to the same size.
        assert!(bus.delete_conversation(&last, version).await.unwrap());
        let small = conversation_key("small");
        let version = create(&bus, &small, "x", LONG_DELAY * 2).await;
        assert_eq!(evicted(&metrics), 1.0);
        let grown = save(&bus, &small, Some(version), (&largest, LONG_DELAY * 2)).await;
        assert!(grown.is_saved());
        assert_eq!(evicted(&metrics), 1.0);
        create(&bus, &conversation_key("next"), &largest, LONG_DELAY * 2).await;
        assert_eq!(evicted(&metrics), 2.0);
        for (stored, expected) in [(&neighbour, true), (&small, true), (&key_of(0), false)] {
            let found = read(&bus, stored).await.is_some();
            assert_eq!(found, expected, "{stored:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn in_redis_bytes_that_are_gone_evict_nothing() {
    const MIB: u64 = 1024 * 1024;
    let system = TestSystem::redis().await;
    let (bus, metrics) = system.start_node_with_metrics("chat").await;
    let other = ConversationKey {
        org: OrgId::from_uuid(Uuid::from_u128(1)),
        name: "other".to_owned(),
    };
    let count = async |member: &str, amount: i64| {
        let mut count = redis::cmd("ZADD");
        count
            .arg("test:{conversations}-sizes")
            .arg(amount)
            .arg(member);
        system.query::<()>(&count).await;
    };
    create(&bus, &other, "", LONG_DELAY).await;
    create(&bus, &conversation_key("own"), "", LONG_DELAY).await;
    // As if nodes of an earlier release had deleted them.
    let sums = [
        (other.org.to_string(), 140),
        (org().to_string(), 60),
        ("~".to_owned(), 200),
    ];
    for (member, mib) in &sums {
        count(member, (mib * MIB).cast_signed()).await;
    }
    create(&bus, &conversation_key("next"), "", LONG_DELAY).await;
    assert_eq!(evicted(&metrics), 0.0);
    // The one that has most has just been counted, so its bytes are true.
    count(&other.org.to_string(), (128 * MIB).cast_signed()).await;
    count("~", (128 * MIB).cast_signed()).await;
    create(&bus, &conversation_key("last"), "", LONG_DELAY).await;
    assert_eq!(read(&bus, &other).await, None);
    assert_eq!(evicted(&metrics), 1.0);
}

#[tokio::test]
async fn in_redis_total_limit_spares_due_conversations() {
    const MAX_TOTAL: usize = 100_000;
    const STEP: usize = 1_000;
    let system = TestSystem::redis().await;
    let (bus, metrics) = system.start_node_with_metrics("chat").await;
    let key_of = |org: u128, name: &str| ConversationKey {
        org: OrgId::from_uuid(Uuid::from_u128(org)),
        name: name.to_owned(),
    };
    let (leased, due_key, first) = (key_of(1, "leased"), key_of(2, "due"), key_of(3, "first"));
    create(&bus, &leased, "", Duration::ZERO).await;
    assert_eq!(names(&due(&bus, LONG_DELAY / 2).await), ["leased"]);
    create(&bus, &due_key, "", Duration::ZERO).await;
    create(&bus, &first, "", LONG_DELAY).await;
    let code = "for i = ARGV[1], ARGV[2] do
          local org = 'org' .. i % 50
          redis.call('ZADD', KEYS[1], 9e12, org .. '/' .. i)
          redis.call('ZADD', KEYS[1] .. ':' .. org, 9e12, org .. '/' .. i)
        end";
    for from in (4..=MAX_TOTAL).step_by(STEP) {
        let mut fill = redis::cmd("EVAL");
        fill.arg(code).arg(1).arg("test:{conversations}");
        fill.arg(from).arg(MAX_TOTAL.min(from + STEP - 1));
        system.query::<()>(&fill).await;
    }
    create(&bus, &key_of(4, "one more"), "", LONG_DELAY).await;
    assert_eq!(read(&bus, &first).await, None);
    assert_eq!(evicted(&metrics), 1.0);
    for stored in [&leased, &due_key] {
        assert!(read(&bus, stored).await.is_some(), "{stored:?}");
    }
    let count = async |name: &str| {
        let mut count = redis::cmd("ZCARD");
        system.query::<usize>(count.arg(name)).await
    };
    assert_eq!(count("test:{conversations}").await, MAX_TOTAL);
    let of_first = format!("test:{{conversations}}:{}", first.org);
    assert_eq!(count(&of_first).await, 0);
}

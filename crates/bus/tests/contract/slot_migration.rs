//! Shared state is readable and writable while its slot migrates between shards.

use std::time::{Duration, Instant};

use redis::{Value, cmd};
use switchboard_bus::{CatalogEvent, DeviceEvent};
use switchboard_test_support::eventually::eventually;

use crate::{
    catalog_events::await_event,
    cluster_servers::{RedisCluster, parse_command, query},
    conversations::{LONG_DELAY, conversation_key, create, due, none_in_flight, read},
    test_edge::{TestSystem, org},
    turns::{self, OTHER, TASK, TEST_TIMEOUT, assert_no_turn_waits, claim, connected, renew},
};

#[tokio::test(flavor = "multi_thread")]
async fn turns_work_at_every_step_of_a_migration() {
    let (cluster, system) = RedisCluster::with_system().await;
    let (chat, edge) = system.start_with_edge("chat").await;
    let device = connected(&edge).await;
    turns::enqueue(&edge, &device, OTHER, "held").await;
    let held = claim(&chat).await;
    let migration = cluster.migration("test:{turns}").await;
    for step in ["open", "migrate", "end", "after"] {
        migration.step(step).await;
        turns::enqueue(&edge, &device, TASK, step).await;
        let turn = claim(&chat).await;
        assert_eq!(
            (&*turn.text, turn.attempts, turn.has_side_effects),
            (step, 1, false)
        );
        assert!(chat.mark_side_effects(&turn.id).await.unwrap(), "{step}");
        assert_eq!(renew(&chat, &[&held, &turn]).await, [], "{step}");
        chat.complete_turn(&turn.id).await.unwrap();
        assert!(!chat.mark_side_effects(&turn.id).await.unwrap(), "{step}");
        // A turn that is cancelled before it is claimed.
        turns::enqueue(&edge, &device, TASK, "unwanted").await;
        turns::cancel(&edge, &device, Some(TASK)).await;
        assert_no_turn_waits(&chat).await;
    }
    chat.complete_turn(&held.id).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn events_work_at_every_step_of_a_migration() {
    let (cluster, system) = RedisCluster::with_system().await;
    let (control, edge) = system.start_with_edge("control").await;
    let migration = cluster.migration("test:facts").await;
    for step in ["before", "open", "migrate", "end"] {
        migration.step(step).await;
        let lamp = edge.connect_device(step).await;
        let events = control.read_events("one", 10, TEST_TIMEOUT).await.unwrap();
        let [(id, DeviceEvent::Connected { device, .. })] = &events[..] else {
            panic!("{step}: {events:?}");
        };
        assert_eq!(*device, lamp);
        control.ack_events(std::slice::from_ref(id)).await.unwrap();
    }
}

/// Waits until the directory has no entry.
async fn await_empty_directory(cluster: &RedisCluster) {
    let entered = async || cluster.keys("test:*:live").await;
    eventually(TEST_TIMEOUT, entered, Vec::is_empty).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn first_device_of_an_org_connects_during_migration() {
    let (cluster, system) = RedisCluster::with_system().await;
    let (caller, edge) = system.start_with_edge("caller").await;
    let device = edge.connect_device("toy-1").await;
    let live = cluster.keys("test:*:live").await;
    let migration = cluster.migration(&live[0]).await;
    edge.disconnect(&device);
    await_empty_directory(&cluster).await;
    migration.open().await;
    assert_eq!(caller.list(org(), None, 10).await.unwrap(), []);
    edge.connect(&device).await;
    let digest = edge.register(&device, "{}").await;
    let presence = caller.find(&device).await.unwrap().unwrap();
    assert_eq!(presence.digest, Some(digest));
    let listed = caller.list(org(), None, 10).await.unwrap();
    assert_eq!(listed.len(), 1, "{listed:?}");
    edge.disconnect(&device);
    await_empty_directory(&cluster).await;
    edge.connect(&device).await;
    migration.migrate_keys().await;
    migration.end().await;
    assert!(caller.find(&device).await.unwrap().is_some());
}

async fn count(cluster: &RedisCluster, at: usize, set: &str) -> usize {
    let mut count = cmd("ZCARD");
    query(cluster.address(at), count.arg(set)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn conversation_survives_when_its_name_migrates_first() {
    const MAX_PER_ORG: usize = 5_000;
    let (cluster, system) = RedisCluster::with_system().await;
    let bus = system.start_node("chat").await;
    let (due_key, new) = (conversation_key("due"), conversation_key("new"));
    let version = create(&bus, &due_key, "due", Duration::ZERO).await;
    let all = "test:{conversations}".to_owned();
    let org_set = format!("{all}:{}", org());
    let migration = cluster.migration(&all).await;
    // The limit is reached, so a new conversation evicts another.
    let mut fill = cmd("EVAL");
    let code = "for i = 2, ARGV[1] do
          redis.call('ZADD', KEYS[1], 9e12, ARGV[2] .. '/' .. i)
          redis.call('ZADD', KEYS[2], 9e12, ARGV[2] .. '/' .. i)
        end";
    fill.arg(code).arg(2).arg(&all).arg(&org_set);
    fill.arg(MAX_PER_ORG).arg(org().to_string());
    query::<Value>(cluster.address(migration.from), &fill).await;
    migration.open().await;
    let sets = [all.clone(), org_set.clone(), format!("{all}-sizes")];
    migration.migrate(&sets).await;
    let claimed = bus
        .claim_due_conversations(10, LONG_DELAY, &none_in_flight())
        .await;
    assert_eq!(claimed.unwrap(), [], "its value is at the other shard");
    create(&bus, &new, "new", LONG_DELAY).await;
    migration.migrate_keys().await;
    assert_eq!(read(&bus, &due_key).await, Some((version, "due".into())));
    migration.end().await;
    assert_eq!(count(&cluster, migration.to, &org_set).await, MAX_PER_ORG);
    let claimed = due(&bus, LONG_DELAY).await;
    assert_eq!(claimed[0].key, due_key);
    assert!(bus.delete_conversation(&due_key, version).await.unwrap());
    assert_eq!(read(&bus, &new).await.unwrap().1, "new");
    assert_eq!(
        count(&cluster, migration.to, &org_set).await,
        MAX_PER_ORG - 1
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn watcher_lags_when_the_broadcast_channel_moves() {
    let (cluster, system) = RedisCluster::with_system().await;
    let watcher = system.start_watcher("watcher").await;
    let mut events = watcher.watch_catalog().unwrap();
    let migration = cluster.migration("test:all").await;
    migration.open().await;
    migration.end().await;
    await_event(&mut events, &CatalogEvent::Lagged, TEST_TIMEOUT).await;
}

/// How many subscriptions a server was asked for.
async fn count_subscribe_requests(cluster: &RedisCluster) -> u64 {
    let stats: String = query(cluster.address(0), &parse_command("INFO commandstats")).await;
    let line = stats
        .lines()
        .find(|line| line.starts_with("cmdstat_ssubscribe:"));
    let counts = line
        .unwrap_or_default()
        .split([':', ','])
        .filter_map(|field| {
            let (name, count) = field.split_once('=')?;
            matches!(name, "calls" | "rejected_calls").then(|| count.parse::<u64>().ok())?
        });
    counts.sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_subscription_is_retried_with_a_pause() {
    /// The channels of a watcher.
    const CHANNELS: u64 = 67;
    let mut cluster = RedisCluster::start_with_fast_failover(0).await;
    let set = parse_command("CONFIG SET cluster-allow-pubsubshard-when-down no");
    query::<()>(cluster.address(0), &set).await;
    for doomed in [1, 2] {
        cluster.servers[doomed].kill();
    }
    let info = async || query::<String>(cluster.address(0), &parse_command("CLUSTER INFO")).await;
    let is_down = |info: &String| info.contains("cluster_state:fail");
    eventually(Duration::from_secs(15), info, is_down).await;
    let system = TestSystem::with_url(cluster.url());
    let started = Instant::now();
    let _watcher = system.spawn_watcher("watcher");
    // The subscriptions are retried.
    let requested = async || count_subscribe_requests(&cluster).await;
    let requested = eventually(TEST_TIMEOUT * 2, requested, |count| *count > 2 * CHANNELS).await;
    let rounds = u64::try_from(started.elapsed().as_millis()).unwrap() / 250 + 2;
    assert!(
        requested <= rounds * CHANNELS,
        "{requested} in {rounds} rounds"
    );
}

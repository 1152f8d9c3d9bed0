//! Shared state is readable and writable while its slot migrates between shards.

use std::time::{Duration, Instant};

use redis::{Value, cmd};
use switchboard_bus::{CatalogEvent, DeviceEvent};

use crate::{
    catalog_events::await_event,
    cluster_servers::{RedisCluster, parse_command, query},
    conversations::{LONG_DELAY, conversation_key, create, due, read},
    eventually::eventually,
    test_edge::{TestSystem, device, org},
    turns::{self, OTHER, TASK, TEST_TIMEOUT, assert_no_turn_waits, claim, connected, renew},
};

/// The migration of one slot.
struct Migration {
    slot: u16,
    from: usize,
    to: usize,
}

impl Migration {
    async fn new(cluster: &RedisCluster, name: &str) -> Self {
        let slot = cluster.slot(name).await;
        let from = cluster.first_owner(slot);
        let to = (from + 1) % usize::from(RedisCluster::MASTERS);
        Self { slot, from, to }
    }

    async fn open(&self, cluster: &RedisCluster) {
        cluster.open_migration(self.slot, self.from, self.to).await;
    }

    async fn migrate_keys(&self, cluster: &RedisCluster) {
        cluster.migrate_keys(self.slot, self.from, self.to).await;
    }

    async fn end(&self, cluster: &RedisCluster) {
        cluster.end_migration(self.slot, self.from, self.to).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn turns_work_at_every_step_of_a_migration() {
    let cluster = RedisCluster::start(0).await;
    let system = TestSystem::with_url(cluster.url());
    let (chat, edge) = (
        system.start_node("chat").await,
        system.start_edge("edge").await,
    );
    let toy = connected(&edge).await;
    turns::enqueue(&edge, &toy, OTHER, "held").await;
    let held = claim(&chat).await;
    let migration = Migration::new(&cluster, "test:{turns}").await;
    for step in ["open", "carry", "end", "after"] {
        match step {
            "open" => migration.open(&cluster).await,
            "carry" => migration.migrate_keys(&cluster).await,
            "end" => migration.end(&cluster).await,
            _ => {}
        }
        turns::enqueue(&edge, &toy, TASK, step).await;
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
        turns::enqueue(&edge, &toy, TASK, "unwanted").await;
        let unwanted = edge.bus.cancel_turns(&toy.0, toy.1, Some(TASK));
        unwanted.await.unwrap();
        assert_no_turn_waits(&chat).await;
    }
    chat.complete_turn(&held.id).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn events_work_at_every_step_of_a_migration() {
    let cluster = RedisCluster::start(0).await;
    let system = TestSystem::with_url(cluster.url());
    let (control, edge) = (
        system.start_node("control").await,
        system.start_edge("edge").await,
    );
    let migration = Migration::new(&cluster, "test:facts").await;
    for step in ["before", "open", "carry", "end"] {
        match step {
            "open" => migration.open(&cluster).await,
            "carry" => migration.migrate_keys(&cluster).await,
            "end" => migration.end(&cluster).await,
            _ => {}
        }
        let toy = device(step);
        edge.connect(&toy).await;
        let events = control.read_events("one", 10, TEST_TIMEOUT).await.unwrap();
        let [(id, DeviceEvent::Connected { device, .. })] = &events[..] else {
            panic!("{step}: {events:?}");
        };
        assert_eq!(*device, toy);
        control.ack_events(std::slice::from_ref(id)).await.unwrap();
    }
}

/// Waits until the directory has no entry.
async fn await_empty_directory(cluster: &RedisCluster) {
    let entered = async || {
        let mut keys = Vec::new();
        for n in 0..usize::from(RedisCluster::MASTERS) {
            let address = cluster.address(n);
            keys.extend(query::<Vec<String>>(address, &parse_command("KEYS test:*:live")).await);
        }
        keys
    };
    eventually(TEST_TIMEOUT, entered, Vec::is_empty).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn first_device_of_an_org_connects_during_migration() {
    let cluster = RedisCluster::start(0).await;
    let system = TestSystem::with_url(cluster.url());
    let (caller, edge) = (
        system.start_node("caller").await,
        system.start_edge("edge").await,
    );
    let toy = device("toy-1");
    edge.connect(&toy).await;
    let mut live = Vec::new();
    for n in 0..usize::from(RedisCluster::MASTERS) {
        live.extend(
            query::<Vec<String>>(cluster.address(n), &parse_command("KEYS test:*:live")).await,
        );
    }
    let migration = Migration::new(&cluster, &live[0]).await;
    edge.disconnect(&toy);
    await_empty_directory(&cluster).await;
    migration.open(&cluster).await;
    assert_eq!(caller.list(org(), None, 10).await.unwrap(), []);
    edge.connect(&toy).await;
    let digest = edge.register(&toy, "{}").await;
    let presence = caller.find(&toy).await.unwrap().unwrap();
    assert_eq!(presence.digest, Some(digest));
    let listed = caller.list(org(), None, 10).await.unwrap();
    assert_eq!(listed.len(), 1, "{listed:?}");
    edge.disconnect(&toy);
    await_empty_directory(&cluster).await;
    edge.connect(&toy).await;
    migration.migrate_keys(&cluster).await;
    migration.end(&cluster).await;
    assert!(caller.find(&toy).await.unwrap().is_some());
}

async fn count(cluster: &RedisCluster, at: usize, set: &str) -> usize {
    let mut count = cmd("ZCARD");
    query(cluster.address(at), count.arg(set)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn conversation_survives_when_its_name_migrates_first() {
    const MAX_PER_ORG: usize = 5_000;
    let cluster = RedisCluster::start(0).await;
    let system = TestSystem::with_url(cluster.url());
    let bus = system.start_node("chat").await;
    let (due_key, new) = (conversation_key("due"), conversation_key("new"));
    let version = create(&bus, &due_key, "due", Duration::ZERO).await;
    let all = "test:{conversations}".to_owned();
    let org_set = format!("{all}:{}", org());
    let migration = Migration::new(&cluster, &all).await;
    // The limit is reached, so a new conversation evicts another.
    let mut fill = cmd("EVAL");
    let code = "for i = 2, ARGV[1] do
          redis.call('ZADD', KEYS[1], 9e12, ARGV[2] .. '/' .. i)
          redis.call('ZADD', KEYS[2], 9e12, ARGV[2] .. '/' .. i)
        end";
    fill.arg(code).arg(2).arg(&all).arg(&org_set);
    fill.arg(MAX_PER_ORG).arg(org().to_string());
    query::<Value>(cluster.address(migration.from), &fill).await;
    migration.open(&cluster).await;
    let sets = [all.clone(), org_set.clone()];
    cluster.migrate(&sets, migration.from, migration.to).await;
    let claimed = bus.claim_due_conversations(10, LONG_DELAY).await;
    assert_eq!(claimed.unwrap(), [], "its value is at the other shard");
    create(&bus, &new, "new", LONG_DELAY).await;
    migration.migrate_keys(&cluster).await;
    assert_eq!(read(&bus, &due_key).await, Some((version, "due".into())));
    migration.end(&cluster).await;
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
    let cluster = RedisCluster::start(0).await;
    let system = TestSystem::with_url(cluster.url());
    let watcher = system.start_watcher("watcher").await;
    let mut events = watcher.watch_catalog().unwrap();
    let migration = Migration::new(&cluster, "test:all").await;
    migration.open(&cluster).await;
    migration.end(&cluster).await;
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

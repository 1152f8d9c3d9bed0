//! Redis Cluster: the contract of a single server, and shards that move and fail.

use std::{
    collections::HashSet,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use switchboard_bus::{Bus, BusConfig, BusError, NodeId};
use switchboard_protocol::{id::DeviceKey, outcome::Outcome};
use switchboard_runtime::shutdown::Shutdown;
use switchboard_test_support::eventually::eventually;
use tokio::task::JoinSet;

use crate::{
    CLUSTER,
    cluster_servers::RedisCluster,
    faults::await_success,
    test_edge::{TestEdge, TestSystem, call, call_for, device, org},
};

/// How long some hundred calls may take on a busy machine.
const CALLS_TIMEOUT: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn contract_holds_in_a_cluster() {
    let cluster = RedisCluster::start(0).await;
    // Runs these tests again in a process of their own, with the URL of the cluster.
    let mut tests = Command::new(std::env::current_exe().unwrap());
    tests.env(CLUSTER, cluster.url());
    for single_server in [
        "faults::",
        "cluster::",
        "slot_migration::",
        "sentinel::",
        "redis",
    ] {
        tests.args(["--skip", single_server]);
    }
    let ran = tests.args(["--test-threads", "2"]).output().unwrap();
    let output = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{output}");
    let passed = output.split("ok. ").nth(1).and_then(|rest| {
        let count = rest.split(' ').next()?;
        count.parse::<usize>().ok()
    });
    assert!(passed.is_some_and(|count| count >= 40), "{output}");
}

/// Concurrent calls without a pause, until they are stopped.
struct CallLoad {
    tasks: JoinSet<usize>,
    stop: Arc<AtomicBool>,
    succeeded: Arc<AtomicUsize>,
}

type Ended = Result<Outcome, BusError>;

/// No failure is allowed.
fn no_failure(_: &Ended) -> bool {
    false
}

/// The failures while Redis is unavailable.
fn lost_or_refused(ended: &Ended) -> bool {
    matches!(ended, Ok(Outcome::Lost) | Err(BusError::Unavailable))
}

impl CallLoad {
    /// Starts the calls. Besides success, only these ends are allowed.
    fn start(caller: &Bus, device: &DeviceKey, allowed: fn(&Ended) -> bool) -> Self {
        let (stop, succeeded) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let mut tasks = JoinSet::new();
        for _ in 0..8 {
            let (caller, device, stop) = (caller.clone(), device.clone(), Arc::clone(&stop));
            let all: Arc<AtomicUsize> = Arc::clone(&succeeded);
            tasks.spawn(async move {
                let mut count = 0;
                while !stop.load(Ordering::Acquire) {
                    let answer = caller.call(call_for(&device, "{}")).await;
                    let ended: Ended = answer.map(|answer| answer.outcome);
                    if !matches!(ended, Ok(Outcome::Succeeded)) {
                        assert!(allowed(&ended), "{ended:?}");
                        tokio::task::yield_now().await;
                        continue;
                    }
                    count += 1;
                    all.fetch_add(1, Ordering::AcqRel);
                }
                count
            });
        }
        Self {
            tasks,
            stop,
            succeeded,
        }
    }

    /// Waits until this many more calls have succeeded.
    async fn await_calls(&self, count: usize) {
        let before = self.succeeded.load(Ordering::Acquire);
        let succeeded = async || self.succeeded.load(Ordering::Acquire);
        eventually(CALLS_TIMEOUT, succeeded, |now| *now >= before + count).await;
    }

    async fn end(self) -> usize {
        self.stop.store(true, Ordering::Release);
        self.tasks.join_all().await.into_iter().sum()
    }
}

/// The channel of a node.
fn inbox(node: &NodeId) -> String {
    format!("test:in:{node}")
}

#[tokio::test(flavor = "multi_thread")]
async fn moving_inbox_slots_lose_and_repeat_no_call() {
    let (cluster, system) = RedisCluster::with_system().await;
    let (caller, edge) = system.start_with_edge("caller").await;
    let device = edge.connect_device("toy-1").await;
    let load = CallLoad::start(&caller, &device, no_failure);
    load.await_calls(100).await;
    for node in [edge.bus.node(), caller.node()] {
        let mut migration = cluster.migration(&inbox(node)).await;
        for _ in 0..3 {
            migration.open().await;
            migration.migrate_keys().await;
            load.await_calls(50).await;
            migration.end().await;
            load.await_calls(100).await;
            migration = migration.next();
        }
    }
    let succeeded = load.end().await;
    assert_eq!(edge.delivered().len(), succeeded, "each call once");
}

#[tokio::test(flavor = "multi_thread")]
async fn directory_works_while_its_slot_moves() {
    let (cluster, system) = RedisCluster::with_system().await;
    let (caller, edge) = (
        system.start_watcher("caller").await,
        system.start_edge("edge").await,
    );
    edge.connect(&device("toy-0")).await;
    let keys = cluster.keys("test:*:live").await;
    assert_eq!(keys.len(), 1, "{keys:?}");
    let migration = cluster.migration(&keys[0]).await;
    migration.open().await;
    migration.migrate_keys().await;
    // The old owner redirects single commands to the new one.
    edge.connect(&device("toy-1")).await;
    let digest = edge.register(&device("toy-1"), "{}").await;
    migration.end().await;
    edge.connect(&device("toy-2")).await;
    let listed = caller.list(org(), None, 10).await.unwrap();
    let listed: Vec<&str> = listed.iter().map(|(id, _)| id.as_str()).collect();
    assert_eq!(listed, ["toy-0", "toy-1", "toy-2"]);
    let presence = caller.find(&device("toy-1")).await.unwrap().unwrap();
    assert_eq!(presence.digest, Some(digest));
    assert_eq!(
        call(&caller, &device("toy-2")).await.unwrap().outcome,
        Outcome::Succeeded
    );
    // A watcher receives events from the new owner.
    let mut events = caller.watch_catalog().unwrap();
    let digest = edge.register(&device("toy-2"), "{}").await;
    let event = crate::catalog_events::services(&device("toy-2"), Some(digest));
    crate::catalog_events::await_event(&mut events, &event, Duration::from_secs(5)).await;
}

/// An edge whose inbox is at this shard, or is not.
async fn edge_at(
    cluster: &RedisCluster,
    system: &TestSystem,
    shard: usize,
    is: bool,
) -> Arc<TestEdge> {
    loop {
        let edge = system.start_edge("edge").await;
        let slot = cluster.slot(&inbox(edge.bus.node())).await;
        if (cluster.first_owner(slot) == shard) == is {
            return edge;
        }
        edge.shutdown.stop();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_shard_affects_only_its_own_channels() {
    let mut cluster = RedisCluster::start_with_fast_failover(1).await;
    let system = TestSystem::with_url(cluster.url());
    let doomed = 0;
    cluster.replicate(3, doomed).await;
    let caller = edge_at(&cluster, &system, doomed, false).await;
    let there = edge_at(&cluster, &system, doomed, true).await;
    let elsewhere = edge_at(&cluster, &system, doomed, false).await;
    there.connect(&device("toy-1")).await;
    elsewhere.connect(&device("toy-2")).await;
    await_success(&caller.bus, Duration::from_secs(5)).await;
    let load = CallLoad::start(&caller.bus, &device("toy-2"), no_failure);
    load.await_calls(100).await;
    cluster.servers[doomed].kill();
    load.await_calls(100).await;
    let refused = async || {
        let mut brief = call_for(&device("toy-1"), "{}");
        brief.timeout = Duration::from_millis(300);
        caller.bus.call(brief).await.map(|answer| answer.outcome)
    };
    let failed = |ended: &Ended| !matches!(ended, Ok(Outcome::Succeeded));
    let ended = eventually(Duration::from_secs(5), refused, failed).await;
    assert!(
        matches!(
            ended,
            Ok(Outcome::Lost | Outcome::TimedOut) | Err(BusError::Unavailable)
        ),
        "{ended:?}"
    );
    await_success(&caller.bus, Duration::from_secs(20)).await;
    load.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn shard_failover_and_failback_repeat_no_call() {
    let cluster = RedisCluster::start(1).await;
    let system = TestSystem::with_url(cluster.url());
    let (shard, replica) = (0, 3);
    cluster.replicate(replica, shard).await;
    let caller = edge_at(&cluster, &system, shard, false).await;
    let edge = edge_at(&cluster, &system, shard, true).await;
    let device = edge.connect_device("toy-1").await;
    let load = CallLoad::start(&caller.bus, &device, lost_or_refused);
    load.await_calls(100).await;
    for (from, to) in [(shard, replica), (replica, shard)] {
        // A master publishes nothing during a failover, which may take longer than a command may.
        cluster.fail_over(from, to).await;
        load.await_calls(200).await;
    }
    let succeeded = load.end().await;
    let delivered = edge.delivered();
    let distinct: HashSet<_> = delivered.iter().collect();
    assert_eq!(delivered.len(), distinct.len(), "each call once");
    assert!(delivered.len() >= succeeded);
}

#[tokio::test]
async fn prefix_with_braces_is_refused_for_a_cluster() {
    let url = "redis+cluster://127.0.0.1:1".to_owned().into();
    let config = BusConfig::redis(&url, "node", "a{b}");
    let started = Bus::start(config, &prometheus::Registry::new(), &Shutdown::new());
    assert!(matches!(started.err(), Some(BusError::Address(_))));
}

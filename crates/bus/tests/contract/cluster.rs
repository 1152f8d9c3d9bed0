//! Redis as a cluster: every promise of one server, and shards that move and die.

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
use tokio::task::JoinSet;

use crate::{
    CLUSTER,
    cluster_servers::{RedisCluster, ask, said},
    eventually::eventually,
    faults::works_again,
    station::{Site, Station, call, call_for, device, org},
};

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_keeps_every_promise() {
    let cluster = RedisCluster::start(0).await;
    // These tests once more, as a program of their own that is told where the cluster is.
    let mut again = Command::new(std::env::current_exe().unwrap());
    again.env(CLUSTER, cluster.url());
    for about_servers in ["faults::", "cluster::", "moves::", "sentinel::", "redis"] {
        again.args(["--skip", about_servers]);
    }
    let ran = again.args(["--test-threads", "2"]).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{said}");
    let passed = said.split("ok. ").nth(1).and_then(|rest| {
        let count = rest.split(' ').next()?;
        count.parse::<usize>().ok()
    });
    assert!(passed.is_some_and(|count| count >= 40), "{said}");
}

/// Calls without a pause until told to stop; how many succeeded.
struct Flow {
    tasks: JoinSet<usize>,
    stop: Arc<AtomicBool>,
    made: Arc<AtomicUsize>,
}

type Ended = Result<Outcome, BusError>;

/// Nothing but success.
fn nothing(_: &Ended) -> bool {
    false
}

/// As when Redis is away.
fn lost_or_refused(ended: &Ended) -> bool {
    matches!(ended, Ok(Outcome::Lost) | Err(BusError::Unavailable))
}

impl Flow {
    /// Besides success, only these ends are allowed.
    fn begin(caller: &Bus, toy: &DeviceKey, others: fn(&Ended) -> bool) -> Self {
        let (stop, made) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let mut tasks = JoinSet::new();
        for _ in 0..8 {
            let (caller, toy, stop) = (caller.clone(), toy.clone(), Arc::clone(&stop));
            let all: Arc<AtomicUsize> = Arc::clone(&made);
            tasks.spawn(async move {
                let mut count = 0;
                while !stop.load(Ordering::Acquire) {
                    let answer = caller.call(call_for(&toy, "{}")).await;
                    let ended: Ended = answer.map(|answer| answer.outcome);
                    if !matches!(ended, Ok(Outcome::Succeeded)) {
                        assert!(others(&ended), "{ended:?}");
                        tokio::task::yield_now().await;
                        continue;
                    }
                    count += 1;
                    all.fetch_add(1, Ordering::AcqRel);
                }
                count
            });
        }
        Self { tasks, stop, made }
    }

    /// Waits until so many more calls were made.
    async fn goes_on(&self, by: usize) {
        let before = self.made.load(Ordering::Acquire);
        let made = async || self.made.load(Ordering::Acquire);
        eventually(Duration::from_secs(10), made, |now| *now >= before + by).await;
    }

    async fn end(self) -> usize {
        self.stop.store(true, Ordering::Release);
        self.tasks.join_all().await.into_iter().sum()
    }
}

async fn inbox_slot(cluster: &RedisCluster, node: &NodeId) -> u16 {
    cluster.slot(&format!("test:in:{node}")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn no_call_is_lost_or_made_twice_while_the_slots_of_inboxes_move() {
    let cluster = RedisCluster::start(0).await;
    let site = Site::through(cluster.url());
    let (caller, edge) = (site.caller("caller").await, site.station("edge").await);
    let toy = device("toy-1");
    edge.connect(&toy).await;
    let flow = Flow::begin(&caller, &toy, nothing);
    flow.goes_on(100).await;
    for node in [edge.bus.node(), caller.node()] {
        let slot = inbox_slot(&cluster, node).await;
        let mut at = cluster.first_owner(slot);
        for _ in 0..3 {
            let to = (at + 1) % usize::from(RedisCluster::MASTERS);
            cluster.begin_move(slot, at, to).await;
            flow.goes_on(50).await;
            cluster.end_move(slot, at, to).await;
            flow.goes_on(100).await;
            at = to;
        }
    }
    let made = flow.end().await;
    assert_eq!(edge.delivered().len(), made, "each call once");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_directory_is_read_and_written_while_its_slot_moves() {
    let cluster = RedisCluster::start(0).await;
    let site = Site::through(cluster.url());
    let (caller, edge) = (site.follower("caller").await, site.station("edge").await);
    edge.connect(&device("toy-0")).await;
    let mut keys = Vec::new();
    for n in 0..usize::from(RedisCluster::MASTERS) {
        keys.extend(ask::<Vec<String>>(cluster.address(n), &said("KEYS test:*:live")).await);
    }
    assert_eq!(keys.len(), 1, "{keys:?}");
    let slot = cluster.slot(&keys[0]).await;
    let from = cluster.first_owner(slot);
    let to = (from + 1) % usize::from(RedisCluster::MASTERS);
    cluster.begin_move(slot, from, to).await;
    // The old owner sends whoever asks to the new one, this once.
    edge.connect(&device("toy-1")).await;
    let digest = edge.register(&device("toy-1"), "{}").await;
    cluster.end_move(slot, from, to).await;
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
    // Who follows registrations hears of them at the new owner.
    let mut events = caller.offer_changes().unwrap();
    let digest = edge.register(&device("toy-2"), "{}").await;
    let told = crate::offers::services(&device("toy-2"), Some(digest));
    crate::offers::await_event(&mut events, &told, Duration::from_secs(5)).await;
}

/// A node whose inbox is at this shard, or is not.
async fn station_at(cluster: &RedisCluster, site: &Site, shard: usize, is: bool) -> Arc<Station> {
    loop {
        let station = site.station("edge").await;
        let slot = inbox_slot(cluster, station.bus.node()).await;
        if (cluster.first_owner(slot) == shard) == is {
            return station;
        }
        station.shutdown.stop();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shard_that_dies_is_away_for_its_own_channels_only_until_its_replica_serves() {
    let mut cluster = RedisCluster::start_watchful(1).await;
    let site = Site::through(cluster.url());
    let doomed = 0;
    cluster.replicate(3, doomed).await;
    let caller = station_at(&cluster, &site, doomed, false).await;
    let there = station_at(&cluster, &site, doomed, true).await;
    let elsewhere = station_at(&cluster, &site, doomed, false).await;
    there.connect(&device("toy-1")).await;
    elsewhere.connect(&device("toy-2")).await;
    works_again(&caller.bus, Duration::from_secs(5)).await;
    let flow = Flow::begin(&caller.bus, &device("toy-2"), nothing);
    flow.goes_on(100).await;
    cluster.servers[doomed].kill();
    flow.goes_on(100).await;
    let refused = async || {
        let mut brief = call_for(&device("toy-1"), "{}");
        brief.timeout = Duration::from_millis(300);
        caller.bus.call(brief).await.map(|answer| answer.outcome)
    };
    let away = |ended: &Ended| !matches!(ended, Ok(Outcome::Succeeded));
    let ended = eventually(Duration::from_secs(5), refused, away).await;
    assert!(
        matches!(
            ended,
            Ok(Outcome::Lost | Outcome::TimedOut) | Err(BusError::Unavailable)
        ),
        "{ended:?}"
    );
    works_again(&caller.bus, Duration::from_secs(20)).await;
    flow.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_call_is_made_twice_while_a_shard_is_handed_to_its_replica_and_back() {
    let cluster = RedisCluster::start(1).await;
    let site = Site::through(cluster.url());
    let (shard, replica) = (0, 3);
    cluster.replicate(replica, shard).await;
    let caller = station_at(&cluster, &site, shard, false).await;
    let edge = station_at(&cluster, &site, shard, true).await;
    let toy = device("toy-1");
    edge.connect(&toy).await;
    let flow = Flow::begin(&caller.bus, &toy, lost_or_refused);
    flow.goes_on(100).await;
    for (from, to) in [(shard, replica), (replica, shard)] {
        // A master that is about to hand over publishes nothing until it has, or gives it up: that may be too long.
        cluster.hand_over(from, to).await;
        flow.goes_on(200).await;
    }
    let succeeded = flow.end().await;
    let delivered = edge.delivered();
    let distinct: HashSet<_> = delivered.iter().collect();
    assert_eq!(delivered.len(), distinct.len(), "each call once");
    assert!(delivered.len() >= succeeded);
}

#[tokio::test]
async fn a_prefix_with_braces_is_refused_for_a_cluster() {
    let url = "redis+cluster://127.0.0.1:1".to_owned().into();
    let config = BusConfig::redis(&url, "node", "a{b}");
    let started = Bus::start(config, &prometheus::Registry::new(), &Shutdown::new());
    assert!(matches!(started.err(), Some(BusError::Address(_))));
}

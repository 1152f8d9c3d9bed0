//! The leases of nodes: what they outlive, and what ends with them.

use std::time::{Duration, Instant};

use switchboard_bus::NodeId;
use switchboard_protocol::{id::OrgId, outcome::Outcome};
use switchboard_test_support::{
    eventually::{eventually, eventually_true},
    redis_server::RedisServer,
    tcp_proxy::{Direction, TcpProxy},
};
use uuid::Uuid;

use crate::test_edge::{TestSystem, call, call_for, device, spawn_calls};

/// Longer than a lease and a renewal.
const LEASE_END: Duration = Duration::from_secs(12);
/// A lease that is renewed in time is never older.
const MAX_LEASE_AGE: Duration = Duration::from_secs(6);

#[tokio::test(flavor = "multi_thread")]
async fn leases_are_renewed_while_redis_is_full() {
    let system = TestSystem::redis().await;
    let (caller, edge) = system.start_with_edge("caller").await;
    let toy = edge.connect_device("toy-1").await;
    call(&caller, &toy).await.unwrap();
    system.configure("maxmemory", "1").await;
    let full = Instant::now();
    let outcome = async || call(&caller, &toy).await.map(|answer| answer.outcome);
    while full.elapsed() < LEASE_END {
        assert_eq!(
            outcome().await.ok(),
            Some(Outcome::Succeeded),
            "{:?}",
            full.elapsed()
        );
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    // A caller that has not read the entry, on a connection that is built while Redis is full.
    let late = system.start_node("late").await;
    assert_eq!(call(&late, &toy).await.unwrap().outcome, Outcome::Succeeded);
    assert!(late.find(&device("toy-1")).await.unwrap().is_some());
    let refused = edge.bus.claim(&device("toy-2")).await;
    assert!(refused.is_err(), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn call_in_flight_outlasts_an_outage_that_ends_later_for_its_node() {
    let server = RedisServer::start();
    let near = TcpProxy::start(server.address()).await;
    let far = TcpProxy::start(server.address()).await;
    let (callers, edges) = (
        TestSystem::with_url(near.redis_url()),
        TestSystem::with_url(far.redis_url()),
    );
    let (caller, edge) = (
        callers.start_node("caller").await,
        edges.start_edge("edge").await,
    );
    let toy = edge.connect_device("toy-1").await;
    edge.hold_answers();
    let mut long = call_for(&toy, "{}");
    long.timeout = Duration::from_secs(60);
    let mut waiting = spawn_calls(&caller, [long]);
    edge.await_delivered(1).await;
    let mut is_pending_for = async |time: Duration| {
        let since = Instant::now();
        while since.elapsed() < time {
            let ended = waiting.try_join_next();
            assert!(ended.is_none(), "{ended:?} after {:?}", since.elapsed());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    near.black_hole(Direction::Both);
    far.black_hole(Direction::Both);
    is_pending_for(LEASE_END).await;
    near.pass();
    eventually_true("the caller is connected", || caller.is_connected()).await;
    is_pending_for(Duration::from_millis(1_500)).await;
    far.pass();
    eventually_true("the edge is connected", || edge.bus.is_connected()).await;
    edge.release_answers();
    let answers = waiting.join_all().await;
    assert_eq!(answers[0].as_ref().unwrap().outcome, Outcome::Succeeded);
}

#[tokio::test(flavor = "multi_thread")]
async fn lease_is_renewed_while_a_dead_node_is_removed() {
    const ORGS: u128 = 40;
    let server = RedisServer::start();
    let proxy = TcpProxy::start(server.address()).await;
    let system = TestSystem::with_url(server.url());
    let slowed = TestSystem::with_url(proxy.redis_url());
    let slow = slowed.start_node("slow").await;
    let doomed = system.start_edge("doomed").await;
    for org in 0..ORGS {
        let mut toy = device("toy-1");
        toy.org = OrgId::from_uuid(Uuid::from_u128(org));
        doomed.connect(&toy).await;
    }
    doomed.shutdown.stop();
    eventually_true("the node has left", || doomed.shutdown.tasks() == 0).await;
    proxy.delay(Duration::from_millis(100));
    system.expire_lease(doomed.bus.node()).await;
    let expired = Instant::now();
    while lease_age(&system, doomed.bus.node()).await.is_some() {
        let age = lease_age(&system, slow.node()).await;
        assert!(age.is_some_and(|age| age < MAX_LEASE_AGE), "{age:?}");
        assert!(expired.elapsed() < Duration::from_secs(60));
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let took = expired.elapsed();
    assert!(took > LEASE_END, "{took:?} proves nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_node_searches_the_directory_for_the_entries_of_a_dead_node() {
    let system = TestSystem::redis().await;
    let doomed = system.start_edge("doomed").await;
    doomed.connect_device("toy-1").await;
    let mut others = Vec::new();
    for name in ["one", "two", "three"] {
        others.push(system.start_node(name).await);
    }
    doomed.shutdown.stop();
    eventually_true("the node has left", || doomed.shutdown.tasks() == 0).await;
    // The doomed node may have searched for its own entries when it connected.
    let mut forget = redis::cmd("CONFIG");
    system.query::<()>(forget.arg("RESETSTAT")).await;
    system.expire_lease(doomed.bus.node()).await;
    let lease = async || lease_age(&system, doomed.bus.node()).await;
    eventually(LEASE_END, lease, Option::is_none).await;
    let removed = Instant::now();
    for other in &others {
        let age = async || lease_age(&system, other.node()).await;
        let is_renewed = |age: &Option<Duration>| age.is_some_and(|age| age < removed.elapsed());
        eventually(LEASE_END, age, is_renewed).await;
    }
    let mut info = redis::cmd("INFO");
    let statistics: String = system.query(info.arg("commandstats")).await;
    assert!(
        statistics.contains("cmdstat_hscan:calls=1,"),
        "{statistics}"
    );
    assert_eq!(others[0].find(&device("toy-1")).await.unwrap(), None);
}

/// How long ago a node renewed its lease; `None` for a node without one.
async fn lease_age(system: &TestSystem, node: &NodeId) -> Option<Duration> {
    let script = "local beat = redis.call('ZSCORE', KEYS[1], ARGV[1])
        if not beat then return nil end
        local t = redis.call('TIME')
        return t[1] * 1000 + math.floor(t[2] / 1000) - beat";
    let mut read = redis::cmd("EVAL");
    read.arg(script)
        .arg(1)
        .arg("test:{nodes}")
        .arg(node.as_str());
    let age: Option<u64> = system.query(&read).await;
    age.map(Duration::from_millis)
}

//! The metrics of a node: activity of its inbox, durations of commands, totals of all nodes.

use std::time::Duration;

use bytes::Bytes;
use prometheus::Registry;
use switchboard_bus::{Bus, BusConfig, BusError, LocalHub};
use switchboard_protocol::schema::Digest;
use switchboard_runtime::shutdown::Shutdown;
use switchboard_test_support::eventually::eventually;

use crate::{
    cluster_servers::RedisCluster,
    test_edge::{TestSystem, call, device},
    turns::TASK,
};

const TEST_TIMEOUT: Duration = Duration::from_secs(15);
/// Totals are read every 15 s.
const STATS_TIMEOUT: Duration = Duration::from_secs(40);
/// Turns of one organisation in the queue.
const MAX_ORG_TURNS: usize = 2_500;
/// The age of an idle inbox exceeds this before a probe, and not after it.
const IDLE_AGE_S: f64 = 1.0;
/// The age of a connected inbox does not reach this.
const DISCONNECTED_AGE_S: f64 = 4.5;

fn age(metrics: &Registry) -> f64 {
    let families = metrics.gather();
    let name = "switchboard_bus_probe_age_seconds";
    let family = families.iter().find(|family| family.name() == name);
    family.unwrap().get_metric()[0].get_gauge().get_value()
}

fn round_trips(metrics: &Registry) -> u64 {
    let families = metrics.gather();
    let name = "switchboard_bus_round_trip_seconds";
    let family = families.iter().find(|family| family.name() == name);
    let histogram = family.unwrap().get_metric()[0].get_histogram();
    histogram.get_sample_count()
}

/// An idle node receives no messages, so only probes reset the age.
async fn assert_probe_resets_age(metrics: &Registry) {
    // Counted before the age is read: a probe in between resets the age.
    let idle = async || (round_trips(metrics), age(metrics));
    let (before, _) = eventually(TEST_TIMEOUT, idle, |(_, age)| *age >= IDLE_AGE_S).await;
    eventually(TEST_TIMEOUT, async || age(metrics), |age| *age < IDLE_AGE_S).await;
    assert!(round_trips(metrics) > before);
}

#[tokio::test(flavor = "multi_thread")]
async fn in_redis_probes_reset_the_age_of_an_idle_inbox() {
    let mut system = TestSystem::redis().await;
    let (_bus, metrics) = system.start_node_with_metrics("idle").await;
    assert!(round_trips(&metrics) >= 1, "the connection was verified");
    assert_probe_resets_age(&metrics).await;
    system.server().kill();
    eventually(
        TEST_TIMEOUT,
        async || age(&metrics),
        |age| *age >= DISCONNECTED_AGE_S,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_redis_cluster_only_the_inbox_shard_resets_the_age() {
    let (mut cluster, system) = RedisCluster::with_system().await;
    let (bus, metrics) = system.start_node_with_metrics("idle").await;
    assert!(
        round_trips(&metrics) >= u64::from(RedisCluster::MASTERS),
        "each shard was verified"
    );
    assert_probe_resets_age(&metrics).await;
    let slot = cluster.slot(&format!("test:in:{}", bus.node())).await;
    let owner = cluster.first_owner(slot);
    cluster.servers[owner].kill();
    // The other shards are still probed.
    eventually(
        TEST_TIMEOUT,
        async || age(&metrics),
        |age| *age >= DISCONNECTED_AGE_S,
    )
    .await;
    let before = round_trips(&metrics);
    eventually(
        TEST_TIMEOUT,
        async || round_trips(&metrics),
        |now| *now > before,
    )
    .await;
    assert!(age(&metrics) >= DISCONNECTED_AGE_S);
}

fn gauge(metrics: &Registry, name: &str) -> f64 {
    let families = metrics.gather();
    let family = families.iter().find(|family| family.name() == name);
    family.unwrap().get_metric()[0].get_gauge().get_value()
}

/// How often a budget of the bus had no room. Every label exists from the start.
fn refused(metrics: &Registry, budget: &str) -> f64 {
    let families = metrics.gather();
    let name = "switchboard_bus_budget_refused_total";
    let family = families.iter().find(|family| family.name() == name);
    let mut series = family.unwrap().get_metric().iter();
    let of_budget = series.find(|metric| metric.get_label()[0].value() == budget);
    of_budget.unwrap().get_counter().get_value()
}

#[tokio::test]
async fn refusals_are_counted_by_budget() {
    let (hub, shutdown, metrics) = (LocalHub::default(), Shutdown::new(), Registry::new());
    let config = BusConfig::local(&hub, "edge").with_registration_bytes(10);
    let bus = Bus::start(config, &metrics, &shutdown).unwrap();
    let toy = device("toy");
    let epoch = bus.claim(&toy).await.unwrap().epoch;
    let counts =
        || ["registrations", "turn_places", "device_events"].map(|of| refused(&metrics, of));
    let json = Bytes::from_static(b"{\"too\":\"long\"}");
    let registered = bus.register(&toy, epoch, None, (Digest::compute(&json), &json));
    let full = registered.await.unwrap_err();
    assert!(matches!(full, BusError::RegistrationsFull { .. }), "{full}");
    let turn = || bus.enqueue_turn(&toy, epoch, TASK, "Hi.".to_owned());
    for _ in 0..MAX_ORG_TURNS {
        turn().await.unwrap();
    }
    assert_eq!(counts(), [1.0, 0.0, 0.0]);
    assert!(matches!(turn().await, Err(BusError::Overloaded)));
    assert_eq!(counts(), [1.0, 1.0, 0.0]);
    // No control plane reads the events; those of one organisation have 16 MiB.
    let event = Bytes::from(format!("{{\"name\":\"{}\"}}", "x".repeat(500_000)));
    for _ in 0..40 {
        bus.record_custom_event(toy.clone(), epoch, event.clone());
    }
    let events = async || refused(&metrics, "device_events");
    eventually(TEST_TIMEOUT, events, |count| (*count - 7.0).abs() < 0.5).await;
    shutdown.stop();
}

/// How often a command was timed. Every label exists from the start.
fn timed(metrics: &Registry, command: &str) -> u64 {
    let families = metrics.gather();
    let name = "switchboard_bus_command_seconds";
    let family = families.iter().find(|family| family.name() == name);
    let mut series = family.unwrap().get_metric().iter();
    let of_command = series.find(|metric| metric.get_label()[0].value() == command);
    of_command.unwrap().get_histogram().get_sample_count()
}

async fn assert_totals(system: &TestSystem, reset: impl AsyncFnOnce()) {
    let edge = system.start_edge("edge").await;
    for id in ["one", "two", "three"] {
        edge.connect(&device(id)).await;
    }
    let three = device("three");
    let epoch = edge.connect(&three).await;
    let text = "Hi.".to_owned();
    let enqueued = edge.bus.enqueue_turn(&three, epoch, TASK, text);
    enqueued.await.unwrap();
    reset().await;
    let (_bus, metrics) = system.start_node_with_metrics("late").await;
    let devices = async || gauge(&metrics, "switchboard_bus_directory_devices");
    eventually(STATS_TIMEOUT, devices, |count| (*count - 3.0).abs() < 0.5).await;
    let events = async || gauge(&metrics, "switchboard_bus_facts_waiting");
    // No control plane reads the events.
    eventually(STATS_TIMEOUT, events, |count| *count > 2.5).await;
    assert!(gauge(&metrics, "switchboard_bus_facts_waiting_bytes") > 100.0);
    for name in ["turns_waiting", "turn_places_used"] {
        let turns = gauge(&metrics, &format!("switchboard_bus_{name}"));
        assert!((turns - 1.0).abs() < 0.5, "{name}: {turns}");
    }
    assert!(gauge(&metrics, "switchboard_bus_up") > 0.5);
}

#[tokio::test]
async fn totals_are_exported_inside_one_process() {
    assert_totals(&TestSystem::local(), async || {}).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_redis_one_node_counts_for_all() {
    let system = TestSystem::redis().await;
    let reset = async || {
        let mut delete = redis::cmd("DEL");
        delete.arg("test:{figures}:counting");
        system.query::<()>(&delete).await;
    };
    assert_totals(&system, reset).await;
    let (_bus, metrics) = system.start_node_with_metrics("later").await;
    let devices = async || gauge(&metrics, "switchboard_bus_directory_devices");
    eventually(STATS_TIMEOUT, devices, |count| (*count - 3.0).abs() < 0.5).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_commands_are_timed() {
    let system = TestSystem::redis().await;
    let edge = system.start_edge("edge").await;
    let device = edge.connect_device("toy").await;
    let (bus, metrics) = system.start_node_with_metrics("caller").await;
    assert_eq!(
        (timed(&metrics, "lookup"), timed(&metrics, "claim")),
        (0, 0)
    );
    let published = timed(&metrics, "publish");
    call(&bus, &device).await.unwrap();
    assert_eq!(timed(&metrics, "lookup"), 1);
    let publish = async || timed(&metrics, "publish");
    eventually(TEST_TIMEOUT, publish, |count| *count > published).await;
    let renewed = async || timed(&metrics, "renew");
    eventually(TEST_TIMEOUT, renewed, |count| *count > 0).await;
    for command in ["claim", "enter", "stream"] {
        assert_eq!(
            timed(&metrics, command),
            0,
            "{command} is sent by the edge only"
        );
    }
}

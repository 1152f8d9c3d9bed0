//! What a node tells its watchers: when its inbox was last heard, how fast Redis is, how much all nodes share.
//! Never: a time of day.

use std::time::Duration;

use prometheus::Registry;

use crate::{
    cluster_servers::RedisCluster,
    eventually::eventually,
    station::{Site, call, device},
};

const SOON: Duration = Duration::from_secs(15);
/// It is looked every 15 s how much there is.
const LATER: Duration = Duration::from_secs(40);
/// An idle inbox is older than this before it is probed, and younger right after.
const IDLE: f64 = 1.0;
/// No inbox that is heard grows so old.
const OLD: f64 = 4.5;

fn age(counted: &Registry) -> f64 {
    let families = counted.gather();
    let name = "switchboard_bus_probe_age_seconds";
    let family = families.iter().find(|family| family.name() == name);
    family.unwrap().get_metric()[0].get_gauge().get_value()
}

fn round_trips(counted: &Registry) -> u64 {
    let families = counted.gather();
    let name = "switchboard_bus_round_trip_seconds";
    let family = families.iter().find(|family| family.name() == name);
    let histogram = family.unwrap().get_metric()[0].get_histogram();
    histogram.get_sample_count()
}

/// Nothing is said to an idle node, so only probes keep its inbox young.
async fn a_probe_makes_it_young(counted: &Registry) {
    // Counted before it is looked how old it is: a probe in between makes it young.
    let idle = async || (round_trips(counted), age(counted));
    let (before, _) = eventually(SOON, idle, |(_, age)| *age >= IDLE).await;
    eventually(SOON, async || age(counted), |age| *age < IDLE).await;
    assert!(round_trips(counted) > before);
}

#[tokio::test(flavor = "multi_thread")]
async fn in_redis_an_idle_inbox_is_probed_and_an_unheard_one_grows_old() {
    let mut site = Site::redis().await;
    let (_bus, counted) = site.counting_caller("idle").await;
    assert!(round_trips(&counted) >= 1, "it was verified");
    a_probe_makes_it_young(&counted).await;
    site.server().kill();
    eventually(SOON, async || age(&counted), |age| *age >= OLD).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_cluster_of_redis_only_the_shard_of_the_inbox_keeps_it_young() {
    let mut cluster = RedisCluster::start(0).await;
    let site = Site::through(cluster.url());
    let (bus, counted) = site.counting_caller("idle").await;
    assert!(
        round_trips(&counted) >= u64::from(RedisCluster::MASTERS),
        "each shard was verified"
    );
    a_probe_makes_it_young(&counted).await;
    let slot = cluster.slot(&format!("test:in:{}", bus.node())).await;
    let theirs = cluster.first_owner(slot);
    cluster.servers[theirs].kill();
    // The others are probed all the while.
    eventually(SOON, async || age(&counted), |age| *age >= OLD).await;
    let before = round_trips(&counted);
    eventually(SOON, async || round_trips(&counted), |now| *now > before).await;
    assert!(age(&counted) >= OLD);
}

fn gauge(counted: &Registry, name: &str) -> f64 {
    let families = counted.gather();
    let family = families.iter().find(|family| family.name() == name);
    family.unwrap().get_metric()[0].get_gauge().get_value()
}

/// How often a command was timed; every one that can be is there from the start.
fn timed(counted: &Registry, command: &str) -> u64 {
    let families = counted.gather();
    let name = "switchboard_bus_command_seconds";
    let family = families.iter().find(|family| family.name() == name);
    let mut series = family.unwrap().get_metric().iter();
    let of_command = series.find(|metric| metric.get_label()[0].value() == command);
    of_command.unwrap().get_histogram().get_sample_count()
}

async fn how_much_there_is(site: &Site, anew: impl AsyncFnOnce()) {
    let edge = site.station("edge").await;
    for id in ["one", "two", "three"] {
        edge.connect(&device(id)).await;
    }
    anew().await;
    let (_bus, counted) = site.counting_caller("late").await;
    let devices = async || gauge(&counted, "switchboard_bus_directory_devices");
    eventually(LATER, devices, |count| (*count - 3.0).abs() < 0.5).await;
    let facts = async || gauge(&counted, "switchboard_bus_facts_waiting");
    // Nobody writes what was told of them.
    eventually(LATER, facts, |count| *count > 2.5).await;
    assert!(gauge(&counted, "switchboard_bus_turns_waiting") < 0.5);
    assert!(gauge(&counted, "switchboard_bus_up") > 0.5);
}

#[tokio::test]
async fn inside_one_process_it_is_known_how_much_there_is() {
    how_much_there_is(&Site::local(), async || {}).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_redis_one_node_counts_for_all() {
    let site = Site::redis().await;
    let anew = async || {
        let mut forget = redis::cmd("DEL");
        forget.arg("test:{figures}:counting");
        site.ask::<()>(&forget).await;
    };
    how_much_there_is(&site, anew).await;
    let (_bus, counted) = site.counting_caller("later").await;
    let devices = async || gauge(&counted, "switchboard_bus_directory_devices");
    eventually(LATER, devices, |count| (*count - 3.0).abs() < 0.5).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_redis_is_asked_is_timed() {
    let site = Site::redis().await;
    let edge = site.station("edge").await;
    let toy = device("toy");
    edge.connect(&toy).await;
    let (bus, counted) = site.counting_caller("caller").await;
    assert_eq!(
        (timed(&counted, "lookup"), timed(&counted, "claim")),
        (0, 0)
    );
    let published = timed(&counted, "publish");
    call(&bus, &toy).await.unwrap();
    assert_eq!(timed(&counted, "lookup"), 1);
    let publish = async || timed(&counted, "publish");
    eventually(SOON, publish, |count| *count > published).await;
    let renewed = async || timed(&counted, "renew");
    eventually(SOON, renewed, |count| *count > 0).await;
    for command in ["claim", "enter", "stream"] {
        assert_eq!(timed(&counted, command), 0, "{command} is the edge's");
    }
}

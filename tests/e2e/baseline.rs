//! Resources return to their baseline after a load.

use std::time::Duration;

use redis::Commands as _;
use serde_json::json;
use switchboard_test_support::eventually::eventually;

use crate::cluster::TestCluster;

/// Two edges, a gateway and a control.
const NODES: usize = 4;

fn open_files(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd"))
        .unwrap()
        .count()
}

#[tokio::test(flavor = "multi_thread")]
async fn i13_files_and_redis_keys_after_load_are_at_baseline() {
    let cluster = TestCluster::start(2).await;
    let client = redis::Client::open(cluster.redis.url()).unwrap();
    let keys = || {
        let mut keys: Vec<String> = client.get_connection().unwrap().keys("*").unwrap();
        keys.sort();
        keys
    };
    // The first round creates what exists once, like the stream of device events. It is part of the
    // baseline, and so is what nodes write from time to time: their status, and the number of devices.
    round(&cluster, 1).await;
    let quiet = async || keys();
    let settled = |keys: &Vec<String>| {
        let has = |end: &str| keys.iter().any(|key| key.ends_with(end));
        let is_of_devices = |key: &String| key.contains("{org_") || key.contains(":services");
        let nodes = keys.iter().filter(|key| key.ends_with(":status")).count();
        !keys.iter().any(is_of_devices) && nodes == NODES && has("{figures}:devices")
    };
    let baseline = eventually(Duration::from_secs(10), quiet, settled).await;
    let files: Vec<usize> = cluster
        .edges
        .iter()
        .map(|edge| open_files(edge.pid()))
        .collect();
    round(&cluster, 200).await;
    let left = async || {
        let mut keys = keys();
        keys.retain(|key| !baseline.contains(key));
        keys
    };
    eventually(Duration::from_secs(20), left, Vec::is_empty).await;
    for (edge, before) in cluster.edges.iter().zip(files) {
        eventually(
            Duration::from_secs(10),
            async || open_files(edge.pid()),
            |now| *now <= before,
        )
        .await;
    }
    let metrics = cluster
        .http
        .get(format!("{}/metrics", cluster.edges[0].address("admin_url")))
        .send()
        .await
        .unwrap();
    let metrics = metrics.text().await.unwrap();
    let connections = metrics
        .lines()
        .find(|line| line.starts_with("switchboard_edge_connections "))
        .unwrap();
    assert_eq!(connections, "switchboard_edge_connections 0");
}

async fn round(cluster: &TestCluster, devices: usize) {
    let mut served = Vec::new();
    for n in 0..devices {
        served.push(cluster.echo(n % 2, &format!("toy-{n}")).await.serve());
    }
    for n in 0..devices {
        let body = json!({"service": "echo", "params": {"text": n.to_string()}});
        let (_, answer) = cluster.call(&format!("toy-{n}"), &body).await;
        assert_eq!(answer["outcome"], "succeeded", "{answer}");
    }
}

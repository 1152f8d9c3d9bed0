//! After the load, everything is as before.

use std::time::Duration;

use redis::Commands as _;
use serde_json::json;

use crate::{eventually::eventually, plant::Plant};

fn open_files(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd"))
        .unwrap()
        .count()
}

#[tokio::test(flavor = "multi_thread")]
async fn i13_after_the_load_files_and_redis_keys_are_back_at_the_baseline() {
    let plant = Plant::start(2).await;
    let client = redis::Client::open(plant.redis.url()).unwrap();
    let keys = || {
        let mut keys: Vec<String> = client.get_connection().unwrap().keys("*").unwrap();
        keys.sort();
        keys
    };
    // One round first: what is made once, like the stream of facts, is part of the baseline.
    round(&plant, 1).await;
    let quiet = async || keys();
    let settled = |keys: &Vec<String>| {
        !keys
            .iter()
            .any(|key| key.contains("{org_") || key.contains(":services"))
    };
    let baseline = eventually(Duration::from_secs(10), quiet, settled).await;
    let files: Vec<usize> = plant
        .edges
        .iter()
        .map(|edge| open_files(edge.pid()))
        .collect();
    round(&plant, 200).await;
    eventually(
        Duration::from_secs(20),
        async || keys(),
        |keys| *keys == baseline,
    )
    .await;
    for (edge, before) in plant.edges.iter().zip(files) {
        eventually(
            Duration::from_secs(10),
            async || open_files(edge.pid()),
            |now| *now <= before,
        )
        .await;
    }
    let metrics = plant
        .http
        .get(format!("{}/metrics", plant.edges[0].address("admin_url")))
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

async fn round(plant: &Plant, devices: usize) {
    let mut served = Vec::new();
    for n in 0..devices {
        served.push(plant.echo(n % 2, &format!("toy-{n}")).await.serve());
    }
    for n in 0..devices {
        let body = json!({"service": "echo", "params": {"text": n.to_string()}});
        let (_, answer) = plant.call(&format!("toy-{n}"), &body).await;
        assert_eq!(answer["outcome"], "succeeded", "{answer}");
    }
}

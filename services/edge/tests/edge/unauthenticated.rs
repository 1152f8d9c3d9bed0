//! Connections that do not authenticate leave room for devices that do.

use switchboard_edge::Config;

use crate::{device::Device, node::Node};

const STRANGER: [u8; 4] = [127, 0, 0, 1];
const OTHER: [u8; 4] = [127, 0, 0, 2];

fn slots(count: usize) -> Config {
    Config {
        device_max_unauthenticated: count,
        ..Config::default()
    }
}

#[tokio::test]
async fn silent_connections_of_one_network_leave_the_port_open() {
    let node = Node::start(slots(32)).await;
    let mut silent = Vec::new();
    let mut connect_silent = async |count: usize| {
        for _ in 0..count {
            silent.push(Device::connect_from(STRANGER, node.addr).await);
        }
    };
    connect_silent(48).await;
    node.metric_is("shed_total", Some("max_unauthenticated"), 16.0)
        .await;
    node.metric_is("unauthenticated", None, 32.0).await;
    assert_eq!(node.budget_used("device_unauthenticated"), 32);

    // All slots are taken when each of the two devices connects.
    for (count, from) in [(0, OTHER), (1, STRANGER)] {
        connect_silent(count).await;
        let mut device = Device::connect_from(from, node.addr).await;
        device.authenticate(&node.token("toy")).await;
    }
    node.metric_is("shed_total", Some("max_unauthenticated"), 18.0)
        .await;
    node.metric_is("unauthenticated", None, 31.0).await;
    // The oldest ones were closed.
    for device in &mut silent[..18] {
        device.expect_goaway("overload").await;
    }
    drop(silent);
    node.metric_is("connections", None, 0.0).await;
    assert_eq!(node.budget_used("device_unauthenticated"), 0);
    assert!(node.metric("refused_total", Some("overload")) < 0.5);
}

#[tokio::test]
async fn crowded_network_loses_its_oldest_connection() {
    let node = Node::start(slots(3)).await;
    let mut first = Device::connect_from(OTHER, node.addr).await;
    node.metric_is("unauthenticated", None, 1.0).await;
    let mut silent = Vec::new();
    for _ in 0..8 {
        silent.push(Device::connect_from(STRANGER, node.addr).await);
    }
    node.metric_is("shed_total", Some("max_unauthenticated"), 6.0)
        .await;
    // It is the oldest of all, and alone in its network.
    first.authenticate(&node.token("toy")).await;
    for device in &mut silent[..6] {
        device.expect_goaway("overload").await;
    }
    node.metric_is("unauthenticated", None, 2.0).await;
}

#[tokio::test]
async fn strangers_make_room_for_devices_at_the_connection_limit() {
    let config = Config {
        device_max_connections: 4,
        device_connections_per_org: 4,
        ..Config::default()
    };
    let node = Node::start(config).await;
    let mut strangers = Vec::new();
    for _ in 0..4 {
        strangers.push(Device::connect_from(STRANGER, node.addr).await);
    }
    node.metric_is("connections", None, 4.0).await;
    let mut devices = Vec::new();
    for (number, stranger) in strangers.iter_mut().enumerate() {
        devices.push(node.device(&format!("toy-{number}")).await);
        stranger.expect_goaway("overload").await;
    }
    node.metric_is("connections", None, 4.0).await;
    node.metric_is("shed_total", Some("max_connections"), 4.0)
        .await;
    let mut refused = Device::connect(node.addr).await;
    refused.expect_goaway("overload").await;
    for device in &mut devices {
        device.sync().await;
    }
}

//! The device connections of one organisation: its share, and what happens beyond it.

use std::time::{Duration, Instant};

use switchboard_edge::Config;
use switchboard_protocol::{
    frame::{Kind, TaskId},
    outcome::{Delivered, Outcome},
};
use switchboard_test_support::eventually::eventually_true;

use crate::{
    device::{Device, LIGHT},
    node::{Node, check},
};

const BUDGET: &str = "device_connections";

fn config(max_connections: usize, per_org: usize) -> Config {
    Config {
        device_max_connections: max_connections,
        device_connections_per_org: per_org,
        ..Config::default()
    }
}

impl Node {
    /// Expects that a device of the organisation is sent to another edge.
    async fn sends_away(&self, id: &str) {
        let mut device = Device::connect(self.addr).await;
        let payload = format!(r#"{{"token":"{}"}}"#, self.token(id));
        device
            .send(Kind::Auth, TaskId::MCP, 0, payload.as_bytes())
            .await;
        let error = device.expect(Kind::Error).await.json();
        assert_eq!(error["code"], "overload", "{error}");
        device.expect_goaway("overload").await;
        // It was not claimed from another edge.
        assert!(self.bus.find(&self.device_key(id)).await.unwrap().is_none());
    }

    async fn connections_are(&self, count: usize) {
        eventually_true("the connections are counted", || {
            self.budget_used(BUDGET) == count
        })
        .await;
    }
}

#[tokio::test]
async fn devices_of_one_organisation_leave_connections_to_others() {
    let node = Node::start(config(4, 0)).await;
    let mut devices = Vec::new();
    for number in 0..3 {
        devices.push(node.lamp(&format!("lamp-{number}")).await);
    }
    node.sends_away("lamp-3").await;
    node.metric_is("refused_total", Some(BUDGET), 1.0).await;

    let (org, mut other) = node.foreign_device("lamp-0").await;
    other.register(LIGHT).await;
    let mut call = node.prepare("lamp-0", r#"{"on":true}"#);
    call.device.org = org;
    let answer = node.call(call);
    let id = other.expect(Kind::Control).await.call_id();
    other.result(&id, "done").await;
    check(&answer.await.unwrap(), Outcome::Succeeded, Delivered::Yes);
    assert_eq!(node.budget_used(BUDGET), 4);

    drop(devices.pop());
    node.connections_are(3).await;
    devices.push(node.lamp("lamp-3").await);
    for device in &mut devices {
        device.sync().await;
    }
    drop((devices, other));
    node.connections_are(0).await;
}

#[tokio::test]
async fn device_at_the_share_of_its_organisation_reconnects() {
    let node = Node::start(config(8, 2)).await;
    let mut other = node.device("toy-2").await;
    let mut current = node.device("toy-1").await;
    let begun = Instant::now();
    for round in 0..6 {
        // A registered connection gives its slot to one that has not registered.
        let newer = match round % 3 {
            0 => node.lamp("toy-1").await,
            _ => node.device("toy-1").await,
        };
        let mut older = std::mem::replace(&mut current, newer);
        older.expect_goaway("takeover").await;
        // The device has not closed its side.
        node.metric_is("connections", None, 2.0).await;
        assert_eq!(node.budget_used(BUDGET), 2);
        node.sends_away("toy-3").await;
    }
    // The edge waits a second for devices that leave their slots to no newer connection.
    assert!(begun.elapsed() < Duration::from_secs(4));
    current.sync().await;
    other.sync().await;
    drop(current);
    node.connections_are(1).await;
    node.device("toy-3").await;
}

#[tokio::test]
async fn only_organisation_may_have_all_connections() {
    let node = Node::start(config(3, 3)).await;
    let mut devices = Vec::new();
    for number in 0..3 {
        devices.push(node.device(&format!("toy-{number}")).await);
    }
    assert_eq!(node.budget_used(BUDGET), 3);
    let mut further = Device::connect(node.addr).await;
    further.expect_goaway("overload").await;
    node.metric_is("shed_total", Some("max_connections"), 1.0)
        .await;
}

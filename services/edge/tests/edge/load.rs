//! Many concurrent devices leave nothing behind.

use std::time::Instant;

use switchboard_edge::Config;
use switchboard_protocol::{
    frame::Kind,
    outcome::{Delivered, Outcome},
};

use crate::node::{Node, TEST_TIMEOUT, check};

const ON: &str = r#"{"on":true}"#;
const DEVICES: usize = 300;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_devices_return_to_the_baseline() {
    let node = Node::start(Config::default()).await;
    let mut lamps = Vec::new();
    for number in 0..DEVICES {
        lamps.push(node.lamp(&format!("lamp-{number}")).await);
    }
    node.metric_is("unauthenticated", None, 0.0).await;
    let calls = (0..DEVICES).map(|number| node.prepare(&format!("lamp-{number}"), ON));
    let answers: Vec<_> = calls.map(|call| node.call(call)).collect();
    for lamp in &mut lamps {
        let id = lamp.expect(Kind::Control).await.call_id();
        lamp.result(&id, "done").await;
    }
    for answer in answers {
        check(&answer.await.unwrap(), Outcome::Succeeded, Delivered::Yes);
    }
    drop(lamps);
    node.metric_is("connections", None, 0.0).await;
    node.metric_is("left_total", Some("closed"), 300.0).await;
    // The directory releases the devices in the background.
    let deadline = Instant::now() + TEST_TIMEOUT;
    while !node
        .caller
        .list(node.org, None, 10)
        .await
        .unwrap()
        .is_empty()
    {
        assert!(Instant::now() < deadline, "devices left in the directory");
        tokio::task::yield_now().await;
    }
}

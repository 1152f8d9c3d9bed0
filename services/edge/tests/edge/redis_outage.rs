//! A Redis outage: connected devices stay, new ones are refused with a retry.

use std::time::Duration;

use switchboard_edge::Config;
use switchboard_protocol::{
    frame::Kind,
    outcome::{Delivered, Outcome},
};
use switchboard_test_support::redis_server::RedisServer;

use crate::{
    device::{Device, LIGHT},
    node::{Node, TEST_TIMEOUT, check},
};

const ON: &str = r#"{"on":true}"#;

#[tokio::test]
async fn connected_devices_survive_a_redis_outage() {
    let mut redis = RedisServer::start();
    let node = Node::start_over(&redis.url(), Config::default()).await;
    let mut lamp = node.lamp("lamp").await;
    let answer = node.call(node.prepare("lamp", ON));
    let id = lamp.expect(Kind::Control).await.call_id();
    lamp.result(&id, "done").await;
    check(&answer.await.unwrap(), Outcome::Succeeded, Delivered::Yes);

    redis.kill();
    let mut newcomer = Device::connect(node.addr).await;
    let payload = format!(r#"{{"token":"{}"}}"#, node.token("newcomer"));
    let task = switchboard_protocol::frame::TaskId::MCP;
    newcomer.send(Kind::Auth, task, 0, payload.as_bytes()).await;
    assert_eq!(
        newcomer.expect(Kind::Error).await.json()["code"],
        "bus_unavailable"
    );
    newcomer.expect_goaway("bus_unavailable").await;
    lamp.sync().await;
    lamp.register(&LIGHT.replace("\"light\"", "\"lamp\"")).await;

    redis.restart();
    // A call may be refused while the bus recovers. The device is found again without reconnecting.
    let called = async {
        loop {
            let mut call = node.prepare("lamp", ON);
            call.service = "lamp".into();
            match node.caller.call(call).await {
                Ok(answer) if answer.outcome == Outcome::Succeeded => return,
                _ => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    };
    let answering = async {
        loop {
            let id = lamp.expect(Kind::Control).await.call_id();
            lamp.result(&id, "done").await;
        }
    };
    tokio::select! {
        () = called => {}
        () = answering => {}
        () = tokio::time::sleep(TEST_TIMEOUT) => panic!("the device was not found again"),
    }
}

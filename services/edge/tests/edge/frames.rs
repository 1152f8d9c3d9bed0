//! Incomplete frames: what devices of one organisation may hold, and for how long.

use std::time::Duration;

use switchboard_edge::Config;
use switchboard_protocol::{
    frame::{Kind, TaskId},
    id::OrgId,
};
use switchboard_test_support::eventually::eventually_true;
use tokio::io::AsyncWriteExt;
use uuid::Uuid;

use crate::{device::Device, node::Node};

const KIB: usize = 1_024;

/// The beginning of a PING with this many bytes.
fn begun_ping(length: usize) -> Vec<u8> {
    let mut bytes = b"##START\x11mcp000010000".to_vec();
    bytes.resize(length, b'x');
    bytes
}

/// A connected device that has begun a frame of 255 KiB.
async fn begin_frame(node: &Node, id: &str) -> Device {
    let mut device = node.device(id).await;
    // The edge may close before the last byte is sent.
    let _ = device.stream.write_all(&begun_ping(255 * KIB)).await;
    device
}

async fn held_reaches(node: &Node, bytes: usize) {
    let what = format!("{bytes} bytes of frames are held");
    eventually_true(&what, || node.budget_used("device_frames") >= bytes).await;
}

#[tokio::test]
async fn incomplete_frames_of_one_organisation_leave_room_for_others() {
    let config = Config {
        // A share of 512 KiB: two whole frames.
        device_incomplete_frame_bytes: 1_024 * KIB,
        ..Config::default()
    };
    let node = Node::start(config).await;
    let mut first = begin_frame(&node, "toy-1").await;
    held_reaches(&node, 255 * KIB).await;
    let second = begin_frame(&node, "toy-2").await;
    held_reaches(&node, 510 * KIB).await;
    for id in ["toy-3", "toy-4", "toy-5"] {
        let mut refused = begin_frame(&node, id).await;
        refused.expect_goaway("overload").await;
        assert!(node.budget_used("device_frames") <= 512 * KIB);
    }
    node.metric_is("left_total", Some("protocol_error"), 3.0)
        .await;

    let mut claims = node.claims("toy");
    claims.org = OrgId::from_uuid(Uuid::now_v7());
    let mut other = Device::connect(node.addr).await;
    other.authenticate(&node.sign(&claims)).await;
    let payload = vec![b'y'; 200 * KIB];
    other.send(Kind::Ping, TaskId::MCP, 0, &payload).await;
    assert!(other.expect(Kind::Pong).await.payload == payload);

    first.send_raw(b"##END").await;
    let pong = first.expect(Kind::Pong).await;
    assert!(pong.payload.len() > 254 * KIB);
    // Small frames are not charged, and the share has room again.
    let mut third = begin_frame(&node, "toy-3").await;
    third.send_raw(b"##END").await;
    third.expect(Kind::Pong).await;
    drop(second);
    eventually_true("nothing is held", || node.budget_used("device_frames") == 0).await;
    first.sync().await;
}

#[tokio::test]
async fn incomplete_frame_ends_at_its_timeout() {
    let config = Config {
        device_frame_timeout_ms: 1_000,
        ..Config::default()
    };
    let node = Node::start(config).await;
    let mut idle = node.device("idle").await;
    let mut small = node.device("small").await;
    small.send_raw(&begun_ping(30)).await;
    let large = begin_frame(&node, "large").await;
    held_reaches(&node, 255 * KIB).await;
    // One more byte from time to time does not prolong it.
    let (mut reader, mut writer) = tokio::io::split(large.stream);
    let drip = node.shutdown.spawn(async move {
        while writer.write_all(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    let mut large = Device::over(tokio::io::join(&mut reader, tokio::io::sink()));
    large.expect_error("frame_timeout").await;
    small.expect_error("frame_timeout").await;
    eventually_true("nothing is held", || node.budget_used("device_frames") == 0).await;
    idle.sync().await;
    drip.abort();
}

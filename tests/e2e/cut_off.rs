//! An edge that cannot reach Redis while the others can.

use std::time::Duration;

use reqwest::StatusCode;
use serde_json::{Value, json};
use switchboard_protocol::frame::Kind;
use switchboard_test_support::{
    eventually::eventually,
    switchboard::Program,
    tcp_proxy::{Direction, TcpProxy},
};
use tokio::time::timeout;

use crate::{
    cluster::TestCluster,
    device::{Device, Received},
};

/// A cluster of two edges. The second one reaches Redis through a proxy, and its readiness URL is the
/// one of the first.
async fn start_cluster() -> (TestCluster, TcpProxy) {
    let mut cluster = TestCluster::start(1).await;
    let proxy = TcpProxy::start(cluster.redis.address()).await;
    let readiness = format!("{}/readyz", cluster.edges[0].address("admin_url"));
    let mut environment = cluster.environment();
    environment.push(("REDIS_URL", proxy.redis_url()));
    environment.push(("SWITCHBOARD_EDGE_READINESS_URL", readiness));
    let listen = [
        "edge",
        "--device-listen",
        "127.0.0.1:0",
        "--admin-listen",
        "127.0.0.1:0",
    ];
    cluster.edges.push(Program::start(&listen, &environment));
    await_readiness(&cluster, 1, StatusCode::OK).await;
    (cluster, proxy)
}

async fn await_readiness(cluster: &TestCluster, edge: usize, expected: StatusCode) {
    let url = format!("{}/readyz", cluster.edges[edge].address("admin_url"));
    let status = async || cluster.http.get(&url).send().await.unwrap().status();
    eventually(Duration::from_secs(20), status, |status| {
        *status == expected
    })
    .await;
}

/// Calls a device in the background. Returns where the call is shown.
async fn queue_call(cluster: &TestCluster, device: &str) -> String {
    let body = json!({"service": "echo", "params": {"text": "back"}, "mode": "queued"});
    let (status, accepted) = cluster.call(device, &body).await;
    assert_eq!(status, StatusCode::ACCEPTED, "{accepted}");
    format!("/v1/calls/{}", accepted["call_id"].as_str().unwrap())
}

async fn await_success(cluster: &TestCluster, call: &str) {
    let outcome = async || cluster.get(call).await.1["outcome"].clone();
    let has_ended = |outcome: &Value| outcome.is_string();
    let outcome = eventually(Duration::from_secs(10), outcome, has_ended).await;
    assert_eq!(outcome, "succeeded");
}

/// The next frame of the device besides heartbeats, which it answers.
async fn receive(device: &mut Device) -> Option<Received> {
    loop {
        match device.receive().await {
            Some(received) if received.kind == Kind::Ping => device.send(Kind::Pong, "").await,
            other => return other,
        }
    }
}

/// Checks that the device receives nothing in this time besides heartbeats.
async fn receives_nothing(device: &mut Device, time: Duration) {
    if let Ok(received) = timeout(time, receive(device)).await {
        panic!("{received:?}");
    }
}

/// Cuts an edge off, and checks that its devices are sent to the other one.
async fn check_departure(cut: impl FnOnce(&TcpProxy)) {
    let (cluster, proxy) = start_cluster().await;
    let mut cut_off = cluster.echo(1, "toy-1").await;
    let mut waiting = cluster.echo(1, "toy-2").await;
    cut(&proxy);
    for device in [&mut cut_off, &mut waiting] {
        let goaway = device.next(Kind::Goaway).await.json();
        assert_eq!(goaway["reason"], "drain", "{goaway}");
    }
    let _moved = cluster.echo(0, "toy-1").await.serve();
    cluster.answers("toy-1", Duration::from_secs(5)).await;
    // The other one connects elsewhere when this connection is closed.
    assert_eq!(receive(&mut waiting).await, None);
    let _moved = cluster.echo(0, "toy-2").await.serve();
    cluster.answers("toy-2", Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn devices_leave_an_edge_that_is_cut_off_from_redis() {
    check_departure(TcpProxy::close).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn devices_leave_an_edge_in_a_black_hole() {
    check_departure(|proxy| proxy.black_hole(Direction::Both)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn devices_leave_an_edge_that_does_not_receive_redis() {
    check_departure(|proxy| proxy.black_hole(Direction::FromServer)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn i14_device_that_follows_after_its_edge_is_connected_again_loses_no_call() {
    let (cluster, proxy) = start_cluster().await;
    let mut old = cluster.echo(1, "toy-1").await;
    proxy.close();
    old.next(Kind::Goaway).await;
    proxy.pass();
    let online = async || cluster.get("/v1/devices/toy-1").await.1["online"].clone();
    eventually(Duration::from_secs(5), online, |online| *online == true).await;
    let call = queue_call(&cluster, "toy-1").await;
    let (id, ..) = old.next_call().await;
    let _moved = cluster.echo(0, "toy-1").await.serve();
    cluster.answers("toy-1", Duration::from_secs(5)).await;
    old.answer(&id, &json!({"success": true, "data": "done"}))
        .await;
    await_success(&cluster, &call).await;
    assert_eq!(receive(&mut old).await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn outage_of_redis_moves_no_device() {
    let (mut cluster, proxy) = start_cluster().await;
    let mut lamp = cluster.echo(1, "toy-1").await;
    cluster.redis.kill();
    proxy.close();
    for edge in [0, 1] {
        await_readiness(&cluster, edge, StatusCode::SERVICE_UNAVAILABLE).await;
    }
    receives_nothing(&mut lamp, Duration::from_secs(5)).await;
    // The edges reconnect one after the other.
    cluster.redis.restart();
    await_readiness(&cluster, 0, StatusCode::OK).await;
    receives_nothing(&mut lamp, Duration::from_millis(1_500)).await;
    proxy.pass();
    await_readiness(&cluster, 1, StatusCode::OK).await;
    // Nothing was sent to the device before the call that it is called with afterwards.
    let call = queue_call(&cluster, "toy-1").await;
    let received = receive(&mut lamp).await.expect("the connection stays open");
    assert_eq!(received.kind, Kind::Control, "{received:?}");
    let id = received.json()["data"]["call_id"]
        .as_str()
        .unwrap()
        .to_owned();
    lamp.answer(&id, &json!({"success": true, "data": "done"}))
        .await;
    await_success(&cluster, &call).await;
}

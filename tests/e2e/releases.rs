//! Processes of two releases beside each other, on one Redis and one PostgreSQL, as during an upgrade.
//!
//! [`PREVIOUS`] names the program of the previous release. The scheduled workflow builds and names it;
//! without it these tests print that they are skipped.

use std::{
    env,
    path::{Path, PathBuf},
    time::Duration,
};

use reqwest::StatusCode;
use serde_json::{Value, json};
use switchboard_test_support::{eventually::eventually, switchboard::Program};
use tokio::time::timeout;

use crate::cluster::{ANY_PORT, TestCluster, echo_services};

/// The variable with the path of the previous release.
const PREVIOUS: &str = "SWITCHBOARD_PREVIOUS_BINARY";
/// The edges, by their place in the cluster.
const CURRENT_EDGE: usize = 0;
const PREVIOUS_EDGE: usize = 1;
const EDGES: [usize; 2] = [CURRENT_EDGE, PREVIOUS_EDGE];
/// Until the other processes know of a change, and calls succeed.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(5);
const OUTCOME_TIMEOUT: Duration = Duration::from_secs(15);

/// The service that a device registers in the middle.
const SING: &str = r#"{"sing": {"description": "Sings"}}"#;

/// The path of the previous release, if it is given.
fn previous_release() -> Option<PathBuf> {
    let path = env::var_os(PREVIOUS).map(PathBuf::from);
    match &path {
        Some(path) => assert!(path.is_file(), "{PREVIOUS}: no file at {}", path.display()),
        None => eprintln!("skipped: {PREVIOUS} names no program of the previous release"),
    }
    path
}

/// An edge of each release, and the current gateway. Control is current: it migrates the database.
async fn start_edges(previous: &Path) -> TestCluster {
    let mut cluster = TestCluster::start(1).await;
    let edge = Program::start_release(previous, &["edge"], &cluster.environment());
    cluster.edges.push(edge);
    cluster.wait_ready().await;
    cluster
}

async fn create_call(cluster: &TestCluster, device: &str, mode: &str) -> String {
    let body = json!({"service": "echo", "params": {"text": mode}, "mode": mode});
    let (status, call) = cluster.call(device, &body).await;
    assert_eq!(status, StatusCode::ACCEPTED, "{call}");
    format!("/v1/calls/{}", call["call_id"].as_str().unwrap())
}

async fn await_success(cluster: &TestCluster, call: &str) {
    let call = async || cluster.get(call).await.1;
    let ended = eventually(OUTCOME_TIMEOUT, call, |call| call["outcome"].is_string()).await;
    assert_eq!(ended["outcome"], "succeeded", "{ended}");
    assert_eq!(ended["delivered"], "yes", "{ended}");
}

/// Registers, calls and disconnects a device at this edge.
async fn check_device(cluster: &TestCluster, edge: usize) {
    let id = &format!("toy-{edge}");
    let path = format!("/v1/devices/{id}");
    let mut toy = cluster.echo(edge, id).await;
    for services in [SING, &echo_services()] {
        toy.register(services).await;
        let sent: Value = serde_json::from_str(services).unwrap();
        // A gateway that does not find them in Redis reads them from the database, to which control
        // writes them.
        let services = async || cluster.get(&path).await.1["services"].clone();
        eventually(CHANGE_TIMEOUT, services, |services| *services == sent).await;
    }
    let served = toy.serve();
    cluster.answers(id, CHANGE_TIMEOUT).await;
    let call = create_call(cluster, id, "async").await;
    await_success(cluster, &call).await;
    drop(served);
    let online = async || cluster.get(&path).await.1["online"].clone();
    eventually(CHANGE_TIMEOUT, online, |online| *online == false).await;
    let body = json!({"service": "echo", "params": {"text": "nobody"}});
    let (_, answer) = cluster.call(id, &body).await;
    assert_eq!(answer["outcome"], "offline", "{answer}");
    let call = create_call(cluster, id, "queued").await;
    let _served = cluster.echo(edge, id).await.serve();
    await_success(cluster, &call).await;
}

/// A device connects to another edge without leaving the former one.
async fn check_takeover(cluster: &TestCluster, from: usize, to: usize) {
    let id = &format!("toy-{from}-{to}");
    let mut former = cluster.echo(from, id).await.serve();
    // From now on the gateway has cached that it is there.
    cluster.answers(id, CHANGE_TIMEOUT).await;
    let moved = cluster.echo(to, id).await;
    let executed = moved.executed.clone();
    let _moved = moved.serve();
    let closed = timeout(CHANGE_TIMEOUT, former.join_next()).await;
    closed.expect("its edge closes it").unwrap().unwrap();
    cluster.answers(id, CHANGE_TIMEOUT).await;
    assert!(!executed.params().is_empty(), "the newer one is called");
}

async fn check(cluster: &TestCluster) {
    for edge in EDGES {
        check_device(cluster, edge).await;
    }
    check_takeover(cluster, PREVIOUS_EDGE, CURRENT_EDGE).await;
    check_takeover(cluster, CURRENT_EDGE, PREVIOUS_EDGE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn gateway_calls_devices_at_edges_of_the_previous_release() {
    let Some(previous) = previous_release() else {
        return;
    };
    check(&start_edges(&previous).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn gateway_of_the_previous_release_calls_devices_at_new_edges() {
    let Some(previous) = previous_release() else {
        return;
    };
    let mut cluster = start_edges(&previous).await;
    let arguments = ["gateway", "--http-listen", ANY_PORT];
    cluster.gateway = Program::start_release(&previous, &arguments, &cluster.environment());
    cluster.wait_ready().await;
    check(&cluster).await;
}

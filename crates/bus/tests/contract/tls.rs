//! The bus over TLS: a single server, a master behind sentinels, a cluster.

use std::{collections::HashSet, process::Command, time::Duration};

use bytes::Bytes;
use switchboard_bus::{Bus, BusError, DeviceEvent};
use switchboard_test_support::{
    certificates::Authority,
    child::{ChildGuard, free_port, wait_listening},
    eventually::eventually,
    redis_server::{RedisServer, tls_options},
};

use crate::{
    cluster_servers::RedisCluster,
    faults::await_success,
    test_edge::{TestSystem, call_for, device, spawn_calls},
    turns,
};

/// More than the buffers of a socket hold.
const LARGE: usize = 1 << 20;
/// How long a node tries in vain.
const IN_VAIN: Duration = Duration::from_millis(1500);

/// Calls, large ones as well, a turn and a device event.
async fn check_everything(system: &TestSystem) {
    let (caller, edge) = system.start_with_edge("caller").await;
    let control = system.start_node("control").await;
    let lamp = turns::connected(&edge).await;
    let params = |n: usize| {
        let fill = if n.is_multiple_of(10) { LARGE } else { 0 };
        format!("{{\"n\":{n},\"fill\":\"{}\"}}", "x".repeat(fill))
    };
    let calls = (0..60).map(|n| call_for(&lamp.0, params(n)));
    let answers = spawn_calls(&caller, calls.collect::<Vec<_>>())
        .join_all()
        .await;
    let bodies: HashSet<Bytes> = answers
        .into_iter()
        .map(|answer| answer.unwrap().body)
        .collect();
    let expected =
        (0..60).map(|n| Bytes::from(format!("{{\"success\":true,\"data\":{}}}", params(n))));
    assert_eq!(bodies, expected.collect());
    turns::enqueue(&edge, &lamp, turns::TASK, "over TLS").await;
    let turn = turns::claim(&caller).await;
    assert_eq!(turn.text, "over TLS");
    caller.complete_turn(&turn.id).await.unwrap();
    let events = async || {
        let events = control.read_events("one", 100, turns::BRIEF_TIMEOUT).await;
        events.unwrap_or_default()
    };
    let is_of_lamp = |event: &DeviceEvent| matches!(event, DeviceEvent::Connected { device, .. } if *device == lamp.0);
    let has_connected =
        |events: &Vec<(_, DeviceEvent)>| events.iter().any(|(_, event)| is_of_lamp(event));
    eventually(turns::TEST_TIMEOUT, events, has_connected).await;
}

/// A node of this system never gets a connection.
async fn check_refused(system: &TestSystem) {
    let registry = prometheus::Registry::new();
    let node = Bus::start(system.config("node"), &registry, &system.shutdown).unwrap();
    let ready = node.wait_ready(IN_VAIN).await;
    assert!(matches!(ready, Err(BusError::Timeout(_))), "{ready:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn single_server_serves_over_tls() {
    let authority = Authority::new();
    let certificate = authority.issue(&["localhost"]);
    let mut server = RedisServer::start_tls(&certificate, &["--requirepass", "pw"]);
    let url = format!("rediss://:pw@localhost:{}/", server.tls_port());
    let system = TestSystem::with_tls(url, &authority);
    check_everything(&system).await;
    let (caller, edge) = (
        system.start_node("caller").await,
        system.start_edge("edge").await,
    );
    edge.connect(&device("toy-1")).await;
    server.kill();
    server.restart();
    await_success(&caller, Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_are_verified() {
    let (authority, other) = (Authority::new(), Authority::new());
    let url = |server: &RedisServer| format!("rediss://localhost:{}/", server.tls_port());
    let server = RedisServer::start_tls(&authority.issue(&["localhost"]), &[]);
    let misnamed = RedisServer::start_tls(&authority.issue(&["redis.example"]), &[]);
    check_refused(&TestSystem::with_tls(url(&server), &other)).await;
    check_refused(&TestSystem::with_url(url(&server))).await;
    check_refused(&TestSystem::with_tls(url(&misnamed), &authority)).await;
    let accepted = TestSystem::with_tls(url(&server), &authority);
    accepted.start_node("node").await;
}

/// A sentinel and a master that are reached with TLS only.
struct TlsSentinel {
    url: String,
    _child: ChildGuard,
    _master: RedisServer,
    _folder: tempfile::TempDir,
}

impl TlsSentinel {
    fn start(authority: &Authority, master_name: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let master = RedisServer::start_tls(&authority.issue(&[master_name]), &[]);
        let own = free_port();
        let file = folder.path().join("sentinel.conf");
        // It monitors the master over TLS, and announces the name by which it knows it.
        let settings = format!(
            "port 0\nbind 127.0.0.1\ntls-replication yes\n\
             sentinel resolve-hostnames yes\nsentinel announce-hostnames yes\n\
             sentinel monitor main localhost {} 1\n",
            master.tls_port()
        );
        std::fs::write(&file, settings).unwrap();
        let mut command = Command::new("redis-server");
        command.arg(&file).args(["--sentinel", "--daemonize", "no"]);
        command.args(tls_options(&authority.issue(&["127.0.0.1"]), own));
        let child = ChildGuard::server(&mut command, "redis-server is installed by ./check");
        wait_listening(([127, 0, 0, 1], own).into());
        Self {
            url: format!("rediss+sentinel://127.0.0.1:{own}/main"),
            _child: child,
            _master: master,
            _folder: folder,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn master_behind_sentinels_serves_over_tls() {
    let authority = Authority::new();
    let sentinel = TlsSentinel::start(&authority, "localhost");
    let system = TestSystem::with_tls(sentinel.url.clone(), &authority);
    check_everything(&system).await;
    check_refused(&TestSystem::with_tls(
        sentinel.url.clone(),
        &Authority::new(),
    ))
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn master_is_verified_for_the_announced_name() {
    let authority = Authority::new();
    let sentinel = TlsSentinel::start(&authority, "other.example");
    check_refused(&TestSystem::with_tls(sentinel.url.clone(), &authority)).await;
}

/// The servers' certificate is for the host name that they announce, and not for their address.
#[tokio::test(flavor = "multi_thread")]
async fn cluster_serves_over_tls() {
    let authority = Authority::new();
    let cluster = RedisCluster::start_tls(&authority.issue(&["localhost"])).await;
    let system = TestSystem::with_tls(cluster.tls_url(), &authority);
    check_everything(&system).await;
    check_refused(&TestSystem::with_tls(cluster.tls_url(), &Authority::new())).await;
}

/// A cluster that announces addresses needs certificates for them.
#[tokio::test(flavor = "multi_thread")]
async fn cluster_is_verified_for_announced_addresses() {
    let authority = Authority::new();
    let cluster = RedisCluster::start_tls(&authority.issue(&["localhost"])).await;
    let announce = ["CONFIG", "SET", "cluster-preferred-endpoint-type", "ip"];
    let mut command = redis::cmd(announce[0]);
    command.arg(&announce[1..]);
    for server in &cluster.servers {
        crate::cluster_servers::query::<()>(server.address(), &command).await;
    }
    check_refused(&TestSystem::with_tls(cluster.tls_url(), &authority)).await;
}

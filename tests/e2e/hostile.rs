//! Hostile bytes on some connections, while all other connections work as before.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::{
    cluster::{TestCluster, echo_services},
    device::Device,
};

/// Maximum number of bytes that a connection receives before it is closed.
const MAX_FINAL_BYTES: usize = 4096;

#[tokio::test(flavor = "multi_thread")]
async fn i15_hostile_bytes_close_only_their_own_connection() {
    let cluster = TestCluster::start(1).await;
    let served = cluster.echo(0, "toy-1").await.serve();
    cluster.answers("toy-1", Duration::from_secs(5)).await;
    let address = cluster.edges[0].address("device_addr");
    let before_kib = resident_kib(cluster.edges[0].pid());
    let mut attacks = tokio::task::JoinSet::new();
    for bytes in attacks_before_auth() {
        for _ in 0..50 {
            attacks.spawn(attack(address.clone(), bytes.clone()));
        }
    }
    let mut slowest = Duration::ZERO;
    while !attacks.is_empty() {
        let begun = Instant::now();
        let body = json!({"service": "echo", "params": {"text": "still there"}});
        assert_eq!(cluster.call("toy-1", &body).await.1["outcome"], "succeeded");
        slowest = slowest.max(begun.elapsed());
        while attacks.try_join_next().is_some() {}
    }
    assert!(
        slowest < Duration::from_secs(1),
        "a call took {slowest:?} beside the attacks"
    );
    let grown_kib = resident_kib(cluster.edges[0].pid()).saturating_sub(before_kib);
    assert!(grown_kib < 64 * 1024, "grew by {grown_kib} KiB");
    drop(served);
}

fn attacks_before_auth() -> Vec<Vec<u8>> {
    let head = b"##START\x10mcp000010000";
    vec![
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        vec![0; 64 * 1024],
        vec![b'#'; 64 * 1024],
        b"##START".repeat(8 * 1024),
        [&head[..], &vec![b'#'; 64 * 1024]].concat(),
        [&head[..], &vec![b'['; 4000], b"##END"].concat(),
        [
            &head[..],
            b"{\"token\":\"",
            &vec![b'a'; 64 * 1024],
            b"\"}##END",
        ]
        .concat(),
        b"##START\x06mcp000010000{\"type\":\"register\",\"data\":{\"services\":{}}}##END".to_vec(),
        b"##START\x99mcp000010000##END".to_vec(),
        b"##START\x10mcp00001abcd##END".to_vec(),
    ]
}

async fn attack(address: String, bytes: Vec<u8>) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    // The server may close while the client still writes.
    let _ = stream.write_all(&bytes).await;
    let mut answer = Vec::new();
    let end = tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut answer)).await;
    assert!(
        end.is_ok(),
        "still open after {} bytes of {:?}…",
        bytes.len(),
        &bytes[..bytes.len().min(20)]
    );
    assert!(answer.len() <= MAX_FINAL_BYTES);
}

#[tokio::test(flavor = "multi_thread")]
async fn i15_schema_bombs_and_nested_messages_are_rejected_cheaply() {
    let cluster = TestCluster::start(1).await;
    let mut bomber = cluster.echo(0, "bomber").await;
    let served = cluster.echo(0, "toy-1").await.serve();
    let deep = "[".repeat(100_000);
    bomber
        .send(
            switchboard_protocol::frame::Kind::Control,
            &format!("{{\"type\":\"register\",\"data\":{deep}"),
        )
        .await;
    let refused = bomber
        .next(switchboard_protocol::frame::Kind::Control)
        .await
        .json();
    assert_eq!(refused["data"]["result"]["success"], false, "{refused}");
    for schema in bombs() {
        let begun = Instant::now();
        let services = json!({"bomb": {"description": "x", "parameters": schema}}).to_string();
        let refused = bomber.try_register(&services).await;
        assert_eq!(refused["success"], false, "{services}: {refused}");
        assert!(
            begun.elapsed() < Duration::from_secs(2),
            "{:?}",
            begun.elapsed()
        );
    }
    bomber.register(&echo_services()).await;
    cluster.answers("toy-1", Duration::from_secs(5)).await;
    drop(served);
}

fn bombs() -> Vec<serde_json::Value> {
    let mut doubling = serde_json::Map::new();
    for n in 0..20 {
        let next = json!({"$ref": format!("#/$defs/d{}", n + 1)});
        doubling.insert(format!("d{n}"), json!({"allOf": [next, next]}));
    }
    doubling.insert("d20".into(), json!({"type": "object"}));
    let mut nested = json!({"type": "object"});
    for _ in 0..40 {
        nested = json!({"properties": {"a": nested}});
    }
    vec![
        json!({"$ref": "#/$defs/d0", "$defs": doubling}),
        nested,
        json!({"$ref": "#"}),
        json!({"$ref": "http://127.0.0.1:1/remote.json"}),
        json!({"properties": {"a": {"unevaluatedProperties": false}}}),
        json!({"enum": vec!["x".repeat(1000); 40]}),
        json!({"properties": {"a": {"pattern": "(((((a{100}){100}){100}){100}){100})"}}}),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn i15_slow_http_clients_are_closed_within_ten_seconds() {
    let cluster = TestCluster::start(0).await;
    let address = cluster
        .gateway
        .address("http_url")
        .trim_start_matches("http://")
        .to_owned();
    let post = "POST /v1/devices/toy-1/calls HTTP/1.1\r\nHost: x\r\n";
    let body = format!(
        "{post}Authorization: Bearer {}\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{{",
        cluster.org.key
    );
    let mut clients = tokio::task::JoinSet::new();
    clients.spawn(open_for(address.clone(), String::new()));
    clients.spawn(open_for(address.clone(), format!("{post}X-Slow: ")));
    clients.spawn(open_for(address, body));
    for open_for in clients.join_all().await {
        assert!(open_for <= Duration::from_secs(10), "{open_for:?}");
    }
}

/// Time until the server closes a connection whose client sends this and then single bytes, or
/// nothing.
async fn open_for(address: String, first_words: String) -> Duration {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(first_words.as_bytes()).await.unwrap();
    let begun = Instant::now();
    let mut ticks = tokio::time::interval(Duration::from_millis(500));
    let mut answer = [0; 1024];
    loop {
        tokio::select! {
            read = stream.read(&mut answer) => if matches!(read, Ok(0) | Err(_)) { return begun.elapsed() },
            // The server may close while the client still writes.
            _ = ticks.tick() => if !first_words.is_empty() { let _ = stream.write_all(b" ").await; },
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn i12_a_gap_in_a_message_ends_it_with_an_error() {
    let cluster = TestCluster::start(1).await;
    for frames in [
        &b"##START\x04task12340001late##END"[..],
        b"##START\x04task12340000What ##END##START\x04task12340002time?##END",
        b"##START\x04task12340000What##END##START\x04task12340000again##END",
        b"##START\x04task12340000What##END##START\x03task12340005##END",
    ] {
        let mut device: Device = cluster.device(0, "toy-1").await;
        device.send_bytes(frames).await;
        let last_words = device.closes().await;
        let error = last_words.last().expect("an ERROR frame");
        assert_eq!(
            error.kind,
            switchboard_protocol::frame::Kind::Error,
            "{last_words:?}"
        );
        assert!(
            error.json()["code"].as_str().unwrap().contains("seq"),
            "{last_words:?}"
        );
    }
}

/// The resident memory of a running process.
pub fn resident_kib(pid: u32) -> u64 {
    status_kib(pid, "VmRSS:").unwrap()
}

/// An amount of memory in the status of a process, unless the process has ended.
pub fn status_kib(pid: u32, name: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with(name))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

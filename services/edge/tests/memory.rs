//! The memory of an idle device. The test has a process of its own, because only the whole process
//! can be measured; this file has no other test.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
};

use prometheus::Registry;
use switchboard_bus::{Bus, BusConfig, LocalHub};
use switchboard_edge::{Config, Deps, Listeners};
use switchboard_protocol::{
    frame::{self, Decoder, Kind, SeqFormat, TaskId},
    id::{OrgId, TokenId},
    token::{Claims, Scope, SigningKey, Subject},
};
use switchboard_runtime::{budget::Budgets, clock::unix_time, shutdown::Shutdown};
use tokio::net::TcpListener;
use uuid::Uuid;

/// Maximum anonymous memory per idle registered device, including the directory of the in-process
/// bus.
const MAX_BYTES: usize = 2_560;
const WARM_UP: usize = 500;
const MEASURED: usize = 3_000;

#[test]
fn idle_device_memory_is_bounded() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let (key, org) = (
        SigningKey::from_seed(&[7; 32]),
        OrgId::from_uuid(Uuid::now_v7()),
    );
    let addr = runtime.block_on(start(&key));
    let connect = |count: usize, prefix: &str| -> Vec<TcpStream> {
        (0..count)
            .map(|n| lamp(addr, &token(&key, org, &format!("{prefix}-{n}"))))
            .collect()
    };
    let warm = connect(WARM_UP, "warm");
    let before = memory_bytes();
    let idle = connect(MEASURED, "idle");
    let per_device = memory_bytes().saturating_sub(before) / MEASURED;
    assert!(
        per_device <= MAX_BYTES,
        "an idle device costs {per_device} bytes"
    );
    drop((warm, idle));
}

async fn start(key: &SigningKey) -> SocketAddr {
    let (shutdown, registry) = (Shutdown::new(), Registry::new());
    let config = BusConfig::local(&LocalHub::default(), "edge");
    let bus = Bus::start(config, &registry, &shutdown).unwrap();
    bus.publish_keys(vec![key.verifying_key()], Vec::new())
        .await
        .unwrap();
    while !bus.has_keys() {
        tokio::task::yield_now().await;
    }
    let plain = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = plain.local_addr().unwrap();
    let listeners = Listeners { plain, tls: None };
    let deps = Deps {
        listeners,
        bus,
        budgets: Budgets::new(&registry).unwrap(),
        registry,
        speech: switchboard_speech::Speech::default(),
    };
    switchboard_edge::run(&Config::default(), deps, &shutdown).unwrap();
    addr
}

fn token(key: &SigningKey, org: OrgId, device: &str) -> String {
    let now = unix_time().as_secs();
    key.sign(&Claims {
        id: TokenId::from_uuid(Uuid::now_v7()),
        org,
        subject: Subject::Device(device.parse().unwrap()),
        scopes: [Scope::Device].into_iter().collect(),
        restrictions: None,
        issued_at: now,
        expires_at: now + 86_400,
    })
    .unwrap()
}

/// A registered device that owns nothing but its socket.
fn lamp(addr: SocketAddr, token: &str) -> TcpStream {
    let mut stream = TcpStream::connect(addr).unwrap();
    let auth = format!(r#"{{"token":"{token}"}}"#);
    request(&mut stream, Kind::Auth, &auth);
    let service = r#"{"light":{"description":"d","parameters":{"type":"object"}}}"#;
    let register = format!(r#"{{"type":"register","data":{{"services":{service}}}}}"#);
    request(&mut stream, Kind::Control, &register);
    stream
}

fn request(stream: &mut TcpStream, kind: Kind, payload: &str) {
    let mut bytes = Vec::new();
    frame::encode(
        &mut bytes,
        kind,
        TaskId::MCP,
        0,
        SeqFormat::Plain,
        payload.as_bytes(),
    );
    stream.write_all(&bytes).unwrap();
    let (mut buffer, mut decoder) = ([0; 4_096], Decoder::new(4_096));
    let mut length = 0;
    while decoder.decode(&buffer[..length]).unwrap().is_none() {
        let read = stream.read(&mut buffer[length..]).unwrap();
        assert!(read > 0, "the edge closed the connection");
        length += read;
    }
}

/// Anonymous memory of this process.
fn memory_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("RssAnon:"))
        .unwrap();
    let kib: usize = line
        .split_ascii_whitespace()
        .nth(1)
        .unwrap()
        .parse()
        .unwrap();
    kib * 1_024
}

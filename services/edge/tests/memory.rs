//! What an idle device costs: measured in a process of its own, because only the whole process
//! can be measured.
//! Never: another test in this file.
#![expect(
    clippy::unwrap_used,
    reason = "a test says where it failed by panicking there"
)]

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
};

use prometheus::Registry;
use switchboard_bus::{Bus, BusConfig, LocalHub};
use switchboard_edge::{Config, Listeners};
use switchboard_protocol::{
    access::{Claims, Scope, SigningKey, Subject},
    frame::{self, Decoder, Kind, Spelling, TaskId},
    id::{OrgId, TokenId},
};
use switchboard_runtime::shutdown::Shutdown;
use tokio::net::TcpListener;
use uuid::Uuid;

/// Bytes of memory of our own per idle registered device, the directory of the one-process bus
/// included.
const MAX_BYTES: usize = 2_560;
const WARM_UP: usize = 500;
const MEASURED: usize = 3_000;

#[test]
fn an_idle_device_costs_little() {
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
    let each = memory_bytes().saturating_sub(before) / MEASURED;
    assert!(each <= MAX_BYTES, "an idle device costs {each} bytes");
    drop((warm, idle));
}

async fn start(key: &SigningKey) -> SocketAddr {
    let (shutdown, registry) = (Shutdown::new(), Registry::new());
    let config = BusConfig::local(&LocalHub::default(), "edge");
    let bus = Bus::start(config, &registry, &shutdown).unwrap();
    bus.publish_trust(vec![key.verifying_key()], Vec::new())
        .await
        .unwrap();
    while !bus.has_keys() {
        tokio::task::yield_now().await;
    }
    let plain = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = plain.local_addr().unwrap();
    let listeners = Listeners { plain, tls: None };
    shutdown.clone().spawn(async move {
        switchboard_edge::run(listeners, Config::default(), bus, &registry, shutdown)
            .await
            .unwrap();
    });
    addr
}

fn token(key: &SigningKey, org: OrgId, device: &str) -> String {
    key.sign(&Claims {
        id: TokenId::from_uuid(Uuid::now_v7()),
        org,
        subject: Subject::Device(device.parse().unwrap()),
        scopes: [Scope::Device].into_iter().collect(),
        issued_at: 0,
        expires_at: u64::from(u32::MAX),
    })
    .unwrap()
}

/// A registered device that keeps nothing of its own but the socket.
fn lamp(addr: SocketAddr, token: &str) -> TcpStream {
    let mut stream = TcpStream::connect(addr).unwrap();
    let auth = format!(r#"{{"token":"{token}"}}"#);
    ask(&mut stream, Kind::Auth, &auth);
    let service = r#"{"light":{"description":"d","parameters":{"type":"object"}}}"#;
    let register = format!(r#"{{"type":"register","data":{{"services":{service}}}}}"#);
    ask(&mut stream, Kind::Control, &register);
    stream
}

fn ask(stream: &mut TcpStream, kind: Kind, payload: &str) {
    let mut bytes = Vec::new();
    frame::encode(
        &mut bytes,
        kind,
        TaskId::MCP,
        0,
        Spelling::Plain,
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

//! The TLS port: the same protocol inside TLS 1.3 only.

use std::{sync::Arc, time::Instant};

use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};
use rustls_pki_types::ServerName;
use switchboard_edge::{Config, tls};
use switchboard_protocol::outcome::{Delivered, Outcome};
use switchboard_test_support::eventually::eventually_true;
use tokio::{io::AsyncWriteExt, net::TcpStream};
use tokio_rustls::TlsConnector;

use crate::{
    device::{Device, LIGHT},
    node::{Node, TEST_TIMEOUT, check},
};

/// What a TLS session is charged before AUTH.
const SESSION_BYTES: usize = 24 * 1_024;

pub struct Pki {
    pub server: Arc<rustls::ServerConfig>,
    pub roots: RootCertStore,
}

pub fn pki() -> Pki {
    let certified = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = (
        folder.path().join("cert.pem"),
        folder.path().join("key.pem"),
    );
    std::fs::write(&certificate, certified.cert.pem()).unwrap();
    std::fs::write(&key, certified.signing_key.serialize_pem()).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(certified.cert.der().clone()).unwrap();
    Pki {
        server: tls::server_config(&certificate, &key).unwrap(),
        roots,
    }
}

pub fn client(roots: RootCertStore, version: &'static SupportedProtocolVersion) -> TlsConnector {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    TlsConnector::from(Arc::new(config))
}

#[tokio::test]
async fn device_connects_over_tls() {
    let pki = pki();
    let node = Node::start_with(Config::default(), Some(pki.server), true).await;
    let connector = client(pki.roots, &rustls::version::TLS13);
    let tcp = TcpStream::connect(node.tls_addr.unwrap()).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let mut lamp = Device::over(connector.connect(name, tcp).await.unwrap());
    lamp.authenticate(&node.token("lamp")).await;
    lamp.register(LIGHT).await;

    let note = "x".repeat(200_000);
    let answer = node.call(node.prepare("lamp", &format!(r#"{{"on":true,"note":"{note}"}}"#)));
    let frame = lamp.next().await.unwrap();
    assert_eq!(frame.json()["data"]["params"]["note"], note);
    lamp.result(&frame.call_id(), &note).await;
    check(&answer.await.unwrap(), Outcome::Succeeded, Delivered::Yes);
    lamp.send_raw(b"garbage").await;
    lamp.expect_error("bad_start").await;
}

#[tokio::test]
async fn older_tls_version_is_refused() {
    let pki = pki();
    let node = Node::start_with(Config::default(), Some(pki.server), true).await;
    let connector = client(pki.roots, &rustls::version::TLS12);
    let tcp = TcpStream::connect(node.tls_addr.unwrap()).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    assert!(connector.connect(name, tcp).await.is_err());
    node.metric_is("refused_total", Some("tls"), 1.0).await;
    node.metric_is("connections", None, 0.0).await;
}

#[tokio::test]
async fn tls_handshake_has_the_auth_timeout() {
    let pki = pki();
    let config = Config {
        device_auth_timeout_ms: 50,
        ..Config::default()
    };
    let node = Node::start_with(config, Some(pki.server), true).await;
    let mut silent = Device::connect(node.tls_addr.unwrap()).await;
    silent.expect_end().await;
    node.metric_is("refused_total", Some("tls"), 1.0).await;
}

/// A node whose budget has room for eight TLS sessions before AUTH, two of them for one network.
async fn node_with_eight_sessions(pki: &Pki) -> Node {
    let config = Config {
        device_auth_timeout_ms: 60_000,
        device_tls_handshake_bytes: 8 * SESSION_BYTES,
        ..Config::default()
    };
    Node::start_with(config, Some(Arc::clone(&pki.server)), true).await
}

#[tokio::test]
async fn oversized_client_hello_is_refused() {
    let pki = pki();
    let node = node_with_eight_sessions(&pki).await;
    let mut client = Device::connect(node.tls_addr.unwrap()).await;
    // A ClientHello of 65,280 bytes in records of 4 KiB.
    let mut record = vec![22, 3, 1, 0x10, 0, 1, 0, 0xff, 0];
    record.resize(5 + 4_096, 0);
    client.send_raw(&record).await;
    record.truncate(5);
    record.resize(5 + 4_096, 0);
    for _ in 0..3 {
        // The edge may close before the last byte is sent.
        let _ = client.stream.write_all(&record).await;
    }
    client.expect_end().await;
    node.metric_is("refused_total", Some("tls"), 1.0).await;
    assert_eq!(node.budget_used("tls_handshakes"), 0);
}

#[tokio::test]
async fn unfinished_handshakes_of_one_network_leave_room_for_others() {
    let pki = pki();
    let node = node_with_eight_sessions(&pki).await;
    let addr = node.tls_addr.unwrap();
    let connect = async |from: [u8; 4]| {
        let tcp = Device::connect_from(from, addr).await.stream;
        let name = ServerName::try_from("localhost").unwrap();
        let connector = client(pki.roots.clone(), &rustls::version::TLS13);
        let mut device = Device::over(connector.connect(name, tcp).await.unwrap());
        device.authenticate(&node.token("toy")).await;
        device
    };
    let mut unfinished = Vec::new();
    for _ in 0..6 {
        let mut client = Device::connect_from([127, 0, 0, 1], addr).await;
        client.send_raw(&[22, 3, 1, 2, 0, 1, 0]).await;
        unfinished.push(client);
    }
    node.metric_is("unauthenticated", None, 6.0).await;
    let held = || node.budget_used("tls_handshakes");
    eventually_true("two handshakes have begun", || held() == 2 * SESSION_BYTES).await;
    let mut other = connect([127, 0, 0, 2]).await;
    other.sync().await;
    // An authenticated device holds nothing.
    assert!(held() <= 2 * SESSION_BYTES);
    drop(unfinished);
    connect([127, 0, 0, 1]).await.sync().await;
    eventually_true("nothing is held", || held() == 0).await;
}

#[tokio::test]
async fn unfinished_handshakes_of_one_network_make_room_for_its_devices() {
    let pki = pki();
    let node = node_with_eight_sessions(&pki).await;
    let addr = node.tls_addr.unwrap();
    let mut silent = Vec::new();
    for _ in 0..6 {
        silent.push(Device::connect(addr).await);
    }
    node.metric_is("unauthenticated", None, 6.0).await;
    let held = || node.budget_used("tls_handshakes");
    eventually_true("the share is held", || held() == 2 * SESSION_BYTES).await;

    let tcp = Device::connect(addr).await.stream;
    let name = ServerName::try_from("localhost").unwrap();
    let connector = client(pki.roots, &rustls::version::TLS13);
    let handshake = tokio::time::timeout(TEST_TIMEOUT, connector.connect(name, tcp)).await;
    let mut device = Device::over(handshake.expect("a handshake in time").unwrap());
    device.authenticate(&node.token("toy")).await;
    device.sync().await;
    assert!(node.metric("shed_total", Some("tls_handshakes")) > 0.5);
    drop(silent);
}

#[tokio::test]
async fn unfinished_handshakes_of_many_networks_make_room_for_another() {
    let pki = pki();
    let node = node_with_eight_sessions(&pki).await;
    let addr = node.tls_addr.unwrap();
    let mut silent = Vec::new();
    for network in 2..=5 {
        // Each network has its share and one connection that waits.
        for _ in 0..3 {
            silent.push(Device::connect_from([127, 0, 0, network], addr).await);
        }
    }
    let held = || node.budget_used("tls_handshakes");
    eventually_true("all memory is held", || held() == 8 * SESSION_BYTES).await;
    node.metric_is("unauthenticated", None, 12.0).await;

    let started = Instant::now();
    let tcp = Device::connect(addr).await.stream;
    let name = ServerName::try_from("localhost").unwrap();
    let connector = client(pki.roots, &rustls::version::TLS13);
    let mut device = Device::over(connector.connect(name, tcp).await.unwrap());
    device.authenticate(&node.token("toy")).await;
    device.sync().await;
    let took = started.elapsed();
    assert!(took < TEST_TIMEOUT / 2, "the device waited for {took:?}");
    assert!(node.metric("shed_total", Some("tls_handshakes")) > 0.5);
    drop(silent);
}

#[test]
fn missing_or_invalid_file_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("absent.pem");
    let error = tls::server_config(&missing, &missing).unwrap_err();
    assert!(error.to_string().contains("absent.pem"), "{error}");
    let empty = folder.path().join("empty.pem");
    std::fs::write(&empty, "").unwrap();
    assert!(tls::server_config(&empty, &empty).is_err());
}

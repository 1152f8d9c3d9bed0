//! PROXY headers of a balancer, sent by the tests. `balancer.rs` has a real balancer.

use std::net::{IpAddr, SocketAddr};

use rustls_pki_types::ServerName;
use switchboard_edge::Config;
use switchboard_protocol::{
    frame::{Kind, TaskId},
    outcome::{Delivered, Outcome},
};
use switchboard_test_support::eventually::eventually_true;
use tokio::{io::AsyncWriteExt, net::TcpStream};

use crate::{
    device::{Device, LIGHT},
    node::{Node, check},
    tls::{client, pki},
};

const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// LOCAL without an address: a health check.
const LOCAL: [u8; 4] = [0x20, 0, 0, 0];

/// Configures all of 127.0.0.0/8 as balancers.
fn behind_balancer() -> Config {
    Config {
        proxy_protocol_from: vec!["127.0.0.0/8".parse().unwrap()],
        ..Config::default()
    }
}

fn v1_header(device: &str) -> Vec<u8> {
    let device: IpAddr = device.parse().unwrap();
    let line = match device {
        IpAddr::V4(_) => format!("PROXY TCP4 {device} 192.0.2.1 40000 9000\r\n"),
        IpAddr::V6(_) => format!("PROXY TCP6 {device} 2001:db8::1 40000 9000\r\n"),
    };
    line.into_bytes()
}

fn v2_header(device: &str, extensions: &[u8]) -> Vec<u8> {
    let (family, mut rest) = match device.parse().unwrap() {
        IpAddr::V4(device) => (0x11, [device.octets(), [192, 0, 2, 1]].concat()),
        IpAddr::V6(device) => (0x21, [device.octets(), [0x20; 16]].concat()),
    };
    rest.extend([0x9c, 0x40, 0x23, 0x28]);
    rest.extend(extensions);
    version_2(0x21, family, &rest)
}

fn version_2(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
    let [high, low] = u16::try_from(rest.len()).unwrap().to_be_bytes();
    [SIGNATURE, &[command, family, high, low], rest].concat()
}

/// A connection that begins with these bytes.
async fn begin(addr: SocketAddr, bytes: &[u8]) -> Device {
    let mut device = Device::connect(addr).await;
    device.send_raw(bytes).await;
    device
}

#[tokio::test]
async fn both_header_versions_precede_a_working_connection() {
    async fn check_works(node: &Node, header: &[u8], id: &str) {
        let mut device = Device::connect(node.addr).await;
        let auth = format!(r#"{{"token":"{}"}}"#, node.token(id));
        let register = format!(r#"{{"type":"register","data":{{"services":{LIGHT}}}}}"#);
        let mut bytes = header.to_vec();
        for (kind, payload) in [(Kind::Auth, auth), (Kind::Control, register)] {
            let seq_format = switchboard_protocol::frame::SeqFormat::Plain;
            let payload = payload.as_bytes();
            switchboard_protocol::frame::encode(
                &mut bytes,
                kind,
                TaskId::MCP,
                0,
                seq_format,
                payload,
            );
        }
        device.send_raw(&bytes).await;
        device.expect(Kind::Auth).await;
        device.expect(Kind::Control).await;
        let answer = node.call(node.prepare(id, r#"{"on":true}"#));
        let call = device.expect(Kind::Control).await.call_id();
        device.result(&call, "done").await;
        check(&answer.await.unwrap(), Outcome::Succeeded, Delivered::Yes);
    }
    let node = Node::start(behind_balancer()).await;
    check_works(&node, &v1_header("203.0.113.7"), "v1_header-4").await;
    check_works(&node, &v1_header("2001:db8::7"), "v1_header-6").await;
    check_works(&node, &v2_header("203.0.113.7", b""), "v2_header-4").await;
    check_works(&node, &v2_header("2001:db8::7", b""), "v2_header-6").await;
    // An extension that the edge ignores, and the longest header.
    check_works(
        &node,
        &v2_header("203.0.113.7", &[4, 0, 1, 0]),
        "extensions",
    )
    .await;
    check_works(&node, &v2_header("203.0.113.7", &[0; 1_024 - 28]), "long").await;
    node.metric_is("proxy_headers_total", Some("v1"), 2.0).await;
    node.metric_is("proxy_headers_total", Some("v2"), 4.0).await;
}

#[tokio::test]
async fn header_may_arrive_byte_by_byte() {
    let node = Node::start(behind_balancer()).await;
    for header in [
        v1_header("203.0.113.7"),
        v2_header("203.0.113.7", &[4, 0, 0]),
    ] {
        let mut device = Device::connect(node.addr).await;
        device.stream.set_nodelay(true).unwrap();
        for byte in header {
            device.send_raw(&[byte]).await;
            tokio::task::yield_now().await;
        }
        device.authenticate(&node.token("toy")).await;
    }
}

#[tokio::test]
async fn rate_applies_to_the_device_address() {
    let config = Config {
        device_accepts_per_address_per_s: 1,
        ..behind_balancer()
    };
    let node = Node::start(config).await;
    // One address in different versions and formats: it may connect twice.
    let same = [
        v1_header("203.0.113.7"),
        v2_header("203.0.113.7", b""),
        v2_header("::ffff:203.0.113.7", b""),
    ];
    let [first, second, third] = same;
    let mut connections = Vec::new();
    for (header, id) in [(first, "toy-1"), (second, "toy-2")] {
        let mut device = begin(node.addr, &header).await;
        device.authenticate(&node.token(id)).await;
        connections.push(device);
    }
    begin(node.addr, &third)
        .await
        .expect_goaway("overload")
        .await;
    node.metric_is("shed_total", Some("accepts_per_address"), 1.0)
        .await;
    for other in 0..5 {
        let mut device = begin(node.addr, &v1_header(&format!("203.0.113.{}", 100 + other))).await;
        device
            .authenticate(&node.token(&format!("other-{other}")))
            .await;
        connections.push(device);
    }
    // A connection without a device address has no rate.
    for unknown in 0..5 {
        let mut device = begin(node.addr, b"PROXY UNKNOWN\r\n").await;
        device
            .authenticate(&node.token(&format!("unknown-{unknown}")))
            .await;
        connections.push(device);
    }
    node.metric_is("connections", None, 12.0).await;
}

#[tokio::test]
async fn header_from_another_address_is_refused() {
    let far = Config {
        proxy_protocol_from: vec!["10.0.0.0/8".parse().unwrap()],
        ..Config::default()
    };
    for config in [far, Config::default()] {
        let node = Node::start(config).await;
        for header in [v1_header("203.0.113.7"), v2_header("203.0.113.7", b"")] {
            begin(node.addr, &header)
                .await
                .expect_error("bad_start")
                .await;
        }
        node.device("toy").await;
        assert!(node.metric("proxy_headers_total", None) < 0.5);
    }
}

#[tokio::test]
async fn invalid_header_closes_the_connection() {
    async fn check(node: &Node, bytes: &[u8], outcome: &str) {
        let before = node.metric("proxy_headers_total", Some(outcome));
        let mut device = begin(node.addr, bytes).await;
        device.stream.shutdown().await.unwrap();
        device.expect_end().await;
        let counted = || node.metric("proxy_headers_total", Some(outcome)) > before + 0.5;
        let what = format!("{} is {outcome}", bytes.escape_ascii());
        eventually_true(&what, counted).await;
    }
    let node = Node::start(behind_balancer()).await;
    check(&node, b"", "cut").await;
    check(&node, b"PROXY TCP4 203.0.113.7", "cut").await;
    check(&node, &v2_header("203.0.113.7", b"")[..20], "cut").await;
    for other in [
        &b"##START\x10mcp000010000{}##END"[..],
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/1.1\r\n\r\n",
        b"proxy TCP4 203.0.113.7 192.0.2.1 40000 9000\r\n",
        b"PROXYTCP4 203.0.113.7 192.0.2.1 40000 9000\r\n",
        b"\r\n\r\n\0\r\nQUIT\r",
    ] {
        check(&node, other, "missing").await;
    }
    for line in [
        "PROXY TCP4 203.0.113.7\r\n",
        "PROXY TCP4 203.0.113.300 192.0.2.1 40000 9000\r\n",
        "PROXY TCP4 2001:db8::7 2001:db8::1 40000 9000\r\n",
        "PROXY TCP6 203.0.113.7 192.0.2.1 40000 9000\r\n",
        "PROXY TCP4 203.0.113.7 192.0.2.1 40000 90000\r\n",
        "PROXY TCP4 203.0.113.7 192.0.2.1 40000 9000 1\r\n",
        "PROXY TCP4 203.0.113.7 192.0.2.1 40000 9000\n",
        "PROXY UDP4 203.0.113.7 192.0.2.1 40000 9000\r\n",
        "PROXY TCP4  203.0.113.7 192.0.2.1 40000 9000\r\n",
        "PROXY \r\n",
    ] {
        check(&node, line.as_bytes(), "malformed").await;
    }
    for header in [
        version_2(0x31, 0x11, &[1; 12]),
        version_2(0x22, 0x11, &[1; 12]),
        version_2(0x21, 0x41, &[1; 12]),
        version_2(0x21, 0x12, &[1; 12]),
        version_2(0x21, 0x11, &[1; 11]),
        version_2(0x21, 0x21, &[1; 35]),
        version_2(0x21, 0x31, &[1; 215]),
    ] {
        check(&node, &header, "malformed").await;
    }
    check(&node, &[b"PROXY ", &[b'x'; 101][..]].concat(), "too_long").await;
    check(
        &node,
        &v2_header("203.0.113.7", &[0; 1_025 - 28]),
        "too_long",
    )
    .await;
    // None of them counted as a device, and none is left.
    assert!(node.metric("refused_total", None) < 0.5);
    node.metric_is("connections", None, 0.0).await;
    node.metric_is("unauthenticated", None, 0.0).await;
}

#[tokio::test]
async fn header_has_a_timeout_and_a_slot() {
    let config = Config {
        device_auth_timeout_ms: 50,
        ..behind_balancer()
    };
    let node = Node::start(config).await;
    begin(node.addr, b"PROXY TC").await.expect_end().await;
    node.metric_is("proxy_headers_total", Some("late"), 1.0)
        .await;

    let config = Config {
        device_max_unauthenticated: 1,
        ..behind_balancer()
    };
    let node = Node::start(config).await;
    let mut waiting = begin(node.addr, b"PROXY").await;
    node.metric_is("unauthenticated", None, 1.0).await;
    let mut second = Device::connect(node.addr).await;
    waiting.expect_goaway("overload").await;
    node.shutdown.drain();
    second.expect_end().await;
    node.metric_is("connections", None, 0.0).await;
    assert!(node.metric("proxy_headers_total", None) < 0.5);
}

#[tokio::test]
async fn crowds_are_those_of_device_addresses() {
    let config = Config {
        device_max_unauthenticated: 4,
        ..behind_balancer()
    };
    let node = Node::start(config).await;
    let mut waiting = Vec::new();
    for _ in 0..2 {
        waiting.push(begin(node.addr, b"PROXY ").await);
    }
    node.metric_is("unauthenticated", None, 2.0).await;
    let mut silent = Vec::new();
    for count in [1.0, 2.0] {
        silent.push(begin(node.addr, &v1_header("203.0.113.7")).await);
        node.metric_is("proxy_headers_total", Some("v1"), count)
            .await;
    }
    // The two connections that wait for their header come from one balancer, and are older.
    let mut device = begin(node.addr, &v1_header("203.0.113.8")).await;
    device.authenticate(&node.token("toy-1")).await;
    silent[0].expect_goaway("overload").await;
    for (number, device) in waiting.iter_mut().enumerate() {
        device.send_raw(&v1_header("203.0.113.7")[6..]).await;
        device
            .authenticate(&node.token(&format!("toy-{number}")))
            .await;
    }
    node.metric_is("shed_total", Some("max_unauthenticated"), 1.0)
        .await;
}

#[tokio::test]
async fn health_check_is_not_counted_as_a_device() {
    let node = Node::start(behind_balancer()).await;
    let local = [SIGNATURE, &LOCAL].concat();
    // The rest of a LOCAL header is ignored.
    let local_headers = [
        local.clone(),
        version_2(0x20, 0x11, &[]),
        version_2(0x20, 0xff, &[1; 40]),
        version_2(0x21, 0x00, &[]),
        b"PROXY UNKNOWN ffff::1 ffff::2 65535 65535\r\n".to_vec(),
    ];
    for header in &local_headers {
        let mut check_connection = begin(node.addr, header).await;
        check_connection.stream.shutdown().await.unwrap();
        check_connection.expect_end().await;
    }
    node.metric_is("proxy_headers_total", Some("local"), 5.0)
        .await;
    node.metric_is("connections", None, 0.0).await;
    assert!(node.metric("refused_total", None) < 0.5);

    let mut device = begin(node.addr, &local).await;
    device.authenticate(&node.token("toy")).await;
    device.send_raw(b"garbage").await;
    device.expect_error("bad_start").await;

    let config = Config {
        device_auth_timeout_ms: 50,
        ..behind_balancer()
    };
    let node = Node::start(config).await;
    begin(node.addr, &local).await.expect_end().await;
    assert!(node.metric("refused_total", None) < 0.5);
}

#[tokio::test]
async fn tls_handshake_follows_the_header() {
    let pki = pki();
    let node = Node::start_with(behind_balancer(), Some(pki.server), true).await;
    let tls_addr = node.tls_addr.unwrap();
    let connector = client(pki.roots, &rustls::version::TLS13);
    for header in [v1_header("203.0.113.7"), v2_header("2001:db8::7", b"")] {
        let mut tcp = TcpStream::connect(tls_addr).await.unwrap();
        tcp.write_all(&header).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let mut lamp = Device::over(connector.connect(name, tcp).await.unwrap());
        lamp.authenticate(&node.token("lamp")).await;
        lamp.register(LIGHT).await;
    }
    let tcp = TcpStream::connect(tls_addr).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    assert!(connector.connect(name, tcp).await.is_err());
    node.metric_is("proxy_headers_total", Some("missing"), 1.0)
        .await;
    begin(tls_addr, &[SIGNATURE, &LOCAL].concat())
        .await
        .stream
        .shutdown()
        .await
        .unwrap();
    node.metric_is("proxy_headers_total", Some("local"), 1.0)
        .await;
    node.metric_is("connections", None, 0.0).await;
    assert!(node.metric("refused_total", Some("tls")) < 0.5);
}

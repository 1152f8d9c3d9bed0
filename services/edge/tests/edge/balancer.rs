//! A real haproxy between devices and two edges: plain and TLS, both header versions, and health
//! checks.

use std::{
    fmt::Write,
    net::{Ipv4Addr, SocketAddr},
};

use rustls_pki_types::ServerName;
use switchboard_edge::Config;
use switchboard_protocol::outcome::{Delivered, Outcome};
use switchboard_test_support::{child::free_port, eventually::eventually_true, haproxy::HaProxy};
use tokio::net::{TcpSocket, TcpStream};

use crate::{
    device::{Device, LIGHT},
    node::{Node, check},
    tls::{client, pki},
};

/// Where haproxy connects from. Devices have other addresses.
const BALANCER: &str = "127.0.0.1/32";

/// An haproxy configuration with these ports, each with its header option and its servers.
fn haproxy_config(ports: &[(u16, &str, [SocketAddr; 2])]) -> String {
    let mut config =
        "defaults\n mode tcp\n timeout connect 5s\n timeout client 1m\n timeout server 1m\n"
            .to_owned();
    for (port, send, servers) in ports {
        writeln!(config, "listen from-{port}\n bind 127.0.0.1:{port}").unwrap();
        for (number, server) in servers.iter().enumerate() {
            writeln!(
                config,
                " server edge-{number} {server} {send} check inter 100ms"
            )
            .unwrap();
        }
    }
    config
}

/// Connects to haproxy from this address, once haproxy accepts connections.
async fn connect(from: Ipv4Addr, port: u16) -> TcpStream {
    let deadline = std::time::Instant::now() + crate::node::TEST_TIMEOUT;
    loop {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((from, 0).into()).unwrap();
        match socket.connect((Ipv4Addr::LOCALHOST, port).into()).await {
            Ok(stream) => return stream,
            Err(error) => assert!(std::time::Instant::now() < deadline, "{error}"),
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn devices_behind_haproxy_are_limited_by_own_address() {
    let pki = pki();
    let config = Config {
        proxy_protocol_from: vec![BALANCER.parse().unwrap()],
        device_accepts_per_address_per_s: 1,
        ..Config::default()
    };
    let nodes = Node::start_two(config, Some(&pki.server)).await;
    let plain = [nodes[0].addr, nodes[1].addr];
    let tls = [nodes[0].tls_addr.unwrap(), nodes[1].tls_addr.unwrap()];
    let [text, binary, over_tls] = [free_port(), free_port(), free_port()];
    let _haproxy = HaProxy::start(&haproxy_config(&[
        (text, "send-proxy", plain),
        (binary, "send-proxy-v2", plain),
        (over_tls, "send-proxy-v2", tls),
    ]));
    let headers = |label: &str| -> [f64; 2] {
        [0, 1].map(|node: usize| nodes[node].metric("proxy_headers_total", Some(label)))
    };
    eventually_true("haproxy runs health checks on both edges", || {
        headers("local").iter().all(|checks| *checks > 10.0)
    })
    .await;

    // Round robin: of two devices in a row each edge receives one. One address may connect to each
    // edge twice.
    let mut lamps = Vec::new();
    for (port, host) in [(text, 2), (text, 2), (binary, 3), (binary, 3)] {
        let stream = connect(Ipv4Addr::new(127, 0, 0, host), port).await;
        let mut lamp = Device::over(stream);
        let id = format!("lamp-{}", lamps.len());
        lamp.authenticate(&nodes[0].token(&id)).await;
        lamp.register(LIGHT).await;
        let answer = nodes[0].call(nodes[0].prepare(&id, r#"{"on":true}"#));
        let call = lamp.next().await.expect("a call").call_id();
        lamp.result(&call, "done").await;
        check(&answer.await.unwrap(), Outcome::Succeeded, Delivered::Yes);
        lamps.push(lamp);
    }
    assert_eq!((headers("v1"), headers("v2")), ([1.0; 2], [1.0; 2]));

    let connector = client(pki.roots, &rustls::version::TLS13);
    for _ in 0..2 {
        let tcp = connect(Ipv4Addr::new(127, 0, 0, 4), over_tls).await;
        let name = ServerName::try_from("localhost").unwrap();
        let mut lamp = Device::over(connector.connect(name, tcp).await.unwrap());
        lamp.authenticate(&nodes[0].token("lamp-tls")).await;
    }
    assert_eq!(headers("v2"), [2.0; 2]);

    // An address has its rate on each edge, and other addresses are not affected.
    let shed = || -> f64 {
        let shed = |node: &Node| node.metric("shed_total", Some("accepts_per_address"));
        nodes.iter().map(shed).sum()
    };
    let mut flood = Vec::new();
    for _ in 0..40 {
        flood.push(connect(Ipv4Addr::new(127, 0, 0, 5), binary).await);
    }
    eventually_true("most connections of the flood are refused", || {
        shed() > 25.0
    })
    .await;
    let mut other = Device::over(connect(Ipv4Addr::new(127, 0, 0, 6), binary).await);
    other.authenticate(&nodes[0].token("other")).await;
    let refused = nodes.iter().map(|node| node.metric("refused_total", None));
    assert_eq!(
        refused.sum::<f64>(),
        0.0,
        "a health check must not count as a refused device"
    );
}

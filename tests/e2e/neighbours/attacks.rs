//! The attacks. Each takes as much as its peer may have, and holds it.

use futures_util::{StreamExt as _, stream};
use serde_json::{Value, json};
use switchboard_test_support::switchboard::Program;
use tokio::{io::AsyncWriteExt, net::TcpStream, task::JoinSet};

use super::{measure, sized};
use crate::{
    cluster::{Org, TestCluster, echo_services},
    device::Device,
};

/// Connections that are opened at the same time.
const DIALS_AT_ONCE: usize = 64;

fn device_address(cluster: &TestCluster) -> String {
    cluster.edges[0].address("device_addr")
}

fn http_address(program: &Program) -> String {
    let url = program.address("http_url");
    url.trim_start_matches("http://").to_owned()
}

/// Opens connections that send these bytes, and then nothing.
async fn open(address: &str, count: usize, bytes: &[u8]) -> Vec<TcpStream> {
    let mut streams = Vec::with_capacity(count);
    while streams.len() < count {
        let dials = (0..DIALS_AT_ONCE.min(count - streams.len())).map(async |_| {
            let mut stream = TcpStream::connect(address).await.unwrap();
            // The server may refuse the bytes and close.
            let _ = stream.write_all(bytes).await;
            stream
        });
        streams.extend(at_once(dials).await);
    }
    streams
}

/// Runs all futures at the same time.
async fn at_once<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let all = stream::iter(futures).buffer_unordered(usize::MAX);
    all.collect().await
}

/// Connects devices of an organisation.
async fn devices(cluster: &TestCluster, org: &Org, count: usize) -> Vec<Device> {
    let address = device_address(cluster);
    let mut devices = Vec::with_capacity(count);
    for number in 0..count {
        let subject = format!("device:noisy-{number}");
        let token = cluster.token(org, &subject, &["device"]).await;
        let token = token["access_token"].as_str().unwrap();
        devices.push(Device::connect(&address, token).await);
    }
    devices
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_device_connections_leave_the_port_open() {
    let slots = sized(64, 16_384);
    let setting = (
        "SWITCHBOARD_DEVICE_MAX_UNAUTHENTICATED",
        &*slots.to_string(),
    );
    let cluster = TestCluster::start_with(1, &[setting]).await;
    let attack = async {
        let silent = open(&device_address(&cluster), slots * 2, b"").await;
        (silent, cluster.echo(0, "newcomer").await)
    };
    measure(
        "silent device connections",
        &cluster,
        &cluster.edges[0],
        attack,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_http_connections_leave_the_port_open() {
    let slots = sized(64, 8_192);
    let setting = ("SWITCHBOARD_HTTP_CONNECTIONS", &*slots.to_string());
    let cluster = TestCluster::start_with(1, &[setting]).await;
    let attack = async {
        let silent = open(&http_address(&cluster.gateway), slots * 2, b"").await;
        // A client without an open connection.
        let newcomer = reqwest::Client::new();
        let list = newcomer.get(cluster.url("/v1/devices"));
        let answer = list.bearer_auth(&cluster.org.key).send().await.unwrap();
        assert_eq!(answer.status(), 200);
        silent
    };
    measure(
        "silent HTTP connections",
        &cluster,
        &cluster.gateway,
        attack,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unfinished_heads_leave_memory_to_others() {
    let cluster = TestCluster::start(1).await;
    let head = format!(
        "GET / HTTP/1.1\r\nHost: x\r\nX-Long: {}",
        "x".repeat(60 * 1024)
    );
    let attack = async {
        let address = http_address(&cluster.gateway);
        open(&address, sized(64, 8_190), head.as_bytes()).await
    };
    measure("unfinished heads", &cluster, &cluster.gateway, attack).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unfinished_bodies_leave_memory_to_others() {
    let cluster = TestCluster::start(1).await;
    let (declared, sent) = (1024 * 1024 - 1, 1024 * 1024 - 1024);
    let request = format!(
        "POST /v1/devices/x/calls HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\n\
         Content-Type: application/json\r\nContent-Length: {declared}\r\n\r\n{}",
        cluster.org.key,
        " ".repeat(sent)
    );
    let attack = async {
        let address = http_address(&cluster.gateway);
        open(&address, sized(32, 300), request.as_bytes()).await
    };
    measure("unfinished bodies", &cluster, &cluster.gateway, attack).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unfinished_frames_leave_memory_to_others() {
    let cluster = TestCluster::start(1).await;
    let frame = [&b"##START\x10mcp000010000"[..], &vec![b' '; 255 * 1024]].concat();
    let attack = async {
        let mut devices = devices(&cluster, &cluster.org, sized(16, 1_500)).await;
        for device in &mut devices {
            device.send_bytes(&frame).await;
        }
        devices
    };
    measure("unfinished frames", &cluster, &cluster.edges[0], attack).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn checks_of_patterns_leave_processors_to_others() {
    let cluster = TestCluster::start(1).await;
    let schema = |pattern: &str| {
        json!({"match": {"description": "Matches.", "parameters": {
            "type": "object", "properties": {"text": {"type": "string", "pattern": pattern}}
        }}})
    };
    let attack = async {
        let mut devices = devices(&cluster, &cluster.org, 2).await;
        for device in &mut devices {
            for pattern in ["(?:a?){900}a{900}c", "(?:a?){90}a{90}c", "^(a|aa)+$"] {
                // Costly patterns are refused; the calls use what is accepted.
                device.try_register(&schema(pattern).to_string()).await;
            }
        }
        let text = "a".repeat(8_150);
        let body = json!({"service": "match", "params": {"text": text}, "timeout_ms": 1_000});
        let calls = (0..64).map(|_| async {
            for device in ["noisy-0", "noisy-1"] {
                cluster.call(device, &body).await;
            }
        });
        at_once(calls).await;
        devices
    };
    measure("checks of patterns", &cluster, &cluster.edges[0], attack).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn registrations_leave_processors_and_memory_to_others() {
    let cluster = TestCluster::start(1).await;
    let services = |seed: usize| {
        let service = |number: usize| {
            let property = |index: usize| {
                let pattern = format!("^.{{1,120}}x{seed}-{number}-{index}$");
                (
                    format!("p{index}"),
                    json!({"type": "string", "pattern": pattern}),
                )
            };
            let properties: serde_json::Map<String, Value> = (0..16).map(property).collect();
            let parameters = json!({"type": "object", "properties": properties});
            (
                format!("s{number}"),
                json!({"description": "Heavy.", "parameters": parameters}),
            )
        };
        let all: serde_json::Map<String, Value> = (0..8).map(service).collect();
        Value::Object(all).to_string()
    };
    let attack = async {
        let mut registering = JoinSet::new();
        let devices = devices(&cluster, &cluster.org, sized(10, 50)).await;
        for (number, mut device) in devices.into_iter().enumerate() {
            let texts: Vec<_> = (0..10)
                .map(|round| services(number * 100 + round))
                .collect();
            registering.spawn(async move {
                for text in &texts {
                    device.try_register(text).await;
                }
                device
            });
        }
        registering.join_all().await
    };
    measure("registrations", &cluster, &cluster.edges[0], attack).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn asynchronous_calls_leave_slots_to_others() {
    let slots = sized(32, 4_096);
    let setting = ("SWITCHBOARD_KEPT_CALLS_UNDER_WAY", &*slots.to_string());
    let cluster = TestCluster::start_with(1, &[setting]).await;
    let other = cluster.another_org("Newcomer").await;
    let attack = async {
        let mut silent = devices(&cluster, &cluster.org, sized(2, 64)).await;
        for device in &mut silent {
            device.register(&echo_services()).await;
        }
        let body = json!({
            "service": "echo", "mode": "async", "params": {"text": "x"}, "timeout_ms": 300_000
        });
        let calls = (0..slots).map(|number| {
            let device = format!("noisy-{}", number % silent.len());
            let (cluster, body) = (&cluster, &body);
            async move { cluster.call(&device, body).await }
        });
        at_once(calls).await;
        let (status, answer) = cluster.call_as(&other, "offline", &body).await;
        assert_eq!(status, 202, "{answer}");
        silent
    };
    measure("asynchronous calls", &cluster, &cluster.gateway, attack).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_of_devices_leave_memory_to_others() {
    let cluster = TestCluster::start(1).await;
    let services: serde_json::Map<String, Value> = (0..60)
        .map(|number| {
            let service = json!({"description": "d".repeat(4_000)});
            (format!("s{number}"), service)
        })
        .collect();
    let services = Value::Object(services).to_string();
    let request = format!(
        "GET /v1/devices?limit=200 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\n\r\n",
        cluster.org.key
    );
    let attack = async {
        let mut devices = devices(&cluster, &cluster.org, sized(20, 200)).await;
        for device in &mut devices {
            device.register(&services).await;
        }
        let address = http_address(&cluster.gateway);
        let readers = open(&address, 14, request.as_bytes()).await;
        (devices, readers)
    };
    measure(
        "lists that are not read",
        &cluster,
        &cluster.gateway,
        attack,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn queued_calls_leave_database_connections_to_others() {
    let cluster = TestCluster::start(1).await;
    let attack = async {
        let body = json!({"service": "echo", "mode": "queued", "params": {"text": "x"}});
        let callers = (0..sized(100, 1_500)).map(|number| {
            let (cluster, body) = (&cluster, &body);
            let device = format!("asleep-{}", number % 20);
            async move {
                for _ in 0..5 {
                    cluster.call(&device, body).await;
                }
            }
        });
        at_once(callers).await;
    };
    measure("queued calls", &cluster, &cluster.gateway, attack).await;
}

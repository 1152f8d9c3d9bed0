//! Attacks on a gateway.

use std::net::{IpAddr, Ipv4Addr};

use reqwest::StatusCode;
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use switchboard_identity::ApiKeySecret;
use tokio::task::JoinSet;

use super::{
    super::{Service, Takes, Target, sized},
    LARGE_BYTES, ask_forever, at_once, call_forever, devices, get, http_address, large_services,
    open, unfinished_body,
};
use crate::{
    cluster::{Org, TestCluster, echo_services},
    device::Device,
    one_address::fake_service::FakeService,
};

/// Clients have more time than the attack lasts.
const HEADER_TIMEOUT: (&str, &str) = ("SWITCHBOARD_HTTP_HEADER_TIMEOUT_MS", "60000");
const BODY_TIMEOUT: (&str, &str) = ("SWITCHBOARD_HTTP_BODY_TIMEOUT_MS", "60000");

/// A client without an open connection is served.
async fn newcomer_is_served(cluster: &TestCluster, org: &Org) {
    let newcomer = reqwest::Client::new();
    let list = newcomer.get(cluster.url("/v1/devices"));
    let answer = list.bearer_auth(&org.key).send().await.unwrap();
    assert_eq!(answer.status(), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_http_connections_leave_the_port_open() {
    let slots = sized(64, 8_192);
    let setting = ("SWITCHBOARD_HTTP_CONNECTIONS", &*slots.to_string());
    let target = Target::start(Service::Gateway, &[setting, HEADER_TIMEOUT]).await;
    let cluster = &target.cluster;
    let attack = async {
        let silent = open(&http_address(&cluster.gateway), slots * 5 / 4, b"").await;
        newcomer_is_served(cluster, &cluster.org).await;
        silent
    };
    target
        .measure(
            "silent HTTP connections",
            Takes::Share("http_connections"),
            attack,
        )
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_http_connections_of_an_org_leave_the_port_open() {
    let slots = sized(64, 8_192);
    let setting = ("SWITCHBOARD_HTTP_CONNECTIONS", &*slots.to_string());
    let target = Target::start(Service::Gateway, &[setting]).await;
    let cluster = &target.cluster;
    let other = cluster.another_org("Newcomer").await;
    let attack = async {
        let address = http_address(&cluster.gateway);
        let request = get(&cluster.org, &address, "/v1/devices?limit=1", "");
        let idle = open(&address, slots * 5 / 4, request.as_bytes()).await;
        newcomer_is_served(cluster, &other).await;
        idle
    };
    target
        .measure(
            "idle HTTP connections",
            Takes::Share("http_connections"),
            attack,
        )
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mcp_listeners_of_an_org_leave_the_port_open() {
    let slots = sized(64, 8_192);
    let settings = [
        ("SWITCHBOARD_HTTP_CONNECTIONS", &*slots.to_string()),
        // As with many API keys.
        ("SWITCHBOARD_MCP_LISTENERS_PER_CALLER", "100000"),
    ];
    let target = Target::start(Service::Gateway, &settings).await;
    let cluster = &target.cluster;
    let other = cluster.another_org("Newcomer").await;
    let attack = async {
        let address = http_address(&cluster.gateway);
        let request = get(
            &cluster.org,
            &address,
            "/mcp",
            "Accept: text/event-stream\r\n",
        );
        let listeners = open(&address, slots * 5 / 4, request.as_bytes()).await;
        newcomer_is_served(cluster, &other).await;
        listeners
    };
    target
        .measure("MCP listeners", Takes::Share("http_connections"), attack)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unfinished_heads_leave_memory_to_others() {
    let target = Target::start(Service::Gateway, &[HEADER_TIMEOUT]).await;
    // A longer head would be refused at once.
    let head = format!(
        "GET / HTTP/1.1\r\nHost: x\r\nX-Long: {}",
        "x".repeat(12 * 1024)
    );
    let attack = async {
        let address = http_address(&target.cluster.gateway);
        open(&address, sized(260, 8_190), head.as_bytes()).await
    };
    target
        .measure("unfinished heads", Takes::Share("http_heads"), attack)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unfinished_bodies_leave_memory_to_others() {
    let target = Target::start(Service::Gateway, &[BODY_TIMEOUT]).await;
    let cluster = &target.cluster;
    let request = unfinished_body(&cluster.org, "/v1/devices/x/calls");
    let attack = async {
        let address = http_address(&cluster.gateway);
        open(&address, sized(48, 300), request.as_bytes()).await
    };
    target
        .measure("unfinished bodies", Takes::Share("http_bodies"), attack)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn forwarded_requests_leave_slots_to_others() {
    let slots = sized(32, 1_024);
    // It answers no request.
    let service = FakeService::start().await;
    let settings = [
        ("SWITCHBOARD_CONTROL_URL", service.url.as_str()),
        ("SWITCHBOARD_FORWARDED_REQUESTS", &*slots.to_string()),
    ];
    let target = Target::start(Service::Gateway, &settings).await;
    let cluster = &target.cluster;
    let attack = async {
        let address = http_address(&cluster.gateway);
        let request = get(&cluster.org, &address, "/v1/npcs", "");
        open(&address, slots, request.as_bytes()).await
    };
    target
        .measure(
            "forwarded requests",
            Takes::Share("forwarded_requests"),
            attack,
        )
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn asynchronous_calls_leave_slots_to_others() {
    let slots = sized(32, 4_096);
    let setting = ("SWITCHBOARD_KEPT_CALLS_UNDER_WAY", &*slots.to_string());
    let target = Target::start(Service::Gateway, &[setting]).await;
    let cluster = &target.cluster;
    let other = cluster.another_org("Newcomer").await;
    let attack = async {
        let mut silent = devices(cluster, sized(2, 64)).await;
        for device in &mut silent {
            device.register(&echo_services()).await;
        }
        let body = json!({
            "service": "echo", "mode": "async", "params": {"text": "x"}, "timeout_ms": 300_000
        });
        let calls = (0..slots).map(|number| {
            let device = format!("noisy-{}", number % silent.len());
            let body = &body;
            async move { cluster.call(&device, body).await }
        });
        at_once(calls).await;
        let (status, answer) = cluster.call_as(&other, "offline", &body).await;
        assert_eq!(status, 202, "{answer}");
        silent
    };
    target
        .measure("asynchronous calls", Takes::Share("async_calls"), attack)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn streamed_calls_leave_slots_to_others() {
    let setting = ("SWITCHBOARD_CALL_STREAMS", "64");
    let target = Target::start(Service::Gateway, &[setting]).await;
    let cluster = &target.cluster;
    let other = cluster.another_org("Newcomer").await;
    let attack = async {
        let mut silent = devices(cluster, 1).await;
        silent[0].register(&echo_services()).await;
        let body = json!({"service": "echo", "params": {"text": "x"}, "timeout_ms": 300_000});
        let stream = async |org: &Org| {
            let request = cluster.http.post(cluster.url("/v1/devices/noisy-0/calls"));
            let request = request.header("accept", "text/event-stream").json(&body);
            request.bearer_auth(&org.key).send().await.unwrap()
        };
        // The share of an organisation is a quarter.
        let mut streams = Vec::new();
        for _ in 0..16 {
            let answer = stream(&cluster.org).await;
            assert_eq!(answer.status(), StatusCode::OK);
            streams.push(answer);
        }
        let refused = stream(&cluster.org).await;
        assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
        let answer = stream(&other).await;
        assert_ne!(answer.status(), StatusCode::TOO_MANY_REQUESTS);
        (silent, streams)
    };
    target
        .measure("streamed calls", Takes::Share("call_streams"), attack)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn group_calls_leave_slots_to_others() {
    let target = Target::start(Service::Gateway, &[]).await;
    let cluster = &target.cluster;
    let other = cluster.another_org("Newcomer").await;
    let attack = async {
        let mut silent = devices(cluster, 1).await;
        silent[0].register(&echo_services()).await;
        let body = json!({
            "devices": ["noisy-0"], "service": "echo", "params": {"text": "x"}, "timeout_ms": 300_000,
        });
        let group = async |org: &Org| {
            let request = cluster.http.post(cluster.url("/v1/group-calls"));
            let request = request.header("accept", "text/event-stream").json(&body);
            request.bearer_auth(&org.key).send().await.unwrap()
        };
        // The share of an organisation is a quarter.
        let mut groups = Vec::new();
        for _ in 0..8 {
            let answer = group(&cluster.org).await;
            assert_eq!(answer.status(), StatusCode::OK);
            groups.push(answer);
        }
        let refused = group(&cluster.org).await;
        assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(group(&other).await.status(), StatusCode::OK);
        (silent, groups)
    };
    target
        .measure("group calls", Takes::Share("group_calls"), attack)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn event_streams_leave_slots_to_others() {
    let settings = [
        ("SWITCHBOARD_EVENT_STREAMS", "64"),
        // As with many API keys.
        ("SWITCHBOARD_MCP_LISTENERS_PER_CALLER", "100000"),
    ];
    let target = Target::start(Service::Gateway, &settings).await;
    let cluster = &target.cluster;
    let other = cluster.another_org("Newcomer").await;
    let attack = async {
        let stream = async |org: &Org| {
            let request = cluster.http.get(cluster.url("/v1/events"));
            request.bearer_auth(&org.key).send().await.unwrap()
        };
        // The share of an organisation is a quarter.
        let mut streams = Vec::new();
        for _ in 0..16 {
            let answer = stream(&cluster.org).await;
            assert_eq!(answer.status(), StatusCode::OK);
            streams.push(answer);
        }
        let refused = stream(&cluster.org).await;
        assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
        streams.push(stream(&other).await);
        let last = streams.last().map(reqwest::Response::status);
        assert_eq!(last, Some(StatusCode::OK));
        streams
    };
    target
        .measure("event streams", Takes::Share("event_streams"), attack)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn large_params_leave_memory_to_others() {
    let target = Target::start(Service::Gateway, &[]).await;
    let cluster = &target.cluster;
    let other = cluster.another_org("Newcomer").await;
    let attack = async {
        let mut receiving = devices(cluster, 8).await;
        for device in &mut receiving {
            let services = json!({"store": {"description": "Stores."}});
            device.register(&services.to_string()).await;
        }
        let receiving: Vec<_> = receiving.into_iter().map(Device::stall).collect();
        let body = json!({
            "service": "store", "mode": "async", "params": {"text": "x".repeat(LARGE_BYTES)},
            "timeout_ms": 300_000,
        });
        let body = &body;
        let calls = (0..sized(96, 512)).map(|number| async move {
            cluster.call(&format!("noisy-{}", number % 8), body).await
        });
        at_once(calls).await;
        let (status, answer) = cluster.call_as(&other, "offline", body).await;
        assert_eq!(status, 202, "{answer}");
        receiving
    };
    target
        .measure(
            "params of asynchronous calls",
            Takes::Share("call_params"),
            attack,
        )
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn journaled_calls_leave_memory_to_others() {
    // So that the budget is what limits.
    let settings = [
        ("SWITCHBOARD_CALLER_BURST", "1000000"),
        ("SWITCHBOARD_CALLED_DEVICE_BURST", "1000000"),
    ];
    let target = Target::start(Service::Gateway, &settings).await;
    let cluster = &target.cluster;
    let url = format!("{}/v1/org", cluster.control.address("http_url"));
    let change = cluster.http.patch(url).bearer_auth(&cluster.org.key);
    let change = change
        .header("content-type", "application/merge-patch+json")
        .header("if-match", "*")
        .body(r#"{"journal_params":true}"#);
    assert_eq!(change.send().await.unwrap().status(), 200);
    let attack = async {
        let mut serving = Vec::new();
        for mut device in devices(cluster, 4).await {
            device.register(r#"{"echo":{}}"#).await;
            serving.push(device.serve());
        }
        // Nothing is written while the table is locked.
        let lock = cluster.database.lock("recent_calls").await.unwrap();
        let text = "x".repeat(16 * 1024);
        let body = json!({"service": "echo", "params": {"text": text}});
        let calling = call_forever(cluster, 8, |number| format!("noisy-{}", number % 4), &body);
        (serving, calling, lock)
    };
    target
        .measure(
            "calls in the journal",
            Takes::Share("journaled_calls"),
            attack,
        )
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unread_lists_leave_memory_to_others() {
    let target = Target::start(Service::Gateway, &[]).await;
    let cluster = &target.cluster;
    let attack = async {
        let mut devices = devices(cluster, sized(20, 200)).await;
        for device in &mut devices {
            device.register(&large_services(0)).await;
        }
        let address = http_address(&cluster.gateway);
        let request = get(&cluster.org, &address, "/v1/devices?limit=200", "");
        let readers = open(&address, 14, request.as_bytes()).await;
        (devices, readers)
    };
    target
        .measure(
            "lists that are not read",
            Takes::Share("http_responses"),
            attack,
        )
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unread_responses_leave_memory_to_others() {
    let target = Target::start(Service::Gateway, &[]).await;
    let cluster = &target.cluster;
    let attack = async {
        let mut devices = devices(cluster, 1).await;
        devices[0].register(&large_services(0)).await;
        let address = http_address(&cluster.gateway);
        // The first responses go to the buffers of the socket.
        let requests = get(&cluster.org, &address, "/v1/devices/noisy-0", "").repeat(20);
        let readers = open(&address, sized(80, 300), requests.as_bytes()).await;
        (devices, readers)
    };
    target
        .measure(
            "responses that are not read",
            Takes::Share("http_responses"),
            attack,
        )
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn queued_calls_leave_database_connections_to_others() {
    let target = Target::start(Service::Gateway, &[]).await;
    let attack = async {
        let body = json!({"service": "echo", "mode": "queued", "params": {"text": "x"}});
        let device = |number| format!("asleep-{}", number % 20);
        call_forever(&target.cluster, sized(100, 1_500), device, &body)
    };
    target
        .measure("queued calls", Takes::Share("database_org_rows"), attack)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn queues_of_stalled_devices_leave_slots_to_others() {
    let slots = sized(16, 4_096);
    let setting = ("SWITCHBOARD_KEPT_CALLS_UNDER_WAY", &*slots.to_string());
    let target = Target::start(Service::Gateway, &[setting]).await;
    let cluster = &target.cluster;
    let other = cluster.another_org("Newcomer").await;
    let attack = async {
        let mut silent = devices(cluster, sized(16, 1_100)).await;
        for device in &mut silent {
            device.register(&echo_services()).await;
        }
        let body = json!({
            "service": "echo", "mode": "queued", "params": {"text": "x"}, "timeout_ms": 300_000
        });
        let body = &body;
        let calls = (0..silent.len()).map(|number| async move {
            let (status, answer) = cluster.call(&format!("noisy-{number}"), body).await;
            assert_eq!(status, 202, "{answer}");
        });
        at_once(calls).await;
        let mut device = cluster.device_of(&other, "newcomer").await;
        device.register(&echo_services()).await;
        let serving = device.serve();
        let (_, call) = cluster.call_as(&other, "newcomer", body).await;
        let id = call["call_id"].as_str().unwrap();
        let url = cluster.url(&format!("/v1/calls/{id}?wait_ms=10000"));
        let ended = cluster.http.get(url).bearer_auth(&other.key).send().await;
        let ended: Value = ended.unwrap().json().await.unwrap();
        assert_eq!(ended["outcome"], "succeeded", "{ended}");
        (silent, serving)
    };
    target
        .measure(
            "queues of stalled devices",
            Takes::Share("queued_calls"),
            attack,
        )
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_of_registrations_leave_redis_to_others() {
    let target = Target::start(Service::Gateway, &[]).await;
    let cluster = &target.cluster;
    let attack = async {
        let mut devices = devices(cluster, 1).await;
        devices[0].register(&large_services(0)).await;
        let mut reading = JoinSet::new();
        for _ in 0..sized(32, 300) {
            let show = cluster.http.get(cluster.url("/v1/devices/noisy-0"));
            reading.spawn(ask_forever(show.bearer_auth(&cluster.org.key)));
        }
        (devices, reading)
    };
    target
        .measure(
            "reads of registrations",
            Takes::All("registration_reads"),
            attack,
        )
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn invented_keys_leave_lookups_to_others() {
    const STRANGER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
    let target = Target::start(Service::Gateway, &[]).await;
    let cluster = &target.cluster;
    let newcomer = cluster.another_org("Newcomer").await;
    let attack = async {
        let mut guessing = JoinSet::new();
        for _ in 0..sized(32, 300) {
            let stranger = reqwest::Client::builder().local_address(STRANGER);
            let list = stranger.build().unwrap().get(cluster.url("/v1/devices"));
            guessing.spawn(guess_forever(list));
        }
        newcomer_is_served(cluster, &newcomer).await;
        guessing
    };
    target
        .measure("invented API keys", Takes::All("key_lookups"), attack)
        .await;
}

/// Sends a request with another invented API key, which has a valid checksum, each time.
async fn guess_forever(request: reqwest::RequestBuilder) {
    while let Some(request) = request.try_clone() {
        let key = ApiKeySecret::generate();
        let answer = request.bearer_auth(key.expose_secret()).send().await;
        assert_ne!(answer.unwrap().status(), StatusCode::OK);
    }
}

//! Listeners: their notifications, their limits, and their end.

use std::time::{Duration, Instant};

use reqwest::{Method, RequestBuilder};
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use switchboard_protocol::token::{Scope, SigningKey};

use crate::{
    mcp_client::{Stream, exchange, get, listen, with_credential},
    test_gateway::{TEST_TIMEOUT, TestGateway},
};

const DEVICE: &str = "/mcp/devices/toy-1";
const TOOLS: &str = r#"{"echo":{},"fail":{}}"#;
const LIST_CHANGED: &str = "notifications/tools/list_changed";
/// More than the debounce interval of tools.
const QUIET_PERIOD: Duration = Duration::from_millis(1_000);
/// How long a listener may outlive its credential.
const REVOCATION_TIMEOUT: Duration = Duration::from_secs(5);

fn tools_only() -> Value {
    json!({"toolsListChanged": true})
}

#[tokio::test]
async fn listeners_are_notified_only_of_their_device() {
    let gateway = TestGateway::start().await;
    let epoch = gateway.connect_with("toy-1", TOOLS).await;
    gateway.connect("toy-2").await;
    let mut modern = Stream::listen(&gateway, DEVICE, tools_only()).await;
    let mut legacy = Stream::get(&gateway, DEVICE).await;
    let mut all = Stream::get(&gateway, "/mcp").await;

    // An unchanged registration and another device cause no notification.
    gateway.register("toy-1", epoch, TOOLS).await;
    gateway.connect("toy-3").await;
    assert_eq!(all.next_method().await, LIST_CHANGED);
    for stream in [&mut modern, &mut legacy, &mut all] {
        assert_eq!(stream.next_within(QUIET_PERIOD).await, None);
    }
    gateway.register("toy-1", epoch, r#"{"new":{}}"#).await;
    let message = modern.next().await;
    assert_eq!(message["method"], LIST_CHANGED);
    assert_eq!(
        message["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"],
        7
    );
    assert_eq!(legacy.next_method().await, LIST_CHANGED);
    assert_eq!(all.next_method().await, LIST_CHANGED);
    for stream in [&mut modern, &mut legacy, &mut all] {
        assert_eq!(stream.next_within(QUIET_PERIOD).await, None);
    }
}

#[tokio::test]
async fn unchanged_registration_is_not_notified() {
    let gateway = TestGateway::start().await;
    let epoch = gateway.connect("toy-1").await;
    gateway.store_device("asleep").await;
    let mut all = Stream::get(&gateway, "/mcp").await;
    let mut sleeping = Stream::listen(&gateway, "/mcp/devices/asleep", tools_only()).await;
    gateway.disconnect("toy-1", epoch);
    gateway.connect("toy-1").await;
    let epoch = gateway.connect("asleep").await;
    for stream in [&mut all, &mut sleeping] {
        assert_eq!(stream.next_within(QUIET_PERIOD).await, None);
    }
    // A later listener shares the editions of the organisation.
    let mut later = Stream::listen(&gateway, "/mcp", tools_only()).await;
    gateway.disconnect("asleep", epoch);
    gateway.connect("asleep").await;
    assert_eq!(later.next_within(QUIET_PERIOD).await, None);
    gateway.connect_with("asleep", TOOLS).await;
    for stream in [&mut all, &mut sleeping, &mut later] {
        assert_eq!(stream.next_method().await, LIST_CHANGED);
    }
}

#[tokio::test]
async fn many_changes_are_debounced() {
    const DEVICES: usize = 60;
    let gateway = TestGateway::start().await;
    let mut all = Stream::get(&gateway, "/mcp").await;
    let began = Instant::now();
    let storm = async {
        for at in 0..DEVICES {
            gateway.connect(&format!("toy-{at}")).await;
            // Without debouncing, each change would be notified on its own.
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        gateway.connect("last").await;
        Instant::now()
    };
    let receive = async {
        let mut received = Vec::new();
        while let Some(message) = all.next_within(QUIET_PERIOD).await {
            assert_eq!(message["method"], LIST_CHANGED);
            received.push(Instant::now());
        }
        received
    };
    let (last, received) = tokio::join!(storm, receive);
    let intervals = (last - began).as_millis() / 500;
    let count = u128::try_from(received.len()).unwrap();
    assert!(
        count <= intervals + 2,
        "{count} times in {intervals} intervals"
    );
    // The last change falls into a debounce interval and is notified at its end.
    assert!(
        *received.last().unwrap() >= last,
        "the last change was not notified"
    );
}

#[tokio::test]
async fn acknowledgement_lists_permitted_notifications() {
    let gateway = TestGateway::start().await;
    let everything = json!({
        "toolsListChanged": true, "promptsListChanged": true, "resourcesListChanged": true,
        "resourceSubscriptions": ["test://note"],
    });
    let calling = gateway.add_key(&[Scope::Call]).await;
    let both = gateway.add_key(&[Scope::Call, Scope::Read]).await;
    for (key, accepted) in [(calling, tools_only()), (both, everything.clone())] {
        let request = listen(&gateway, DEVICE, everything.clone());
        let request = with_credential(request, key.expose_secret());
        let acknowledged = Stream::open(request).await.next().await;
        assert_eq!(acknowledged["params"]["notifications"], accepted);
    }
}

#[tokio::test]
async fn i11_listeners_end_with_their_credential() {
    let gateway = TestGateway::start().await;
    let key = gateway.add_key(&[Scope::Call]).await;
    let (token, id, until) = gateway.issue_token(Duration::from_secs(600)).await;
    let (short, ..) = gateway.issue_token(Duration::from_secs(3)).await;
    let open = async |credential: &str| {
        let mut streams = Vec::new();
        for path in [DEVICE, "/mcp"] {
            for request in [get(&gateway, path), listen(&gateway, path, tools_only())] {
                let request = with_credential(request, credential).timeout(3 * TEST_TIMEOUT);
                streams.push(Stream::open(request).await);
            }
        }
        streams
    };
    let expiring = open(&short).await;
    let revoked_key = open(key.expose_secret()).await;
    let revoked_token = open(&token).await;
    let mut good = Stream::open(get(&gateway, DEVICE).timeout(3 * TEST_TIMEOUT)).await;

    let assert_end = async |streams: Vec<Stream>, within| {
        for mut stream in streams {
            stream.end(within).await;
        }
    };
    gateway.revoke_key(&key).await;
    gateway.edge.bus.revoke(id, until).await.unwrap();
    tokio::join!(
        assert_end(revoked_key, REVOCATION_TIMEOUT),
        // The bus reports the revocation; it is not found by the regular check.
        assert_end(revoked_token, Duration::from_millis(500)),
        assert_end(expiring, Duration::from_secs(3) + REVOCATION_TIMEOUT),
    );
    gateway.connect("toy-1").await;
    assert_eq!(good.next_method().await, LIST_CHANGED);
}

#[tokio::test]
async fn listeners_end_with_the_key_of_their_token() {
    let gateway = TestGateway::start().await;
    let (token, ..) = gateway.issue_token(Duration::from_secs(600)).await;
    let open = async |credential: &str| {
        let request = with_credential(get(&gateway, DEVICE), credential);
        Stream::open(request.timeout(3 * TEST_TIMEOUT)).await
    };
    let mut forged = open(&token).await;
    let key = gateway.add_key(&[Scope::Call]).await;
    let mut good = open(key.expose_secret()).await;
    // As after the deletion of a leaked key.
    let next = SigningKey::from_seed(&[8; 32]).verifying_key();
    gateway
        .edge
        .bus
        .publish_keys(vec![next], vec![])
        .await
        .unwrap();
    forged.end(REVOCATION_TIMEOUT).await;
    gateway.connect("toy-1").await;
    assert_eq!(good.next_method().await, LIST_CHANGED);
}

#[tokio::test]
async fn listeners_of_a_suspended_organisation_end() {
    let gateway = TestGateway::start().await;
    let (token, ..) = gateway.issue_token(Duration::from_secs(600)).await;
    let key = gateway.add_key(&[Scope::Call]).await;
    let mut streams = Vec::new();
    for credential in [token.as_str(), key.expose_secret()] {
        let request = with_credential(get(&gateway, DEVICE), credential);
        streams.push(Stream::open(request.timeout(3 * TEST_TIMEOUT)).await);
    }
    let bus = &gateway.edge.bus;
    bus.publish_suspended_orgs(&[gateway.org], 1).await.unwrap();
    for mut stream in streams {
        stream.end(REVOCATION_TIMEOUT).await;
    }
    let refused = exchange(get(&gateway, DEVICE)).await;
    assert_eq!(refused.status, 403);
    assert_eq!(refused.last()["type"], "/problems/org_suspended");
    bus.publish_suspended_orgs(&[], 2).await.unwrap();
    wait_until_admitted(|| get(&gateway, DEVICE)).await;
}

#[tokio::test]
async fn listeners_and_subscriptions_are_limited() {
    let gateway = TestGateway::with_flags(&[
        "--mcp-listeners-per-caller=2",
        "--mcp-resources-per-listener=3",
    ])
    .await;
    let subscriptions = |count: usize| {
        let uris: Vec<_> = (0..count).map(|at| format!("test://{at}")).collect();
        json!({ "resourceSubscriptions": uris })
    };
    let refused = exchange(listen(&gateway, DEVICE, subscriptions(4))).await;
    assert_eq!((refused.status, refused.error_code()), (200, -32602));
    assert!(
        refused.last()["error"]["message"]
            .as_str()
            .unwrap()
            .contains('3')
    );

    let first = Stream::get(&gateway, "/mcp").await;
    let second = Stream::listen(&gateway, DEVICE, subscriptions(3)).await;
    let refused = exchange(listen(&gateway, DEVICE, tools_only())).await;
    assert_eq!((refused.status, refused.error_code()), (429, -32000));
    assert_eq!(refused.last()["id"], 7);
    assert!(refused.headers.contains_key("retry-after"));
    let refused = exchange(get(&gateway, DEVICE)).await;
    assert_eq!(refused.status, 429);
    assert_eq!(refused.last()["limit"], 2);
    assert!(refused.headers.contains_key("retry-after"));

    // The limit is per caller, and a closed listener frees its slot.
    let other = gateway.add_key(&[Scope::Call]).await;
    Stream::open(with_credential(
        get(&gateway, DEVICE),
        other.expose_secret(),
    ))
    .await;
    for gone in [first, second] {
        drop(gone);
        wait_until_admitted(|| get(&gateway, "/mcp")).await;
    }
}

/// Waits until a listener is admitted.
async fn wait_until_admitted(request: impl Fn() -> RequestBuilder) {
    let polling = async {
        while request().send().await.unwrap().status() != 200 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, polling).await.unwrap();
}

#[tokio::test]
async fn acknowledgement_follows_the_subscription() {
    let gateway = TestGateway::start().await;
    // While the registrations cannot be read, changes cannot be detected.
    let lock = gateway
        .database
        .lock("service_registrations")
        .await
        .unwrap();
    let mut opening = tokio::task::JoinSet::new();
    opening.spawn(Stream::open(listen(&gateway, "/mcp", tools_only())));
    let early = tokio::time::timeout(Duration::from_millis(300), opening.join_next()).await;
    assert!(early.is_err(), "acknowledged too early");
    lock.release().await.unwrap();
    let mut stream = opening.join_next().await.unwrap().unwrap();
    let acknowledged = "notifications/subscriptions/acknowledged";
    assert_eq!(stream.next_method().await, acknowledged);
    gateway.connect("toy-1").await;
    assert_eq!(stream.next_method().await, LIST_CHANGED);
}

#[tokio::test]
async fn get_of_the_stateless_revision_is_refused() {
    let gateway = TestGateway::start().await;
    let request = gateway.request(Method::GET, DEVICE);
    let request = request.header("accept", "text/event-stream");
    let refused = exchange(request.header("mcp-protocol-version", "2026-07-28")).await;
    assert_eq!(refused.status, 405);
}

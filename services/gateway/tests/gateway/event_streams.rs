//! The stream of what happens in an organisation.

use std::time::Duration;

use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use switchboard_bus::LiveEvent;
use switchboard_protocol::token::Scope;
use switchboard_runtime::budget::{Kind, Owner};

use crate::{
    shares::OtherOrg,
    test_gateway::{TEST_TIMEOUT, TestGateway, send},
};

/// How long a stream may outlive its credential.
const REVOCATION_TIMEOUT: Duration = Duration::from_secs(5);

/// A stream as a browser reads it.
struct EventStream {
    response: reqwest::Response,
    unread: String,
    last_id: String,
}

impl EventStream {
    async fn open(request: RequestBuilder) -> Self {
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self {
            response,
            unread: String::new(),
            last_id: String::new(),
        }
    }

    /// A stream that has begun.
    async fn begin(request: RequestBuilder) -> Self {
        let mut stream = Self::open(request).await;
        let (name, data) = stream.next().await;
        assert_eq!(name, "ready");
        assert_eq!(data["position"], stream.last_id);
        stream
    }

    async fn next(&mut self) -> (String, Value) {
        let read = tokio::time::timeout(TEST_TIMEOUT, self.read()).await;
        read.unwrap().unwrap()
    }

    /// The next event, which must be of this type and have these members.
    async fn expect(&mut self, expected: &str, members: Value) {
        let (name, data) = self.next().await;
        assert_eq!(name, expected, "{data}");
        assert!(data["at"].as_str().unwrap().ends_with('Z'), "{data}");
        for (name, value) in members.as_object().unwrap() {
            assert_eq!(data[name], *value, "{data}");
        }
    }

    async fn end(&mut self, within: Duration) {
        let rest = async { while self.read().await.is_some() {} };
        tokio::time::timeout(within, rest).await.unwrap();
    }

    async fn read(&mut self) -> Option<(String, Value)> {
        loop {
            let Some((block, rest)) = self.unread.split_once("\n\n") else {
                let chunk = self.response.chunk().await.unwrap()?;
                self.unread.push_str(str::from_utf8(&chunk).unwrap());
                continue;
            };
            let (mut name, mut data) = (String::new(), None);
            for line in block.lines() {
                match line.split_once(": ") {
                    Some(("event", text)) => text.clone_into(&mut name),
                    Some(("data", text)) => data = serde_json::from_str(text).ok(),
                    Some(("id", text)) => text.clone_into(&mut self.last_id),
                    _ => {}
                }
            }
            self.unread = rest.to_owned();
            if let Some(data) = data {
                return Some((name, data));
            }
        }
    }
}

fn events(gateway: &TestGateway, query: &str) -> RequestBuilder {
    gateway.request(Method::GET, &format!("/v1/events{query}"))
}

#[tokio::test]
async fn organisations_see_their_own_events_only() {
    let gateway = TestGateway::start().await;
    let other = OtherOrg::new(&gateway).await;
    let mut own = EventStream::begin(events(&gateway, "")).await;
    let theirs = gateway.request_as(&other.key, Method::GET, "/v1/events");
    let mut theirs = EventStream::begin(theirs).await;
    let epoch = gateway.connect("toy-1").await;
    other.connect(&gateway, "theirs").await;
    let device = json!({"device_id": "toy-1"});
    own.expect("device.online", device.clone()).await;
    let registered = json!({"device_id": "toy-1", "services": 1});
    own.expect("device.registered", registered).await;
    assert_eq!(
        gateway.call("toy-1", r#"{"service":"echo"}"#).await.status,
        200
    );
    let ended = json!({
        "device_id": "toy-1", "service": "echo", "outcome": "succeeded", "delivered": "yes",
        "via": "rest",
    });
    own.expect("call.ended", ended).await;
    gateway.disconnect("toy-1", epoch);
    let offline = json!({"device_id": "toy-1", "reason": "closed"});
    own.expect("device.offline", offline).await;
    let device = json!({"device_id": "theirs"});
    theirs.expect("device.online", device.clone()).await;
    theirs.expect("device.registered", device).await;
}

#[tokio::test]
async fn stream_continues_where_it_was_left() {
    let gateway = TestGateway::start().await;
    let mut stream = EventStream::begin(events(&gateway, "?types=device.online")).await;
    gateway.connect("toy-1").await;
    stream
        .expect("device.online", json!({"device_id": "toy-1"}))
        .await;
    let last = stream.last_id.clone();
    drop(stream);
    gateway.connect("toy-2").await;
    let again = events(&gateway, "?types=device.online").header("last-event-id", &last);
    let mut again = EventStream::open(again).await;
    again
        .expect("device.online", json!({"device_id": "toy-2"}))
        .await;
    gateway.connect("toy-3").await;
    again
        .expect("device.online", json!({"device_id": "toy-3"}))
        .await;
    let path = format!("?types=device.online&last_event_id={last}");
    let mut again = EventStream::open(events(&gateway, &path)).await;
    again
        .expect("device.online", json!({"device_id": "toy-2"}))
        .await;
    for former in ["1789000000000000-5", "not a position"] {
        let request = events(&gateway, "").header("last-event-id", former);
        let mut stream = EventStream::open(request).await;
        assert_eq!(stream.next().await, ("gap".to_owned(), json!({})));
        assert!(!stream.last_id.is_empty());
    }
}

#[tokio::test]
async fn restricted_key_sees_what_it_reaches() {
    let gateway = TestGateway::start().await;
    let key = gateway.restricted_key(Some("toy-"), Some(&["echo"])).await;
    let stream = gateway.request_as(&key, Method::GET, "/v1/events");
    let mut stream = EventStream::begin(stream).await;
    gateway
        .connect_with("lamp-1", r#"{"echo":{},"fail":{}}"#)
        .await;
    gateway
        .bus
        .record_live(gateway.org, || LiveEvent::WebhookChanged {
            id: "wh".to_owned(),
        });
    gateway
        .connect_with("toy-1", r#"{"echo":{},"fail":{}}"#)
        .await;
    let device = json!({"device_id": "toy-1"});
    stream.expect("device.online", device.clone()).await;
    stream.expect("device.registered", device).await;
    for (device, service) in [("lamp-1", "echo"), ("toy-1", "fail"), ("toy-1", "echo")] {
        gateway
            .call(device, &json!({"service": service}).to_string())
            .await;
    }
    let ended = json!({"device_id": "toy-1", "service": "echo"});
    stream.expect("call.ended", ended).await;
    let outside = gateway.request_as(&key, Method::GET, "/v1/events?device=lamp-1");
    let outside = send(outside).await;
    assert_eq!(outside.json["type"], "/problems/outside_key");
}

#[tokio::test]
async fn ends_of_calls_without_an_answer_are_shown() {
    let gateway = TestGateway::start().await;
    let mut stream = EventStream::begin(events(&gateway, "?types=call.ended")).await;
    let queued = json!({"service": "echo", "mode": "queued"}).to_string();
    let call = gateway.call("toy-1", &queued).await;
    let path = format!("/v1/calls/{}", call.json["call_id"].as_str().unwrap());
    for _ in 0..2 {
        let cancelled = send(gateway.request(Method::DELETE, &path)).await;
        assert_eq!(cancelled.status, 204);
    }
    let ended = json!({
        "device_id": "toy-1", "service": "echo", "outcome": "cancelled", "delivered": "no",
        "call_id": call.json["call_id"], "via": "rest",
    });
    stream.expect("call.ended", ended).await;
    let short = json!({"service": "echo", "mode": "queued", "expires_in_ms": 200}).to_string();
    let call = gateway.call("toy-2", &short).await;
    let path = format!(
        "/v1/calls/{}?wait_ms=5000",
        call.json["call_id"].as_str().unwrap()
    );
    assert_eq!(gateway.get(&path).await.json["outcome"], "expired");
    let ended = json!({"device_id": "toy-2", "outcome": "expired", "delivered": "no"});
    stream.expect("call.ended", ended).await;
}

#[tokio::test]
async fn wrong_query_is_refused() {
    let gateway = TestGateway::start().await;
    for query in [
        "?types=nothing",
        "?types=",
        "?last_event_id=x",
        "?device=%20",
        "?other=1",
    ] {
        let refused = send(events(&gateway, query)).await;
        assert_eq!(refused.status, 400, "{query}: {}", refused.text);
        assert_eq!(refused.json["type"], "/problems/invalid_query");
    }
}

#[tokio::test]
async fn stream_ends_with_its_key() {
    let gateway = TestGateway::start().await;
    let key = gateway.add_key(&[Scope::Read]).await;
    let stream = gateway.request_as(&key, Method::GET, "/v1/events");
    let mut stream = EventStream::begin(stream).await;
    gateway.revoke_key(&key).await;
    stream.end(REVOCATION_TIMEOUT).await;
}

#[tokio::test]
async fn stream_without_a_slot_is_refused() {
    let gateway = TestGateway::start().await;
    let other = OtherOrg::new(&gateway).await;
    // The gateway's own budget, whatever the capacity here.
    let slots = gateway
        .budgets
        .slots("event_streams", 1, Kind::quarter_of(1));
    let owner = Owner::Org(gateway.org.uuid());
    let _taken = slots.try_acquire(owner, slots.share()).unwrap();
    let refused = send(events(&gateway, "")).await;
    assert_eq!(
        (refused.status, &refused.json["budget"]),
        (429, &json!("event_streams"))
    );
    EventStream::begin(gateway.request_as(&other.key, Method::GET, "/v1/events")).await;
}

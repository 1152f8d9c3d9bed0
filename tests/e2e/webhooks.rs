//! Webhooks through the whole system: events of devices and calls reach the organisation's
//! endpoint,
//! also when the delivering process dies during an attempt.

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::{Router, extract::State, http::StatusCode};
use serde_json::{Value, json};
use switchboard_protocol::frame::Kind;
use switchboard_test_support::{eventually::eventually, switchboard::Program};
use tokio::{net::TcpListener, task::JoinSet};

use crate::cluster::{Org, TestCluster};

const DELIVERY_TIMEOUT: Duration = Duration::from_secs(20);
pub const LOOPBACK: (&str, &str) = ("SWITCHBOARD_WEBHOOKS_ALLOW", "127.0.0.0/8");

#[derive(Default)]
struct Deliveries {
    /// Ids and bodies in the order of arrival.
    seen: Mutex<Vec<(String, Value)>>,
    is_silent: AtomicBool,
}

/// An endpoint of an organisation.
pub struct Endpoint {
    url: String,
    deliveries: Arc<Deliveries>,
    _server: JoinSet<()>,
}

impl Endpoint {
    pub async fn start(is_silent: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let deliveries = Arc::new(Deliveries::default());
        deliveries.is_silent.store(is_silent, Ordering::Relaxed);
        let router = Router::new()
            .fallback(receive)
            .with_state(Arc::clone(&deliveries));
        let mut server = JoinSet::new();
        server.spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self {
            url,
            deliveries,
            _server: server,
        }
    }

    /// Waits until an event is received.
    pub async fn receives(&self, is_expected: impl Fn(&Value) -> bool) {
        let received = async || {
            let seen = self.deliveries.seen.lock().unwrap();
            seen.iter().rev().any(|(_, body)| is_expected(body))
        };
        eventually(DELIVERY_TIMEOUT, received, |received| *received).await;
    }

    /// The first received event of this type.
    async fn event(&self, kind: &str) -> (String, Value) {
        let seen = async || {
            let seen = self.deliveries.seen.lock().unwrap();
            seen.iter()
                .rev()
                .find(|(_, body)| body["type"] == kind)
                .cloned()
        };
        eventually(DELIVERY_TIMEOUT, seen, Option::is_some)
            .await
            .unwrap()
    }
}

async fn receive(
    State(deliveries): State<Arc<Deliveries>>,
    headers: axum::http::HeaderMap,
    body: String,
) -> StatusCode {
    let id = headers["webhook-id"].to_str().unwrap().to_owned();
    deliveries
        .seen
        .lock()
        .unwrap()
        .push((id, serde_json::from_str(&body).unwrap()));
    if deliveries.is_silent.load(Ordering::Relaxed) {
        std::future::pending().await
    }
    StatusCode::NO_CONTENT
}

impl TestCluster {
    pub async fn listen(&self, endpoint: &Endpoint, events: &[&str]) {
        self.listen_as(&self.org, endpoint, events).await;
    }

    pub async fn listen_as(&self, org: &Org, endpoint: &Endpoint, events: &[&str]) {
        let url = format!("{}/v1/webhooks", self.control.address("http_url"));
        let document = json!({"url": endpoint.url, "events": events});
        let created = self.http.post(url).bearer_auth(&org.key).json(&document);
        assert_eq!(created.send().await.unwrap().status(), 201);
    }

    /// Makes all pending deliveries due immediately.
    async fn expire_backoffs(&self) {
        let due = "UPDATE webhook_deliveries SET next_attempt_at = now() WHERE state = 'pending'";
        self.database.execute(due).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn events_of_all_services_are_delivered() {
    let cluster = TestCluster::start_with(1, &[LOOPBACK]).await;
    let endpoint = Endpoint::start(false).await;
    let events = [
        "device.online",
        "device.offline",
        "device.event",
        "call.finished",
    ];
    cluster.listen(&endpoint, &events).await;
    let mut device = cluster.echo(0, "toy-1").await;
    let (_, online) = endpoint.event("device.online").await;
    assert_eq!(online["data"], json!({"device_id": "toy-1"}));

    device
        .send(
            Kind::Event,
            r#"{"name": "button", "data": {"pressed": true}}"#,
        )
        .await;
    let (_, event) = endpoint.event("device.event").await;
    let pressed = json!({"device_id": "toy-1", "name": "button", "data": {"pressed": true}});
    assert_eq!(event["data"], pressed);

    let call = json!({"service": "echo", "params": {"text": "hi"}, "mode": "async"});
    let (status, kept) = cluster.call("toy-1", &call).await;
    assert_eq!(status, 202, "{kept}");
    let (id, _, params) = device.next_call().await;
    device
        .answer(&id, &json!({"success": true, "data": params}))
        .await;
    let (_, finished) = endpoint.event("call.finished").await;
    let (_, shown) = cluster.get(&format!("/v1/calls/{id}")).await;
    for name in [
        "call_id",
        "device_id",
        "service",
        "mode",
        "state",
        "outcome",
        "delivered",
        "result",
    ] {
        assert_eq!(
            finished["data"][name], shown[name],
            "{name}: {finished} {shown}"
        );
    }

    drop(device);
    // An attempt in flight whose lease is expired here is made twice, under the same id.
    let ids = async || {
        cluster.expire_backoffs().await;
        let seen = endpoint.deliveries.seen.lock().unwrap();
        seen.iter()
            .map(|(id, _)| id.clone())
            .collect::<HashSet<_>>()
    };
    eventually(DELIVERY_TIMEOUT, ids, |ids| ids.len() == 4).await;
    let (_, offline) = endpoint.event("device.offline").await;
    assert_eq!(
        offline["data"],
        json!({"device_id": "toy-1", "reason": "closed"})
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_control_plane_loses_no_event() {
    let mut cluster = TestCluster::start_with(1, &[LOOPBACK]).await;
    let endpoint = Endpoint::start(true).await;
    cluster.listen(&endpoint, &["call.finished"]).await;
    let mut device = cluster.echo(0, "toy-1").await;
    let call = json!({"service": "echo", "params": {"text": "hi"}, "mode": "async"});
    let created = cluster.call("toy-1", &call).await.1;
    let (id, _, params) = device.next_call().await;
    device
        .answer(&id, &json!({"success": true, "data": params}))
        .await;
    let (first, body) = endpoint.event("call.finished").await;
    assert_eq!(body["data"]["call_id"], created["call_id"]);
    // In the middle of the attempt.
    cluster.control.kill();
    endpoint
        .deliveries
        .is_silent
        .store(false, Ordering::Relaxed);
    // No process delivers while another call ends.
    cluster.call("toy-1", &call).await;
    let (other, _, params) = device.next_call().await;
    device
        .answer(&other, &json!({"success": true, "data": params}))
        .await;
    let ended = async || cluster.get(&format!("/v1/calls/{other}")).await.1;
    eventually(DELIVERY_TIMEOUT, ended, |call| call["state"] == "ended").await;

    let mut environment = cluster.environment();
    environment.push((LOOPBACK.0, LOOPBACK.1.to_owned()));
    cluster.control = Program::start(&["control", "--http-listen", "127.0.0.1:0"], &environment);
    cluster.expire_backoffs().await;
    let all = async || endpoint.deliveries.seen.lock().unwrap().clone();
    let all = eventually(DELIVERY_TIMEOUT, all, |seen| seen.len() >= 3).await;
    let of = |call: &str| {
        all.iter()
            .filter(|(_, body)| body["data"]["call_id"] == call)
            .collect::<Vec<_>>()
    };
    assert!(
        of(&id).len() == 2 && of(&id).iter().all(|(delivery, _)| *delivery == first),
        "{all:?}"
    );
    assert_eq!(of(&other).len(), 1, "{all:?}");
}

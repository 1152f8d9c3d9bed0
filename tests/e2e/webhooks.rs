//! Webhooks through the whole system: what happens on devices and to calls arrives where an organisation wants it,
//! also when who delivers dies in the middle.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::{Router, extract::State, http::StatusCode};
use serde_json::{Value, json};
use switchboard_protocol::frame::Kind;
use tokio::{net::TcpListener, task::JoinSet};

use crate::{eventually::eventually, plant::Plant, program::Program};

const LONG: Duration = Duration::from_secs(20);
const LOOPBACK: (&str, &str) = ("SWITCHBOARD_WEBHOOKS_ALLOW", "127.0.0.0/8");

#[derive(Default)]
struct Desk {
    /// Ids and bodies, as they came.
    seen: Mutex<Vec<(String, Value)>>,
    is_silent: AtomicBool,
}

/// An endpoint of the organisation's.
struct Endpoint {
    url: String,
    desk: Arc<Desk>,
    _server: JoinSet<()>,
}

impl Endpoint {
    async fn start(is_silent: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let desk = Arc::new(Desk::default());
        desk.is_silent.store(is_silent, Ordering::Relaxed);
        let router = Router::new()
            .fallback(receive)
            .with_state(Arc::clone(&desk));
        let mut server = JoinSet::new();
        server.spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self {
            url,
            desk,
            _server: server,
        }
    }

    /// What has come of this type, once something has.
    async fn told(&self, kind: &str) -> (String, Value) {
        let seen = async || {
            let seen = self.desk.seen.lock().unwrap();
            seen.iter()
                .rev()
                .find(|(_, told)| told["type"] == kind)
                .cloned()
        };
        eventually(LONG, seen, Option::is_some).await.unwrap()
    }
}

async fn receive(
    State(desk): State<Arc<Desk>>,
    headers: axum::http::HeaderMap,
    body: String,
) -> StatusCode {
    let id = headers["webhook-id"].to_str().unwrap().to_owned();
    desk.seen
        .lock()
        .unwrap()
        .push((id, serde_json::from_str(&body).unwrap()));
    if desk.is_silent.load(Ordering::Relaxed) {
        std::future::pending().await
    }
    StatusCode::NO_CONTENT
}

impl Plant {
    async fn listen(&self, endpoint: &Endpoint, events: &[&str]) {
        let url = format!("{}/v1/webhooks", self.control.address("http_url"));
        let document = json!({"url": endpoint.url, "events": events});
        let made = self
            .http
            .post(url)
            .bearer_auth(&self.org.key)
            .json(&document);
        assert_eq!(made.send().await.unwrap().status(), 201);
    }

    /// Lets no pause pass.
    async fn hasten(&self) {
        let due = "UPDATE webhook_deliveries SET next_attempt_at = now() WHERE state = 'pending'";
        self.database.execute(due).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_happens_anywhere_is_told() {
    let plant = Plant::start_with(1, &[LOOPBACK]).await;
    let endpoint = Endpoint::start(false).await;
    let events = [
        "device.online",
        "device.offline",
        "device.event",
        "call.finished",
    ];
    plant.listen(&endpoint, &events).await;
    let mut toy = plant.echo(0, "toy-1").await;
    let (_, online) = endpoint.told("device.online").await;
    assert_eq!(online["data"], json!({"device_id": "toy-1"}));

    toy.send(
        Kind::Event,
        r#"{"name": "button", "data": {"pressed": true}}"#,
    )
    .await;
    let (_, event) = endpoint.told("device.event").await;
    let pressed = json!({"device_id": "toy-1", "name": "button", "data": {"pressed": true}});
    assert_eq!(event["data"], pressed);

    let call = json!({"service": "echo", "params": {"text": "hi"}, "mode": "async"});
    let (status, kept) = plant.call("toy-1", &call).await;
    assert_eq!(status, 202, "{kept}");
    let (id, _, params) = toy.next_call().await;
    toy.answer(&id, &json!({"success": true, "data": params}))
        .await;
    let (_, finished) = endpoint.told("call.finished").await;
    let (_, shown) = plant.get(&format!("/v1/calls/{id}")).await;
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

    drop(toy);
    let waits = async || {
        plant.hasten().await;
        endpoint.desk.seen.lock().unwrap().len()
    };
    eventually(LONG, waits, |count| *count == 4).await;
    let (_, offline) = endpoint.told("device.offline").await;
    assert_eq!(
        offline["data"],
        json!({"device_id": "toy-1", "reason": "closed"})
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_control_plane_takes_no_news_along() {
    let mut plant = Plant::start_with(1, &[LOOPBACK]).await;
    let endpoint = Endpoint::start(true).await;
    plant.listen(&endpoint, &["call.finished"]).await;
    let mut toy = plant.echo(0, "toy-1").await;
    let call = json!({"service": "echo", "params": {"text": "hi"}, "mode": "async"});
    let made = plant.call("toy-1", &call).await.1;
    let (id, _, params) = toy.next_call().await;
    toy.answer(&id, &json!({"success": true, "data": params}))
        .await;
    let (first, told) = endpoint.told("call.finished").await;
    assert_eq!(told["data"]["call_id"], made["call_id"]);
    // In the middle of the attempt.
    plant.control.kill();
    endpoint.desk.is_silent.store(false, Ordering::Relaxed);
    // While nobody delivers, another call ends.
    plant.call("toy-1", &call).await;
    let (other, _, params) = toy.next_call().await;
    toy.answer(&other, &json!({"success": true, "data": params}))
        .await;
    let ended = async || plant.get(&format!("/v1/calls/{other}")).await.1;
    eventually(LONG, ended, |call| call["state"] == "ended").await;

    let mut environment = plant.environment();
    environment.push((LOOPBACK.0, LOOPBACK.1.to_owned()));
    plant.control = Program::start(&["control", "--http-listen", "127.0.0.1:0"], &environment);
    plant.hasten().await;
    let all = async || endpoint.desk.seen.lock().unwrap().clone();
    let all = eventually(LONG, all, |seen| seen.len() >= 3).await;
    let of = |call: &str| {
        all.iter()
            .filter(|(_, told)| told["data"]["call_id"] == call)
            .collect::<Vec<_>>()
    };
    assert!(
        of(&id).len() == 2 && of(&id).iter().all(|(delivery, _)| *delivery == first),
        "{all:?}"
    );
    assert_eq!(of(&other).len(), 1, "{all:?}");
}

//! Attacks on a control plane.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Json, Router,
    extract::{Query, State},
    routing::post,
};
use chrono::{DateTime, FixedOffset};
use reqwest::Method;
use serde::Deserialize;
use serde_json::{Value, json};
use switchboard_protocol::frame::Kind;
use switchboard_test_support::eventually::eventually;
use tokio::{net::TcpListener, sync::Semaphore, task::JoinSet};

use super::{
    super::{Service, Takes, Target, sized},
    devices, http_address, open, unfinished_body,
};
use crate::{
    cluster::{Org, TestCluster},
    system::TestSystem,
    webhooks::Endpoint,
};

const MIB: usize = 1024 * 1024;
/// The maximum number of webhooks of an organisation.
const WEBHOOKS: usize = 16;
/// Within this time the voice of the other organisation is trained, whatever voices others have.
const VOICE_TIMEOUT: Duration = Duration::from_secs(20);
const SAMPLE: &[u8] = include_bytes!("../../../../services/control/tests/control/voices/tone.mp3");
const EVENT_BYTES: usize = 4 * 1024;

/// The API as an administrator of this organisation uses it.
fn administration(cluster: &TestCluster, org: &Org) -> TestSystem {
    TestSystem {
        http: cluster.http.clone(),
        key: org.key.clone(),
        settings: cluster.control.address("http_url"),
        talk: String::new(),
        admin: cluster.control.address("admin_url"),
        devices: Vec::new(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_webhooks_leave_attempts_to_others() {
    let senders = sized(16, 256).to_string();
    let setting = ("SWITCHBOARD_WEBHOOKS_SENDERS", &*senders);
    let target = Target::start(Service::Control, &[setting]).await;
    let cluster = &target.cluster;
    let attack = async {
        let endpoint = Endpoint::start(true).await;
        for _ in 0..WEBHOOKS {
            let events = &["device.event"];
            cluster.listen_as(&cluster.org, &endpoint, events).await;
        }
        let mut devices = devices(cluster, sized(2, 20)).await;
        for device in &mut devices {
            for _ in 0..20 {
                device.send(Kind::Event, r#"{"name": "button"}"#).await;
            }
        }
        (endpoint, devices)
    };
    target
        .measure("slow webhooks", Takes::Share("webhook_attempts"), attack)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn large_books_leave_readers_to_others() {
    let target = Target::start(Service::Control, &[]).await;
    let cluster = &target.cluster;
    let other = cluster.another_org("Reader").await;
    let noisy = administration(cluster, &cluster.org);
    let quiet = administration(cluster, &other);
    let sentence = "The quick brown fox jumps over the lazy dog and rests a while.\n\n";
    let text = sentence.repeat(sized(MIB / 4, 8 * MIB) / sentence.len());
    let attack = async {
        let mut waiting = Vec::new();
        for number in 0..3 {
            waiting.push(noisy.upload_book(&format!("Noisy {number}"), &text).await);
        }
        let own = quiet.upload_book("Quiet", "Replace the battery.").await;
        // A fast machine has ingested some of them by now.
        let mut left = Vec::new();
        for book in &waiting {
            if noisy.show_book(book).await["state"] != "ready" {
                left.push(book);
            }
        }
        let own = ready_at(&quiet.ready_book(&own).await);
        let mut earlier = 0;
        for book in left {
            let book = noisy.show_book(book).await;
            earlier += usize::from(book["state"] == "ready" && ready_at(&book) < own);
        }
        assert!(earlier <= 1, "it waited for {earlier} books");
    };
    target
        .measure("large skills books", Takes::All("ingestion_jobs"), attack)
        .await;
}

/// When the ingestion of a book has ended.
fn ready_at(book: &Value) -> DateTime<FixedOffset> {
    let changed = book["updated_at"].as_str().unwrap();
    DateTime::parse_from_rfc3339(changed).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_and_tokens_leave_database_connections_to_others() {
    let target = Target::start(Service::Control, &[]).await;
    let attack = async {
        let mut asking = JoinSet::new();
        for number in 0..sized(48, 400) {
            let noisy = administration(&target.cluster, &target.cluster.org);
            asking.spawn(create_credentials(noisy, number));
        }
        asking
    };
    target
        .measure(
            "keys and tokens",
            Takes::Share("database_connections"),
            attack,
        )
        .await;
}

/// Creates tokens and keys, and revokes the keys, until the task is dropped. Refused requests are
/// repeated.
async fn create_credentials(system: TestSystem, number: usize) {
    loop {
        let subject = format!("device:noisy-{number}");
        let token = json!({"subject": subject, "scopes": ["device"], "ttl_s": 60});
        system.ask(Method::POST, "/v1/tokens", &token).await;
        let key = json!({"name": subject});
        let (_, key) = system.ask(Method::POST, "/v1/api-keys", &key).await;
        if let Some(id) = key["api_key_id"].as_str() {
            let path = format!("/v1/api-keys/{id}");
            system.ask(Method::DELETE, &path, &Value::Null).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unfinished_settings_leave_memory_to_others() {
    let body_timeout = ("SWITCHBOARD_HTTP_BODY_TIMEOUT_MS", "60000");
    let target = Target::start(Service::Control, &[body_timeout]).await;
    let cluster = &target.cluster;
    let attack = async {
        let request = unfinished_body(&cluster.org, "/v1/templates");
        let address = http_address(&cluster.control);
        open(&address, sized(48, 300), request.as_bytes()).await
    };
    target
        .measure("unfinished settings", Takes::Share("http_bodies"), attack)
        .await;
}

/// The names of the voices that a provider was asked to train, in the order of the requests.
type Trained = Arc<Mutex<Vec<String>>>;

#[derive(Deserialize)]
struct Training {
    name: String,
}

async fn train(
    State((trained, may_end)): State<(Trained, Arc<Semaphore>)>,
    Query(training): Query<Training>,
) -> Json<Value> {
    let id = training.name.clone();
    trained.lock().unwrap().push(training.name);
    may_end.acquire().await.unwrap().forget();
    Json(json!({"id": id, "state": "ready"}))
}

async fn upload_voice(system: &TestSystem, name: &str) {
    let url = format!(
        "{}/v1/voices?name={name}&provider=http&consent_by=Anna&consent_statement=Yes.",
        system.settings
    );
    let upload = system.http.post(url).bearer_auth(&system.key).body(SAMPLE);
    let uploaded = upload.send().await.unwrap();
    assert_eq!(uploaded.status(), 201, "{}", uploaded.text().await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn many_voices_leave_the_provider_to_others() {
    let (trained, may_end) = (Trained::default(), Arc::new(Semaphore::new(0)));
    let router = Router::new()
        .route("/", post(train))
        .with_state((Arc::clone(&trained), Arc::clone(&may_end)));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}/", listener.local_addr().unwrap());
    let _provider = JoinSet::from_iter([async { axum::serve(listener, router).await.unwrap() }]);
    let settings = [("SWITCHBOARD_VOICES_ENDPOINT", &*endpoint)];
    let target = Target::start(Service::Control, &settings).await;
    let cluster = &target.cluster;
    let other = cluster.another_org("Speaker").await;
    let noisy = administration(cluster, &cluster.org);
    let quiet = administration(cluster, &other);
    let attack = async {
        for number in 0..sized(8, 200) {
            upload_voice(&noisy, &format!("noisy-{number}")).await;
        }
        let names = async || trained.lock().unwrap().clone();
        eventually(VOICE_TIMEOUT, names, |names| !names.is_empty()).await;
        upload_voice(&quiet, "quiet").await;
        // The first one, and one of those that wait. Then the provider is slow again.
        may_end.add_permits(2);
        eventually(VOICE_TIMEOUT, names, |names| {
            names.iter().any(|name| name == "quiet")
        })
        .await;
    };
    target
        .measure("many voices", Takes::Slot("voice_jobs"), attack)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn floods_of_device_events_leave_room_to_others() {
    let settings = [
        // As many as thousands of devices may send.
        ("SWITCHBOARD_DEVICE_EVENT_BURST", "1000000"),
        ("SWITCHBOARD_FACTS_BATCH", &*sized(10, 1_000).to_string()),
    ];
    let target = Target::start(Service::Control, &settings).await;
    let event = json!({"name": "button", "data": "x".repeat(EVENT_BYTES)}).to_string();
    let attack = async {
        let mut sending = JoinSet::new();
        for mut device in devices(&target.cluster, sized(4, 40)).await {
            let event = event.clone();
            sending.spawn(async move {
                loop {
                    device.send(Kind::Event, &event).await;
                }
            });
        }
        sending
    };
    target
        .measure("device events", Takes::BusShare("device_events"), attack)
        .await;
}

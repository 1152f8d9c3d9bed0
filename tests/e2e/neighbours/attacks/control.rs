//! Attacks on a control plane.

use chrono::{DateTime, FixedOffset};
use reqwest::Method;
use serde_json::{Value, json};
use switchboard_protocol::frame::Kind;
use tokio::task::JoinSet;

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

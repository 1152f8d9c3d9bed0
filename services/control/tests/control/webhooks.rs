//! Webhooks: management, test deliveries and signatures.

use axum::body::Body;
use http::{Method, Request, StatusCode, header};
use serde_json::{Value, json};
use switchboard_test_support::eventually::eventually_some;

use crate::{
    installation::{Installation, Org, body, config},
    receiver::Receiver,
};

impl Installation {
    /// Creates a webhook. Returns its id and its secret.
    pub(crate) async fn webhook(&self, org: &Org, document: Value) -> (String, String) {
        let created = self.send(Method::POST, "/v1/webhooks", Some(&org.key), Some(document));
        let (status, created) = created.await;
        assert_eq!(status, StatusCode::CREATED, "{created}");
        let text = |name: &str| created[name].as_str().unwrap().to_owned();
        (text("id"), text("secret"))
    }

    pub(crate) async fn get(&self, org: &Org, path: &str) -> Value {
        let (status, found) = self.send(Method::GET, path, Some(&org.key), None).await;
        assert_eq!(status, StatusCode::OK, "{found}");
        found
    }

    /// Sends a request without a body. Returns status and body.
    pub(crate) async fn post_empty(&self, org: &Org, path: &str) -> (u16, Value) {
        let (status, answer) = self.send(Method::POST, path, Some(&org.key), None).await;
        (status.as_u16(), answer)
    }

    /// Updates the current version of a webhook.
    pub(crate) async fn change_webhook(&self, org: &Org, id: &str, patch: Value) -> (u16, Value) {
        let path = format!("/v1/webhooks/{id}");
        let version = self.get(org, &path).await["version"].clone();
        let version = format!("\"{version}\"");
        let answer = self.patch(&org.key, &path, Some(&version), patch).await;
        (answer.status().as_u16(), body(answer).await)
    }

    /// Waits until the delivery meets a condition.
    pub(crate) async fn delivery(&self, org: &Org, id: &str, is: impl Fn(&Value) -> bool) -> Value {
        let path = format!("/v1/webhook-deliveries/{id}");
        let ask = async || Some(self.get(org, &path).await).filter(|found| is(found));
        eventually_some("the delivery meets the condition", ask).await
    }

    /// Sends a test event. Returns the id of the delivery.
    pub(crate) async fn send_test_event(&self, org: &Org, webhook: &str) -> String {
        let (status, created) = self
            .post_empty(org, &format!("/v1/webhooks/{webhook}/test"))
            .await;
        assert_eq!(status, 201, "{created}");
        created["id"].as_str().unwrap().to_owned()
    }

    /// Makes all pending deliveries due, including leased ones.
    pub(crate) async fn make_deliveries_due(&self) {
        let due = "UPDATE webhook_deliveries SET next_attempt_at = now() WHERE state = 'pending'";
        self.database.execute(due).await.unwrap();
    }
}

#[tokio::test]
async fn webhook_is_created_updated_and_deleted() {
    let installation = Installation::idle(Some(crate::installation::OPERATOR_KEY)).await;
    let org = installation.new_org("own").await;
    let document =
        json!({"url": "https://example.com/a", "events": ["call.finished"], "description": "shop"});
    let (id, secret) = installation.webhook(&org, document).await;
    assert!(
        id.starts_with("whk_") && secret.starts_with("whsec_"),
        "{id}"
    );
    let path = format!("/v1/webhooks/{id}");
    let shown = installation.get(&org, &path).await;
    assert_eq!(shown["enabled"], true);
    assert_eq!(shown["description"], "shop");
    assert_eq!(
        (&shown["dropped"], &shown["failing_since"]),
        (&json!(0), &Value::Null)
    );
    assert!(shown.get("secret").is_none(), "{shown}");

    let patch =
        json!({"events": ["device.online", "device.event"], "description": null, "enabled": false});
    let (status, changed) = installation.change_webhook(&org, &id, patch).await;
    assert_eq!((status, &changed["version"]), (200, &json!(2)), "{changed}");
    assert_eq!(changed["events"], json!(["device.online", "device.event"]));
    assert_eq!(
        (&changed["description"], &changed["enabled"]),
        (&Value::Null, &json!(false))
    );
    let listed = installation.get(&org, "/v1/webhooks").await;
    assert_eq!(listed["webhooks"], json!([changed]));

    let request = Request::delete(&path)
        .header(header::AUTHORIZATION, format!("Bearer {}", org.key))
        .header(header::IF_MATCH, "\"2\"");
    let gone = installation
        .answer(request.body(Body::empty()).unwrap())
        .await;
    assert_eq!(gone.status(), StatusCode::NO_CONTENT);
    let (status, _) = installation
        .send(Method::GET, &path, Some(&org.key), None)
        .await;
    assert_eq!(status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn invalid_webhook_is_rejected_with_its_pointer() {
    let installation = Installation::idle(Some(crate::installation::OPERATOR_KEY)).await;
    let org = installation.new_org("own").await;
    let check = async |document: Value, pointer: &str| {
        let created = installation.send(
            Method::POST,
            "/v1/webhooks",
            Some(&org.key),
            Some(document.clone()),
        );
        let (status, refused) = created.await;
        assert_eq!(
            (status.as_u16(), &refused["errors"][0]["pointer"]),
            (422, &json!(pointer)),
            "{document} {refused}"
        );
    };
    let with = |name: &str, value: Value| {
        let mut document = json!({"url": "https://example.com/", "events": ["device.online"]});
        document[name] = value;
        document
    };
    check(json!({"url": "https://example.com/"}), "/events").await;
    check(with("url", json!("http://1.1.1.1/")), "/url").await;
    check(with("url", json!("ftp://example.com/")), "/url").await;
    check(with("url", json!("https://10.0.0.1/")), "/url").await;
    check(
        with("url", json!("https://169.254.169.254/latest/")),
        "/url",
    )
    .await;
    check(with("url", json!("https://[::1]/")), "/url").await;
    check(with("url", json!("https://me:secret@example.com/")), "/url").await;
    check(with("events", json!([])), "/events").await;
    check(with("events", json!(["device.on"])), "/events/0").await;
    check(
        with("events", json!(["device.online", "device.online"])),
        "/events/1",
    )
    .await;
    check(with("description", json!("x".repeat(501))), "/description").await;
    check(with("secret", json!("whsec_AAAA")), "/secret").await;
    check(with("enabled", json!("yes")), "/enabled").await;

    let (id, _) = installation
        .webhook(&org, with("enabled", json!(true)))
        .await;
    for (name, value) in [
        ("secret", json!("x")),
        ("id", json!("x")),
        ("dropped", json!(7)),
    ] {
        let (status, refused) = installation
            .change_webhook(&org, &id, json!({name: value}))
            .await;
        assert_eq!(
            (status, &refused["errors"][0]["pointer"]),
            (422, &json!(format!("/{name}"))),
            "{refused}"
        );
    }
    let (status, refused) = installation
        .change_webhook(&org, &id, json!({"url": "https://127.1.2.3:99999/"}))
        .await;
    assert_eq!(
        (status, &refused["errors"][0]["pointer"]),
        (422, &json!("/url")),
        "{refused}"
    );
}

#[tokio::test]
async fn number_of_webhooks_is_limited() {
    let installation = Installation::idle(Some(crate::installation::OPERATOR_KEY)).await;
    let (org, other) = (
        installation.new_org("own").await,
        installation.new_org("other").await,
    );
    let document = json!({"url": "https://example.com/", "events": ["device.online"]});
    for _ in 0..16 {
        installation.webhook(&org, document.clone()).await;
    }
    let (status, refused) = installation
        .send(
            Method::POST,
            "/v1/webhooks",
            Some(&org.key),
            Some(document.clone()),
        )
        .await;
    assert_eq!(
        (status.as_u16(), &refused["type"]),
        (409, &json!("/problems/too_many_webhooks"))
    );
    installation.webhook(&other, document).await;
}

#[tokio::test]
async fn delivery_is_signed_by_the_specification() {
    let installation = Installation::start().await;
    let org = installation.new_org("own").await;
    let receiver = Receiver::start(&[]).await;
    let (webhook, secret) = installation
        .webhook(&org, receiver.webhook(&["call.finished"]))
        .await;
    let id = installation.send_test_event(&org, &webhook).await;
    let [seen] = receiver.received(1).await.try_into().unwrap();
    assert_eq!((seen.id(), seen.path.as_str()), (id.clone(), "/hook?a=b"));
    assert_eq!(seen.headers["content-type"], "application/json");
    assert_eq!(seen.headers["host"], format!("127.0.0.1:{}", receiver.port));
    assert!(
        seen.headers["user-agent"]
            .to_str()
            .unwrap()
            .starts_with("Switchboard/")
    );
    let body = seen.json();
    assert_eq!(
        (&body["type"], &body["data"]),
        (&json!("webhook.test"), &json!({"webhook_id": webhook}))
    );
    assert!(seen.is_signed_with(&secret));
    assert!(!seen.is_signed_with("whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlBQkNERUY="));
    let arrived = installation
        .delivery(&org, &id, |found| found["state"] == "delivered")
        .await;
    assert_eq!(
        (&arrived["attempts"], &arrived["last_status"]),
        (&json!(1), &json!(204))
    );
    assert_eq!(
        (&arrived["next_attempt_at"], &arrived["last_error"]),
        (&Value::Null, &Value::Null)
    );
    let listed = installation
        .get(
            &org,
            &format!("/v1/webhooks/{webhook}/deliveries?state=delivered"),
        )
        .await;
    assert_eq!(listed["deliveries"], json!([arrived]));
    // A successful delivery is not repeated.
    let (status, refused) = installation
        .post_empty(&org, &format!("/v1/webhook-deliveries/{id}/redeliver"))
        .await;
    assert_eq!(
        (status, &refused["type"]),
        (409, &json!("/problems/delivery_not_failed"))
    );
}

#[tokio::test]
async fn previous_secret_signs_for_a_day() {
    let installation = Installation::start().await;
    let org = installation.new_org("own").await;
    let receiver = Receiver::start(&[]).await;
    let (webhook, first) = installation
        .webhook(&org, receiver.webhook(&["call.finished"]))
        .await;
    let (status, rotated) = installation
        .post_empty(&org, &format!("/v1/webhooks/{webhook}/rotate-secret"))
        .await;
    assert_eq!(status, 201, "{rotated}");
    let second = rotated["secret"].as_str().unwrap();
    assert!(
        second != first && rotated["former_secret_until"].is_string(),
        "{rotated}"
    );
    installation.send_test_event(&org, &webhook).await;
    let seen = receiver.received(1).await.remove(0);
    assert!(seen.is_signed_with(&first) && seen.is_signed_with(second));

    let over = "UPDATE webhooks SET former_secret_until = now()";
    installation.database.execute(over).await.unwrap();
    installation.send_test_event(&org, &webhook).await;
    let seen = receiver.received(2).await.remove(1);
    assert!(!seen.is_signed_with(&first) && seen.is_signed_with(second));
    let shown = installation
        .get(&org, &format!("/v1/webhooks/{webhook}"))
        .await;
    assert_eq!(shown["former_secret_until"], Value::Null);
    // Fails if a secret is stored as plain text or bytes.
    for secret in [first.as_str(), second] {
        let text = secret.trim_start_matches("whsec_");
        let looks = format!(
            "DO $$ BEGIN IF EXISTS (SELECT FROM webhooks WHERE secret IN (decode('{text}', 'base64'), '{secret}'::bytea) \
             OR former_secret IN (decode('{text}', 'base64'), '{secret}'::bytea)) \
             THEN RAISE EXCEPTION 'a secret in the clear'; END IF; END $$"
        );
        installation.database.execute(&looks).await.unwrap();
    }
}

#[tokio::test]
async fn disabled_webhook_receives_nothing() {
    let installation = Installation::start().await;
    let org = installation.new_org("own").await;
    let receiver = Receiver::start(&[]).await;
    let (webhook, _) = installation
        .webhook(&org, receiver.webhook(&["call.finished"]))
        .await;
    let (status, _) = installation
        .change_webhook(&org, &webhook, json!({"enabled": false}))
        .await;
    assert_eq!(status, 200);
    let (status, refused) = installation
        .post_empty(&org, &format!("/v1/webhooks/{webhook}/test"))
        .await;
    assert_eq!(
        (status, &refused["type"]),
        (409, &json!("/problems/webhook_disabled"))
    );
    assert!(receiver.seen().is_empty());
}

#[tokio::test]
async fn process_without_senders_delivers_nothing() {
    let installation = Installation::idle(Some(crate::installation::OPERATOR_KEY)).await;
    let mut without = config();
    without.webhooks_senders = 0;
    installation.start_workers_with(&without);
    let org = installation.new_org("own").await;
    let receiver = Receiver::start(&[]).await;
    let (webhook, _) = installation
        .webhook(&org, receiver.webhook(&["call.finished"]))
        .await;
    let id = installation.send_test_event(&org, &webhook).await;
    let waits = installation.delivery(&org, &id, |_| true).await;
    assert_eq!(
        (&waits["state"], &waits["attempts"]),
        (&json!("pending"), &json!(0))
    );
    installation.start_another();
    receiver.received(1).await;
}

//! Failing deliveries: retries, final failures, rejected addresses, and disabled webhooks.

use std::{io::Write, time::Duration};

use http::Method;
use serde_json::{Value, json};
use switchboard_bus::Seen;
use switchboard_control::Authorities;
use switchboard_test_support::eventually::eventually_some;

use crate::{
    installation::{Installation, OPERATOR_KEY, config},
    receiver::{Receiver, Reply},
};

const EVENTS: &[&str] = &["call.finished"];

#[tokio::test]
async fn failed_attempt_is_repeated_with_the_same_id() {
    let installation = Installation::start().await;
    let org = installation.new_org("own").await;
    let receiver = Receiver::start(&[Reply::Status(503), Reply::Status(404)]).await;
    let (webhook, secret) = installation.webhook(&org, receiver.webhook(EVENTS)).await;
    let id = installation.send_test_event(&org, &webhook).await;
    let failed = |attempts: i32, status: i32| {
        move |found: &Value| found["attempts"] == attempts && found["last_status"] == status
    };
    let once = installation.delivery(&org, &id, failed(1, 503)).await;
    assert_eq!(
        (&once["state"], &once["last_error"]),
        (&json!("pending"), &json!("status"))
    );
    assert!(
        once["next_attempt_at"].as_str() > once["last_attempt_at"].as_str(),
        "{once}"
    );
    let path = format!("/v1/webhooks/{webhook}");
    assert!(installation.get(&org, &path).await["failing_since"].is_string());
    installation.make_deliveries_due().await;
    installation.delivery(&org, &id, failed(2, 404)).await;
    installation.make_deliveries_due().await;
    installation
        .delivery(&org, &id, |found| found["state"] == "delivered")
        .await;
    let seen = receiver.received(3).await;
    assert!(
        seen.iter()
            .all(|seen| seen.id() == id && seen.is_signed_with(&secret))
    );
    assert!(seen.iter().all(|other| other.body == seen[0].body));
    assert_eq!(
        installation.get(&org, &path).await["failing_since"],
        Value::Null
    );
}

#[tokio::test]
async fn delivery_fails_after_the_last_attempt() {
    let installation = Installation::start().await;
    let org = installation.new_org("own").await;
    let receiver = Receiver::start(&[Reply::Status(500), Reply::Status(500)]).await;
    let (webhook, _) = installation.webhook(&org, receiver.webhook(EVENTS)).await;
    let id = installation.send_test_event(&org, &webhook).await;
    installation
        .delivery(&org, &id, |found| found["last_status"] == 500)
        .await;
    // As after seven more failures.
    let last = "UPDATE webhook_deliveries SET attempts = 8, next_attempt_at = now()";
    installation.database.execute(last).await.unwrap();
    let failed = installation
        .delivery(&org, &id, |found| found["state"] == "failed")
        .await;
    assert_eq!(
        (&failed["attempts"], &failed["next_attempt_at"]),
        (&json!(9), &Value::Null),
        "{failed}"
    );
    let (status, again) = installation
        .post_empty(&org, &format!("/v1/webhook-deliveries/{id}/redeliver"))
        .await;
    assert_eq!(
        (status, &again["id"], &again["attempts"]),
        (201, &json!(id), &json!(0)),
        "{again}"
    );
    installation
        .delivery(&org, &id, |found| found["state"] == "delivered")
        .await;
    let seen = receiver.received(3).await;
    assert_eq!((seen.len(), seen[2].id()), (3, id));
}

#[tokio::test]
async fn status_410_disables_the_webhook() {
    let installation = Installation::start().await;
    let org = installation.new_org("own").await;
    let receiver = Receiver::start(&[Reply::Status(410)]).await;
    let (webhook, _) = installation.webhook(&org, receiver.webhook(EVENTS)).await;
    let mut watch = installation.bus.watch_live(org.id(), None).await.unwrap();
    let id = installation.send_test_event(&org, &webhook).await;
    let path = format!("/v1/webhooks/{webhook}");
    let disabled = async || {
        Some(installation.get(&org, &path).await).filter(|found| found["enabled"] == false)
    };
    let shown = eventually_some("the webhook is disabled", disabled).await;
    assert_eq!(shown["disabled_reason"], "gone");
    let changed = async {
        loop {
            // What happened just before the watch may be a gap.
            if let Seen::Event(event) = watch.next().await {
                return event;
            }
        }
    };
    let changed = tokio::time::timeout(Duration::from_secs(5), changed).await;
    let changed = changed.unwrap();
    assert_eq!(&*changed.name, "webhook.changed");
    assert!(changed.data.contains(&webhook), "{changed:?}");
    let failed = installation
        .delivery(&org, &id, |found| found["state"] == "failed")
        .await;
    assert_eq!(
        (&failed["attempts"], &failed["last_status"]),
        (&json!(1), &json!(410))
    );
    let (status, refused) = installation
        .post_empty(&org, &format!("/v1/webhook-deliveries/{id}/redeliver"))
        .await;
    assert_eq!(
        (status, &refused["type"]),
        (409, &json!("/problems/webhook_disabled"))
    );
    // Enabling it resets its failures.
    let (status, shown) = installation
        .change_webhook(&org, &webhook, json!({"enabled": true}))
        .await;
    assert_eq!(
        (status, &shown["disabled_reason"], &shown["failing_since"]),
        (200, &Value::Null, &Value::Null)
    );
}

#[tokio::test]
async fn webhook_that_fails_for_days_is_disabled() {
    let installation = Installation::start().await;
    let org = installation.new_org("own").await;
    let receiver = Receiver::start(&[Reply::Status(500), Reply::Status(500)]).await;
    let (webhook, _) = installation.webhook(&org, receiver.webhook(EVENTS)).await;
    let id = installation.send_test_event(&org, &webhook).await;
    installation
        .delivery(&org, &id, |found| found["last_status"] == 500)
        .await;
    let path = format!("/v1/webhooks/{webhook}");
    assert_eq!(installation.get(&org, &path).await["enabled"], true);
    let since = "UPDATE webhooks SET failing_since = now() - interval '73 hours'";
    installation.database.execute(since).await.unwrap();
    installation.make_deliveries_due().await;
    let disabled = async || {
        Some(installation.get(&org, &path).await).filter(|found| found["enabled"] == false)
    };
    let shown = eventually_some("the webhook is disabled", disabled).await;
    assert_eq!(shown["disabled_reason"], "failing");
    assert_eq!(
        installation.delivery(&org, &id, |_| true).await["state"],
        "failed"
    );
}

#[tokio::test]
async fn redirect_is_not_followed() {
    let installation = Installation::start().await;
    let org = installation.new_org("own").await;
    let elsewhere = Receiver::start(&[]).await;
    let receiver = Receiver::start(&[Reply::Redirect(elsewhere.url.clone())]).await;
    let (webhook, _) = installation.webhook(&org, receiver.webhook(EVENTS)).await;
    let id = installation.send_test_event(&org, &webhook).await;
    let failed = installation
        .delivery(&org, &id, |found| found["last_error"] == "redirected")
        .await;
    assert_eq!(failed["last_status"], 307);
    assert!(elsewhere.seen().is_empty());
}

#[tokio::test]
async fn silent_webhook_does_not_delay_others() {
    let installation = Installation::idle(Some(OPERATOR_KEY)).await;
    let mut config = config();
    config.webhooks_senders = 64;
    installation.start_workers_with(&config);
    let org = installation.new_org("own").await;
    let silent = Receiver::start(&vec![Reply::Silence; 20]).await;
    let good = Receiver::start(&[]).await;
    let (slow, _) = installation.webhook(&org, silent.webhook(EVENTS)).await;
    let (fast, _) = installation.webhook(&org, good.webhook(EVENTS)).await;
    for _ in 0..20 {
        installation.send_test_event(&org, &slow).await;
    }
    // All attempts that the silent webhook may have are in flight for longer than the test timeout.
    silent.received(4).await;
    for _ in 0..20 {
        installation.send_test_event(&org, &fast).await;
    }
    good.received(20).await;
}

#[tokio::test]
async fn another_process_delivers_after_a_crash() {
    let installation = Installation::idle(Some(OPERATOR_KEY)).await;
    let org = installation.new_org("own").await;
    let receiver = Receiver::start(&[Reply::Silence]).await;
    let (webhook, secret) = installation.webhook(&org, receiver.webhook(EVENTS)).await;
    let first = installation.start_another();
    let id = installation.send_test_event(&org, &webhook).await;
    receiver.received(1).await;
    // The process dies during the attempt.
    first.stop();
    assert!(first.finished(Duration::from_secs(10)).await);
    let left = installation.delivery(&org, &id, |_| true).await;
    assert_eq!(
        (&left["state"], &left["attempts"]),
        (&json!("pending"), &json!(1))
    );
    installation.start_another();
    // The dead process has the lease until it expires; then another one claims the delivery.
    installation.make_deliveries_due().await;
    let done = installation
        .delivery(&org, &id, |found| found["state"] == "delivered")
        .await;
    assert_eq!(done["attempts"], 2);
    let seen = receiver.received(2).await;
    assert!(
        seen.iter()
            .all(|seen| seen.id() == id && seen.is_signed_with(&secret))
    );
}

#[tokio::test]
async fn host_with_internal_address_is_rejected() {
    let installation = Installation::idle(Some(OPERATOR_KEY)).await;
    let org = installation.new_org("own").await;
    let (secured, certificate) = Receiver::start_tls().await;
    let plain = Receiver::start(&[]).await;
    // Created while the network was allowed, and sent afterwards. The name does not
    // show its address.
    let (by_name, _) = installation.webhook(&org, secured.webhook(EVENTS)).await;
    let (by_address, _) = installation.webhook(&org, plain.webhook(EVENTS)).await;
    let mut strict = config();
    strict.webhooks.webhooks_allow = Vec::new();
    strict.webhooks.webhooks_ca = Some(authorities(&certificate));
    installation.start_workers_with(&strict);
    for webhook in [by_name, by_address] {
        let id = installation.send_test_event(&org, &webhook).await;
        let refused = installation
            .delivery(&org, &id, |found| found["last_error"].is_string())
            .await;
        assert_eq!(
            (&refused["last_error"], &refused["last_status"]),
            (&json!("address_refused"), &Value::Null)
        );
    }
    assert!(secured.seen().is_empty() && plain.seen().is_empty());
}

#[tokio::test]
async fn untrusted_certificate_is_rejected() {
    let installation = Installation::idle(Some(OPERATOR_KEY)).await;
    let org = installation.new_org("own").await;
    let (receiver, certificate) = Receiver::start_tls().await;
    let (webhook, secret) = installation.webhook(&org, receiver.webhook(EVENTS)).await;
    let doubting = installation.start_another();
    let id = installation.send_test_event(&org, &webhook).await;
    let refused = installation
        .delivery(&org, &id, |found| found["last_error"].is_string())
        .await;
    assert_eq!(refused["last_error"], "tls", "{refused}");
    assert!(receiver.seen().is_empty());
    doubting.stop();
    assert!(doubting.finished(Duration::from_secs(10)).await);

    let mut trusting = config();
    trusting.webhooks.webhooks_ca = Some(authorities(&certificate));
    installation.start_workers_with(&trusting);
    installation.make_deliveries_due().await;
    installation
        .delivery(&org, &id, |found| found["state"] == "delivered")
        .await;
    assert!(receiver.received(1).await[0].is_signed_with(&secret));
}

fn authorities(certificate: &str) -> Authorities {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(certificate.as_bytes()).unwrap();
    Authorities::read(file.path().to_str().unwrap()).unwrap()
}

/// Adds this number of deliveries, due tomorrow.
async fn fill(installation: &Installation, webhook: &str, count: u32) {
    let fill = format!(
        "INSERT INTO webhook_deliveries (id, org_id, webhook_id, event, event_id, payload, next_attempt_at) \
         SELECT uuid_by_time(), org_id, id, 'device.event', gen_random_uuid(), '{{}}', now() + interval '1 day' \
         FROM webhooks, generate_series(1, {count}) WHERE id = '{}'",
        webhook.trim_start_matches("whk_")
    );
    installation.database.execute(&fill).await.unwrap();
}

#[tokio::test]
async fn requested_delivery_is_limited_too() {
    let installation = Installation::idle(Some(OPERATOR_KEY)).await;
    let org = installation.new_org("own").await;
    let document = json!({"url": "https://example.com/", "events": ["device.event"]});
    let (webhook, _) = installation.webhook(&org, document).await;
    let failed = installation.send_test_event(&org, &webhook).await;
    let end =
        "UPDATE webhook_deliveries SET state = 'failed', next_attempt_at = NULL, ended_at = now()";
    installation.database.execute(end).await.unwrap();
    fill(&installation, &webhook, 4_999).await;
    installation.send_test_event(&org, &webhook).await;
    let again = format!("/v1/webhook-deliveries/{failed}/redeliver");
    for path in [format!("/v1/webhooks/{webhook}/test"), again.clone()] {
        let (status, refused) = installation.post_empty(&org, &path).await;
        assert_eq!(
            (status, &refused["type"]),
            (409, &json!("/problems/too_many_deliveries")),
            "{path}"
        );
    }
    let figures = installation.store.webhook_stats().await.unwrap();
    assert_eq!(figures.pending, 5_000);
    let one = "DELETE FROM webhook_deliveries WHERE event = 'webhook.test' AND state = 'pending'";
    installation.database.execute(one).await.unwrap();
    let (status, waits) = installation.post_empty(&org, &again).await;
    assert_eq!((status, &waits["state"]), (201, &json!("pending")));
}

#[tokio::test]
async fn event_over_the_limit_is_dropped_and_counted() {
    let installation = Installation::idle(Some(OPERATOR_KEY)).await;
    let org = installation.new_org("own").await;
    let document = json!({"url": "https://example.com/", "events": ["device.event"]});
    let (full, _) = installation.webhook(&org, document.clone()).await;
    let (free, _) = installation.webhook(&org, document).await;
    fill(&installation, &full, 4_999).await;
    let insert = format!(
        "SELECT tell_webhooks(array_agg('{}'::uuid), array_agg('device.event'::text), array_agg(gen_random_uuid()), \
         array_agg(NULL::text), array_agg('{{}}'::text), array_agg(now())) FROM generate_series(1, 3)",
        org.id.trim_start_matches("org_")
    );
    installation.database.execute(&insert).await.unwrap();
    let dropped = async |id: &str| {
        installation.get(&org, &format!("/v1/webhooks/{id}")).await["dropped"].clone()
    };
    assert_eq!(
        (dropped(&full).await, dropped(&free).await),
        (json!(2), json!(0))
    );
    let figures = installation.store.webhook_stats().await.unwrap();
    assert_eq!((figures.pending, figures.dropped), (5_003, 2));
    // Old deliveries are deleted, and the oldest ones over the limit; pending ones remain.
    let purged = installation
        .store
        .purge_deliveries(Duration::from_secs(3600), 1)
        .await
        .unwrap();
    assert_eq!(purged, 0);
    let (status, _) = installation
        .change_webhook(&org, &full, json!({"enabled": false}))
        .await;
    assert_eq!(status, 200);
    let purged = installation
        .store
        .purge_deliveries(Duration::from_secs(3600), 10)
        .await
        .unwrap();
    assert_eq!(purged, 4_990);
    let purged = installation
        .store
        .purge_deliveries(Duration::ZERO, 10)
        .await
        .unwrap();
    assert_eq!(purged, 13);
    let (_, left) = installation
        .send(
            Method::GET,
            &format!("/v1/webhooks/{full}/deliveries"),
            Some(&org.key),
            None,
        )
        .await;
    assert_eq!(left["deliveries"], json!([]));
}

#[tokio::test]
async fn slow_webhooks_of_one_org_do_not_delay_another() {
    let installation = Installation::idle(Some(OPERATOR_KEY)).await;
    let (slow, other) = (
        installation.new_org("slow").await,
        installation.new_org("other").await,
    );
    let silent = Receiver::start(&vec![Reply::Silence; 500]).await;
    for _ in 0..16 {
        installation.webhook(&slow, silent.webhook(EVENTS)).await;
    }
    let backlog = "INSERT INTO webhook_deliveries (id, org_id, webhook_id, event, event_id, payload, next_attempt_at)
         SELECT gen_random_uuid(), org_id, id, 'call.finished', gen_random_uuid(), '{}', now() - interval '1 hour'
         FROM webhooks, generate_series(1, 30)";
    installation.database.execute(backlog).await.unwrap();
    installation.start_workers();
    // A quarter of the eight senders.
    silent.received(2).await;

    let receiver = Receiver::start(&[]).await;
    let (webhook, _) = installation.webhook(&other, receiver.webhook(EVENTS)).await;
    for _ in 0..5 {
        let id = installation.send_test_event(&other, &webhook).await;
        installation
            .delivery(&other, &id, |found| found["state"] == "delivered")
            .await;
    }
    // Each attempt lasts until its timeout.
    assert!(silent.seen().len() <= 4, "{}", silent.seen().len());
}

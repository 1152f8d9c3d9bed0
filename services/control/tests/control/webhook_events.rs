//! The events of webhooks: completed calls, devices that connect and disconnect, and device events.

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use switchboard_bus::{DisconnectReason, Epoch};
use switchboard_protocol::{
    id::{CallId, DeviceKey},
    outcome::{Delivered, Outcome},
};
use switchboard_store::{
    CallAttempt, CallDispatch, CallEnd, DeviceEvent, DeviceEventKind, Expiry, NewStoredCall,
    Overdue, QueueLimits,
};
use switchboard_test_support::eventually::eventually_some;
use uuid::Uuid;

use crate::{
    installation::{Installation, OPERATOR_KEY, Org},
    receiver::Receiver,
};

const CALL_TIMEOUT: Duration = Duration::from_secs(10);

fn device_key(org: &Org) -> DeviceKey {
    DeviceKey {
        org: org.id(),
        device: "toy-1".parse().unwrap(),
    }
}

impl Installation {
    async fn insert_call(&self, device: &DeviceKey, work: CallDispatch<'_>) -> CallId {
        let id = CallId::from_uuid(Uuid::now_v7());
        let call = NewStoredCall {
            id,
            device,
            service: "唱歌",
            timeout: Duration::from_secs(30),
            work,
        };
        self.store
            .insert_call(call, None, CALL_TIMEOUT)
            .await
            .unwrap();
        id
    }

    async fn complete_call(&self, device: &DeviceKey, outcome: Outcome, answer: &[u8]) -> CallId {
        let id = self.insert_call(device, CallDispatch::Async).await;
        let end = CallEnd {
            outcome,
            delivered: Delivered::Yes,
            answer: answer.to_vec(),
            result_valid: true,
        };
        let attempt = CallAttempt {
            org: device.org,
            call: id,
            number: 1,
        };
        assert!(self.store.end_call(attempt, &end).await.unwrap());
        id
    }

    /// The pending deliveries of a webhook, oldest first.
    async fn pending(&self, org: &Org, webhook: &str) -> Vec<String> {
        let path = format!("/v1/webhooks/{webhook}/deliveries?state=pending");
        let found = self.get(org, &path).await;
        let found = found["deliveries"].as_array().unwrap();
        let names = found.iter().rev();
        names
            .map(|one| one["event"].as_str().unwrap().to_owned())
            .collect()
    }
}

fn event(device: &DeviceKey, epoch: u64, at_s: i64, kind: DeviceEventKind) -> DeviceEvent {
    DeviceEvent {
        device: device.clone(),
        epoch,
        at: chrono::DateTime::from_timestamp(1_700_000_000 + at_s, 0).unwrap(),
        kind,
    }
}

#[tokio::test]
async fn completed_call_is_delivered_with_its_result() {
    let installation = Installation::start().await;
    let (org, other) = (
        installation.new_org("own").await,
        installation.new_org("other").await,
    );
    let receiver = Receiver::start(&[]).await;
    installation
        .webhook(&org, receiver.webhook(&["call.finished", "device.online"]))
        .await;
    let foreign = Receiver::start(&[]).await;
    installation
        .webhook(&other, foreign.webhook(&["call.finished"]))
        .await;
    let deaf = Receiver::start(&[]).await;
    installation
        .webhook(&org, deaf.webhook(&["device.online"]))
        .await;

    let answer = r#"{"success": true, "data": {"歌":  [1.0, "\u0000"]}}"#;
    let id = installation
        .complete_call(&device_key(&org), Outcome::Succeeded, answer.as_bytes())
        .await;
    let seen = receiver.received(1).await.remove(0);
    assert!(
        seen.body.contains(answer),
        "the device's own bytes: {}",
        seen.body
    );
    let body = seen.json();
    assert_eq!(body["type"], "call.finished");
    let data = &body["data"];
    assert_eq!(
        (&data["call_id"], &data["device_id"]),
        (&json!(id), &json!("toy-1"))
    );
    assert_eq!(
        (&data["service"], &data["mode"]),
        (&json!("唱歌"), &json!("async"))
    );
    assert_eq!(
        (&data["outcome"], &data["delivered"]),
        (&json!("succeeded"), &json!("yes"))
    );
    let time =
        |value: &Value| chrono::DateTime::parse_from_rfc3339(value.as_str().unwrap()).unwrap();
    assert!(time(&data["created_at"]) <= time(&data["ended_at"]));
    assert_eq!(body["timestamp"], data["ended_at"]);
    assert!(foreign.seen().is_empty() && deaf.seen().is_empty());
}

impl Receiver {
    /// Checks the delivery with this number.
    async fn ended(&self, count: usize, outcome: &str, expect: Value) {
        let body = self.received(count).await.remove(count - 1).json();
        assert_eq!(body["data"]["outcome"], outcome, "{body}");
        for (name, value) in expect.as_object().unwrap() {
            assert_eq!(&body["data"][name], value, "{name}: {body}");
        }
    }
}

#[tokio::test]
async fn every_outcome_of_a_call_is_delivered() {
    let installation = Installation::start().await;
    let org = installation.new_org("own").await;
    let receiver = Receiver::start(&[]).await;
    installation
        .webhook(&org, receiver.webhook(&["call.finished"]))
        .await;
    let device = device_key(&org);
    let check = async |count, outcome: &str, expect| receiver.ended(count, outcome, expect).await;
    let refusal = br#"{"detail": "The device did not answer.", "errors": []}"#;
    installation
        .complete_call(&device, Outcome::TimedOut, refusal)
        .await;
    check(
        1,
        "timed_out",
        json!({"detail": "The device did not answer.", "errors": null, "result": null}),
    )
    .await;

    // A large result is left out; an invalid result does not suppress the event.
    let long = format!(
        "{{\"success\": true, \"data\": \"{}\"}}",
        "x".repeat(16_384)
    );
    let id = installation
        .complete_call(&device, Outcome::Succeeded, long.as_bytes())
        .await;
    check(
        2,
        "succeeded",
        json!({"result": null, "result_at": format!("/v1/calls/{id}")}),
    )
    .await;
    let id = installation
        .complete_call(&device, Outcome::Succeeded, b"\xff")
        .await;
    check(
        3,
        "succeeded",
        json!({"result": null, "result_at": format!("/v1/calls/{id}")}),
    )
    .await;
}

#[tokio::test]
async fn unsent_call_is_delivered_when_it_ends() {
    let installation = Installation::start().await;
    let org = installation.new_org("own").await;
    let receiver = Receiver::start(&[]).await;
    installation
        .webhook(&org, receiver.webhook(&["call.finished"]))
        .await;
    let device = device_key(&org);
    let check = async |count, outcome: &str, expect| receiver.ended(count, outcome, expect).await;
    let limits = QueueLimits {
        per_device: 10,
        per_org: 10,
    };
    let queued = |expiry| CallDispatch::Queued {
        params: b"{}",
        input: b"",
        expiry,
        limits,
    };
    let end = |outcome| CallEnd {
        outcome,
        delivered: Delivered::No,
        result_valid: true,
        answer: b"{\"detail\": \"x\"}".to_vec(),
    };
    let id = installation
        .insert_call(&device, queued(Expiry::In(CALL_TIMEOUT)))
        .await;
    let withdrawn = end(Outcome::Cancelled);
    installation
        .store
        .cancel_call(org.id(), id, &withdrawn)
        .await
        .unwrap();
    check(
        1,
        "cancelled",
        json!({"call_id": id, "mode": "queued", "delivered": "no"}),
    )
    .await;
    let id = installation
        .insert_call(&device, queued(Expiry::In(Duration::ZERO)))
        .await;
    let (expired, lost) = (end(Outcome::Expired), end(Outcome::Lost));
    let settled = installation
        .store
        .end_overdue_calls(Overdue::All, &expired, &lost);
    assert_eq!(settled.await.unwrap().all(), 1);
    check(2, "expired", json!({"call_id": id})).await;
}

#[tokio::test]
async fn connected_and_disconnected_device_is_delivered() {
    let installation = Installation::start().await;
    let org = installation.new_org("own").await;
    let receiver = Receiver::start(&[]).await;
    let (webhook, _) = installation
        .webhook(&org, receiver.webhook(&["device.online", "device.offline"]))
        .await;
    let device = device_key(&org);
    let epoch = installation.bus.claim(&device).await.unwrap().epoch;
    let online = receiver.received(1).await.remove(0).json();
    assert_eq!(
        (&online["type"], &online["data"]),
        (&json!("device.online"), &json!({"device_id": "toy-1"}))
    );

    // The disconnection is delivered after a grace period.
    installation
        .bus
        .release(device.clone(), epoch, None, DisconnectReason::IdleTimeout);
    // The connection is pending until the previous attempt is stored.
    let waits = async || {
        let waiting = installation.pending(&org, &webhook).await;
        (waiting == ["device.offline"]).then_some(())
    };
    eventually_some("only the disconnection is pending", waits).await;
    assert_eq!(receiver.seen().len(), 1);
    installation.make_deliveries_due().await;
    let offline = receiver.received(2).await.remove(1).json();
    let gone = json!({"device_id": "toy-1", "reason": "idle_timeout"});
    assert_eq!(
        (&offline["type"], &offline["data"]),
        (&json!("device.offline"), &gone)
    );
}

/// A device and two webhooks: one for connections and disconnections, one for disconnections only.
struct PresenceFixture {
    installation: Installation,
    org: Org,
    both: String,
    going: String,
}

impl PresenceFixture {
    async fn start() -> Self {
        let installation = Installation::idle(Some(OPERATOR_KEY)).await;
        let org = installation.new_org("own").await;
        let document = |events: &[&str]| json!({"url": "https://example.com/", "events": events});
        let both = document(&["device.online", "device.offline"]);
        let (both, _) = installation.webhook(&org, both).await;
        let going = document(&["device.offline"]);
        let (going, _) = installation.webhook(&org, going).await;
        Self {
            installation,
            org,
            both,
            going,
        }
    }

    fn connected(&self, epoch: u64, at_s: i64) -> DeviceEvent {
        event(
            &device_key(&self.org),
            epoch,
            at_s,
            DeviceEventKind::Connected,
        )
    }

    fn disconnected(&self, epoch: u64, at_s: i64) -> DeviceEvent {
        let left = DeviceEventKind::Disconnected { reason: "closed" };
        event(&device_key(&self.org), epoch, at_s, left)
    }

    async fn pending(&self) -> (Vec<String>, Vec<String>) {
        let of = async |webhook: &str| self.installation.pending(&self.org, webhook).await;
        (of(self.both.as_str()).await, of(self.going.as_str()).await)
    }

    /// Records a batch, and checks the pending deliveries of both webhooks.
    async fn check(&self, events: &[DeviceEvent], both: &[&str], going: &[&str]) {
        // A batch without an acknowledgement is recorded again.
        for _ in 0..2 {
            self.installation
                .store
                .record_device_events(events)
                .await
                .unwrap();
            let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
            assert_eq!(
                self.pending().await,
                (names(both), names(going)),
                "{events:?}"
            );
        }
    }
}

#[tokio::test]
async fn flapping_and_repeated_events_are_not_delivered() {
    let fixture = PresenceFixture::start().await;
    let (on, off) = (
        |epoch, at_s| fixture.connected(epoch, at_s),
        |epoch, at_s| fixture.disconnected(epoch, at_s),
    );
    // It connects and disconnects in one batch.
    fixture.check(&[on(1, 0), off(1, 1)], &[], &[]).await;
    fixture.check(&[on(2, 2)], &["device.online"], &[]).await;
    // A takeover in either order has no event.
    fixture.check(&[on(3, 3)], &["device.online"], &[]).await;
    fixture.check(&[off(2, 4)], &["device.online"], &[]).await;
    let deliver = "UPDATE webhook_deliveries SET state = 'delivered', payload = NULL, next_attempt_at = NULL, ended_at = now()";
    fixture
        .installation
        .database
        .execute(deliver)
        .await
        .unwrap();
    fixture
        .check(&[off(3, 5)], &["device.offline"], &["device.offline"])
        .await;
    fixture.check(&[on(4, 6)], &[], &[]).await;
    for round in 0..50_u32 {
        let (epoch, at_s) = (4 + u64::from(round), 10 + 2 * i64::from(round));
        let store = &fixture.installation.store;
        store
            .record_device_events(&[off(epoch, at_s)])
            .await
            .unwrap();
        store
            .record_device_events(&[on(epoch + 1, at_s + 1)])
            .await
            .unwrap();
    }
    assert_eq!(fixture.pending().await, (Vec::new(), Vec::new()));
}

#[tokio::test]
async fn delivery_in_flight_is_not_withdrawn() {
    let fixture = PresenceFixture::start().await;
    fixture
        .check(&[fixture.connected(1, 0)], &["device.online"], &[])
        .await;
    let deliver = "UPDATE webhook_deliveries SET state = 'delivered', payload = NULL, next_attempt_at = NULL, ended_at = now()";
    fixture
        .installation
        .database
        .execute(deliver)
        .await
        .unwrap();
    fixture
        .check(
            &[fixture.disconnected(1, 1)],
            &["device.offline"],
            &["device.offline"],
        )
        .await;
    let begun = "UPDATE webhook_deliveries SET attempts = 1 WHERE state = 'pending'";
    fixture.installation.database.execute(begun).await.unwrap();
    let back = fixture.connected(2, 2);
    fixture
        .check(
            &[back],
            &["device.offline", "device.online"],
            &["device.offline"],
        )
        .await;
    let gone = fixture.disconnected(2, 3);
    fixture
        .check(
            &[gone],
            &["device.offline"],
            &["device.offline", "device.offline"],
        )
        .await;
}

#[tokio::test]
async fn device_event_is_delivered_once() {
    let installation = Installation::start().await;
    let org = installation.new_org("own").await;
    let receiver = Receiver::start(&[]).await;
    let (webhook, _) = installation
        .webhook(&org, receiver.webhook(&["device.event"]))
        .await;
    let device = device_key(&org);
    let json =
        Bytes::from_static(r#"{"name": "按钮", "data": {"pressed":  1.0}, "more": 1}"#.as_bytes());
    installation
        .bus
        .record_custom_event(device.clone(), Epoch(1), json);
    let seen = receiver.received(1).await.remove(0);
    assert!(
        seen.body.contains(r#"{"pressed":  1.0}"#),
        "as sent: {}",
        seen.body
    );
    let body = seen.json();
    let data = json!({"device_id": "toy-1", "name": "按钮", "data": {"pressed": 1.0}});
    assert_eq!(
        (&body["type"], &body["data"]),
        (&json!("device.event"), &data)
    );

    let emitted = |name: &str| DeviceEventKind::Custom {
        id: Uuid::from_u128(7),
        name: name.to_owned(),
        data: None,
    };
    for _ in 0..2 {
        installation
            .store
            .record_device_events(&[event(&device, 1, 0, emitted("bell"))])
            .await
            .unwrap();
    }
    let body = receiver.received(2).await.remove(1).json();
    assert_eq!(
        body["data"],
        json!({"device_id": "toy-1", "name": "bell", "data": null})
    );
    let path = format!("/v1/webhooks/{webhook}/deliveries");
    assert_eq!(
        installation.get(&org, &path).await["deliveries"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
    // An event does not register the device.
    assert!(
        installation
            .store
            .device(org.id(), &device.device)
            .await
            .unwrap()
            .is_none()
    );
}

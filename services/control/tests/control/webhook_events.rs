//! What webhooks are told: calls that end, devices that come and go, and what devices say.

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use switchboard_bus::{Epoch, LeftReason};
use switchboard_protocol::{
    id::{CallId, DeviceKey},
    outcome::{Delivered, Outcome},
};
use switchboard_store::{
    CallEnd, CallWork, DeviceFact, DeviceNews, Expiry, NewKeptCall, QueueLimits,
};
use uuid::Uuid;

use crate::{
    installation::{Installation, OPERATOR_KEY, Org},
    receiver::Receiver,
};

const PATIENCE: Duration = Duration::from_secs(10);

fn toy(org: &Org) -> DeviceKey {
    DeviceKey {
        org: org.id(),
        device: "toy-1".parse().unwrap(),
    }
}

impl Installation {
    async fn keep(&self, device: &DeviceKey, work: CallWork<'_>) -> CallId {
        let id = CallId::from_uuid(Uuid::now_v7());
        let call = NewKeptCall {
            id,
            device,
            service: "唱歌",
            timeout: Duration::from_secs(30),
            work,
        };
        self.store.keep_call(call, None, PATIENCE).await.unwrap();
        id
    }

    async fn end(&self, device: &DeviceKey, outcome: Outcome, answer: &[u8]) -> CallId {
        let id = self.keep(device, CallWork::Async).await;
        let end = CallEnd {
            outcome,
            delivered: Delivered::Yes,
            answer: answer.to_vec(),
        };
        assert!(self.store.end_call(id, 1, &end).await.unwrap());
        id
    }

    /// What waits for a webhook, the oldest first.
    async fn waiting(&self, org: &Org, webhook: &str) -> Vec<String> {
        let path = format!("/v1/webhooks/{webhook}/deliveries?state=pending");
        let found = self.get(org, &path).await;
        let found = found["deliveries"].as_array().unwrap();
        let names = found.iter().rev();
        names
            .map(|one| one["event"].as_str().unwrap().to_owned())
            .collect()
    }
}

fn fact(device: &DeviceKey, epoch: u64, at_s: i64, news: DeviceNews) -> DeviceFact {
    DeviceFact {
        device: device.clone(),
        epoch,
        at: chrono::DateTime::from_timestamp(1_700_000_000 + at_s, 0).unwrap(),
        news,
    }
}

#[tokio::test]
async fn a_call_that_ends_is_told_with_its_result() {
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
        .end(&toy(&org), Outcome::Succeeded, answer.as_bytes())
        .await;
    let seen = receiver.received(1).await.remove(0);
    assert!(
        seen.body.contains(answer),
        "the device's own bytes: {}",
        seen.body
    );
    let told = seen.json();
    assert_eq!(told["type"], "call.finished");
    let data = &told["data"];
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
    assert_eq!(told["timestamp"], data["ended_at"]);
    assert!(foreign.seen().is_empty() && deaf.seen().is_empty());
}

impl Receiver {
    /// The call's end that came as this one in the row.
    async fn ended(&self, count: usize, outcome: &str, expect: Value) {
        let told = self.received(count).await.remove(count - 1).json();
        assert_eq!(told["data"]["outcome"], outcome, "{told}");
        for (name, value) in expect.as_object().unwrap() {
            assert_eq!(&told["data"][name], value, "{name}: {told}");
        }
    }
}

#[tokio::test]
async fn ends_of_every_kind_are_told() {
    let installation = Installation::start().await;
    let org = installation.new_org("own").await;
    let receiver = Receiver::start(&[]).await;
    installation
        .webhook(&org, receiver.webhook(&["call.finished"]))
        .await;
    let device = toy(&org);
    let check = async |count, outcome: &str, expect| receiver.ended(count, outcome, expect).await;
    let refusal = br#"{"detail": "The device did not answer.", "errors": []}"#;
    installation.end(&device, Outcome::TimedOut, refusal).await;
    check(
        1,
        "timed_out",
        json!({"detail": "The device did not answer.", "errors": null, "result": null}),
    )
    .await;

    // What is too long is read elsewhere; what cannot be read is no reason to lose the end.
    let long = format!(
        "{{\"success\": true, \"data\": \"{}\"}}",
        "x".repeat(16_384)
    );
    let id = installation
        .end(&device, Outcome::Succeeded, long.as_bytes())
        .await;
    check(
        2,
        "succeeded",
        json!({"result": null, "result_at": format!("/v1/calls/{id}")}),
    )
    .await;
    let id = installation.end(&device, Outcome::Succeeded, b"\xff").await;
    check(
        3,
        "succeeded",
        json!({"result": null, "result_at": format!("/v1/calls/{id}")}),
    )
    .await;
}

#[tokio::test]
async fn ends_of_calls_that_were_never_sent_are_told() {
    let installation = Installation::start().await;
    let org = installation.new_org("own").await;
    let receiver = Receiver::start(&[]).await;
    installation
        .webhook(&org, receiver.webhook(&["call.finished"]))
        .await;
    let device = toy(&org);
    let check = async |count, outcome: &str, expect| receiver.ended(count, outcome, expect).await;
    let limits = QueueLimits {
        per_device: 10,
        per_org: 10,
    };
    let queued = |expiry| CallWork::Queued {
        params: b"{}",
        input: b"",
        expiry,
        limits,
    };
    let end = |outcome| CallEnd {
        outcome,
        delivered: Delivered::No,
        answer: b"{\"detail\": \"x\"}".to_vec(),
    };
    let id = installation
        .keep(&device, queued(Expiry::In(PATIENCE)))
        .await;
    let withdrawn = end(Outcome::Cancelled);
    installation
        .store
        .withdraw_call(org.id(), id, &withdrawn)
        .await
        .unwrap();
    check(
        1,
        "cancelled",
        json!({"call_id": id, "mode": "queued", "delivered": "no"}),
    )
    .await;
    let id = installation
        .keep(&device, queued(Expiry::In(Duration::ZERO)))
        .await;
    let (expired, lost) = (end(Outcome::Expired), end(Outcome::Lost));
    let settled = installation.store.settle_calls(None, &expired, &lost);
    assert_eq!(settled.await.unwrap().all(), 1);
    check(2, "expired", json!({"call_id": id})).await;
}

#[tokio::test]
async fn a_device_that_comes_and_stays_away_is_told() {
    let installation = Installation::start().await;
    let org = installation.new_org("own").await;
    let receiver = Receiver::start(&[]).await;
    let (webhook, _) = installation
        .webhook(&org, receiver.webhook(&["device.online", "device.offline"]))
        .await;
    let device = toy(&org);
    let epoch = installation.bus.claim(&device).await.unwrap();
    let online = receiver.received(1).await.remove(0).json();
    assert_eq!(
        (&online["type"], &online["data"]),
        (&json!("device.online"), &json!({"device_id": "toy-1"}))
    );

    // It leaves: that is told when it has been away for a while.
    installation
        .bus
        .release(device.clone(), epoch, None, LeftReason::IdleTimeout);
    // Its coming waits too until the receiver's answer is written down.
    let waits = async || {
        let waiting = installation.waiting(&org, &webhook).await;
        (waiting == ["device.offline"]).then_some(())
    };
    crate::installation::eventually("its going waits alone", waits).await;
    assert_eq!(receiver.seen().len(), 1);
    installation.hasten().await;
    let offline = receiver.received(2).await.remove(1).json();
    let gone = json!({"device_id": "toy-1", "reason": "idle_timeout"});
    assert_eq!(
        (&offline["type"], &offline["data"]),
        (&json!("device.offline"), &gone)
    );
}

/// Two webhooks, one that hears of comings and goings and one of goings only, and a device.
struct Watch {
    installation: Installation,
    org: Org,
    both: String,
    going: String,
}

impl Watch {
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

    fn on(&self, epoch: u64, at_s: i64) -> DeviceFact {
        fact(&toy(&self.org), epoch, at_s, DeviceNews::Connected)
    }

    fn off(&self, epoch: u64, at_s: i64) -> DeviceFact {
        let left = DeviceNews::Left { reason: "closed" };
        fact(&toy(&self.org), epoch, at_s, left)
    }

    async fn waiting(&self) -> (Vec<String>, Vec<String>) {
        let of = async |webhook: &str| self.installation.waiting(&self.org, webhook).await;
        (of(self.both.as_str()).await, of(self.going.as_str()).await)
    }

    /// Records a batch, and what waits for either webhook then.
    async fn check(&self, facts: &[DeviceFact], both: &[&str], going: &[&str]) {
        // A batch that is not acknowledged comes again.
        for _ in 0..2 {
            self.installation.store.record(facts).await.unwrap();
            let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
            assert_eq!(
                self.waiting().await,
                (names(both), names(going)),
                "{facts:?}"
            );
        }
    }
}

#[tokio::test]
async fn flapping_is_no_news_and_facts_that_come_twice_are_told_once() {
    let watch = Watch::start().await;
    let (on, off) = (
        |epoch, at_s| watch.on(epoch, at_s),
        |epoch, at_s| watch.off(epoch, at_s),
    );
    // In one batch it came and went.
    watch.check(&[on(1, 0), off(1, 1)], &[], &[]).await;
    watch.check(&[on(2, 2)], &["device.online"], &[]).await;
    // A takeover, in either order, changes nothing.
    watch.check(&[on(3, 3)], &["device.online"], &[]).await;
    watch.check(&[off(2, 4)], &["device.online"], &[]).await;
    let told = "UPDATE webhook_deliveries SET state = 'delivered', payload = NULL, next_attempt_at = NULL, ended_at = now()";
    watch.installation.database.execute(told).await.unwrap();
    watch
        .check(&[off(3, 5)], &["device.offline"], &["device.offline"])
        .await;
    watch.check(&[on(4, 6)], &[], &[]).await;
    for round in 0..50_u32 {
        let (epoch, at_s) = (4 + u64::from(round), 10 + 2 * i64::from(round));
        let store = &watch.installation.store;
        store.record(&[off(epoch, at_s)]).await.unwrap();
        store.record(&[on(epoch + 1, at_s + 1)]).await.unwrap();
    }
    assert_eq!(watch.waiting().await, (Vec::new(), Vec::new()));
}

#[tokio::test]
async fn what_somebody_has_begun_to_tell_is_not_taken_back() {
    let watch = Watch::start().await;
    watch
        .check(&[watch.on(1, 0)], &["device.online"], &[])
        .await;
    let told = "UPDATE webhook_deliveries SET state = 'delivered', payload = NULL, next_attempt_at = NULL, ended_at = now()";
    watch.installation.database.execute(told).await.unwrap();
    watch
        .check(&[watch.off(1, 1)], &["device.offline"], &["device.offline"])
        .await;
    let begun = "UPDATE webhook_deliveries SET attempts = 1 WHERE state = 'pending'";
    watch.installation.database.execute(begun).await.unwrap();
    let back = watch.on(2, 2);
    watch
        .check(
            &[back],
            &["device.offline", "device.online"],
            &["device.offline"],
        )
        .await;
    let gone = watch.off(2, 3);
    watch
        .check(
            &[gone],
            &["device.offline"],
            &["device.offline", "device.offline"],
        )
        .await;
}

#[tokio::test]
async fn what_a_device_says_unasked_is_told_once() {
    let installation = Installation::start().await;
    let org = installation.new_org("own").await;
    let receiver = Receiver::start(&[]).await;
    let (webhook, _) = installation
        .webhook(&org, receiver.webhook(&["device.event"]))
        .await;
    let device = toy(&org);
    let event =
        Bytes::from_static(r#"{"name": "按钮", "data": {"pressed":  1.0}, "more": 1}"#.as_bytes());
    installation.bus.tell_event(device.clone(), Epoch(1), event);
    let seen = receiver.received(1).await.remove(0);
    assert!(
        seen.body.contains(r#"{"pressed":  1.0}"#),
        "as sent: {}",
        seen.body
    );
    let told = seen.json();
    let data = json!({"device_id": "toy-1", "name": "按钮", "data": {"pressed": 1.0}});
    assert_eq!(
        (&told["type"], &told["data"]),
        (&json!("device.event"), &data)
    );

    let said = |name: &str| DeviceNews::Event {
        id: Uuid::from_u128(7),
        name: name.to_owned(),
        data: None,
    };
    for _ in 0..2 {
        installation
            .store
            .record(&[fact(&device, 1, 0, said("bell"))])
            .await
            .unwrap();
    }
    let told = receiver.received(2).await.remove(1).json();
    assert_eq!(
        told["data"],
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
    // An event is no sign that the device is known.
    assert!(
        installation
            .store
            .device(org.id(), &device.device)
            .await
            .unwrap()
            .is_none()
    );
}

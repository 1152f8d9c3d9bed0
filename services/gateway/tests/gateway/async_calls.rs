//! Asynchronous and queued calls: stored, delivered at most once, and in order.

use std::time::{Duration, Instant};

use bytes::Bytes;
use reqwest::Method;
use serde_json::{Value, json};
use switchboard_bus::{Answer, BusConfig, LocalHub};
use switchboard_protocol::token::Scope;
use switchboard_test_support::eventually::eventually_true;

use crate::test_gateway::{Response, TEST_TIMEOUT, TestGateway, send};

const QUICK: &[&str] = &["--queue-sweep-ms", "50"];

/// Sends a call that must be accepted.
async fn accept(gateway: &TestGateway, device: &str, body: Value) -> Response {
    let answer = gateway.call(device, &body.to_string()).await;
    assert_eq!(answer.status, 202, "{}", answer.text);
    let id = answer.json["call_id"].as_str().unwrap();
    assert_eq!(answer.headers["location"], format!("/v1/calls/{id}"));
    answer
}

fn queued(service: &str) -> Value {
    json!({"service": service, "mode": "queued", "params": {"a": 1}})
}

async fn wait_for_end(gateway: &TestGateway, accepted: &Response) -> Value {
    let ended = gateway.wait_for_end(&accepted.json["call_id"]).await;
    assert_eq!(
        (ended.status, &ended.json["state"]),
        (200, &json!("ended")),
        "{}",
        ended.text
    );
    ended.json
}

fn outcome(call: &Value) -> (&str, &str) {
    let text = |field: &str| call[field].as_str().unwrap_or_default();
    (text("outcome"), text("delivered"))
}

#[tokio::test]
async fn async_call_is_accepted_and_its_end_is_stored() {
    let gateway = TestGateway::start().await;
    gateway.connect("toy-1").await;
    let body = r#"{"service":"echo","mode":"async","params":{"text":"你好","n":1.50e0}}"#;
    let accepted = gateway.call("toy-1", body).await;
    assert_eq!(
        (accepted.status, &accepted.json["mode"]),
        (202, &json!("async"))
    );
    assert_eq!(
        outcome(&accepted.json),
        ("", "unknown"),
        "nothing is claimed"
    );
    let ended = gateway.wait_for_end(&accepted.json["call_id"]).await;
    let result = r#""result":{ "success" : true, "data":{"text":"你好","n":1.50e0}}"#;
    assert!(ended.text.contains(result), "{}", ended.text);
    gateway.assert_metric("switchboard_gateway_calls_total{outcome=\"succeeded\"} 1");
}

#[tokio::test]
async fn async_call_ends_like_a_sync_call() {
    let gateway = TestGateway::start().await;
    gateway.connect("toy-1").await;
    gateway.store_device("asleep").await;
    let check = async |(device, service): (&str, &str), expected: (&str, &str)| {
        let body = json!({"service": service, "mode": "async", "timeout_ms": 300});
        let accepted = accept(&gateway, device, body).await;
        let ended = wait_for_end(&gateway, &accepted).await;
        assert_eq!(outcome(&ended), expected, "{ended}");
        let result = matches!(expected.0, "succeeded" | "failed");
        assert_eq!(ended["result"].is_object(), result, "{ended}");
        assert_eq!(ended["detail"].is_string(), !result, "{ended}");
        ended
    };
    check(("toy-1", "echo"), ("succeeded", "yes")).await;
    check(("toy-1", "fail"), ("failed", "yes")).await;
    let invalid = check(("toy-1", "invalid"), ("invalid", "no")).await;
    assert_eq!(
        invalid["errors"],
        json!([{"pointer": "/a", "detail": "no"}])
    );
    check(("toy-1", "unknown"), ("unknown_service", "no")).await;
    check(("nobody", "echo"), ("unknown_device", "no")).await;
    check(("asleep", "echo"), ("offline", "no")).await;
    check(("toy-1", "overloaded"), ("overloaded", "no")).await;
    check(("toy-1", "lost"), ("lost", "unknown")).await;
    check(("toy-1", "silent"), ("timed_out", "unknown")).await;
    let list = gateway.get("/v1/calls?device_id=toy-1&state=ended").await;
    assert_eq!(list.json["calls"].as_array().unwrap().len(), 7);
}

#[tokio::test]
async fn i18_queued_calls_are_delivered_in_order() {
    let gateway = TestGateway::start().await;
    let mut ids = Vec::new();
    for _ in 0..30 {
        let accepted = accept(&gateway, "toy-1", queued("echo")).await;
        assert_eq!(accepted.json["state"], "queued");
        assert_eq!(outcome(&accepted.json), ("", "no"));
        ids.push(accepted.json["call_id"].clone());
    }
    // The queues of two devices are independent.
    let other = accept(&gateway, "toy-2", queued("echo")).await;
    gateway.connect("toy-1").await;
    for id in &ids {
        let ended = gateway.wait_for_end(id).await;
        assert_eq!(outcome(&ended.json), ("succeeded", "yes"), "{}", ended.text);
        assert_eq!(ended.json["result"]["data"], json!({"a": 1}));
    }
    assert_eq!(json!(*gateway.edge.received.lock()), json!(ids));
    let waits = gateway.get("/v1/calls?state=queued").await;
    assert_eq!(waits.json["calls"][0]["call_id"], other.json["call_id"]);

    // The device is already connected.
    let accepted = accept(&gateway, "toy-1", queued("echo")).await;
    assert_eq!(
        outcome(&wait_for_end(&gateway, &accepted).await),
        ("succeeded", "yes")
    );
}

#[tokio::test]
async fn i18_refused_call_keeps_its_place() {
    let gateway = TestGateway::with_flags(QUICK).await;
    *gateway.edge.refusals.lock() = 2;
    gateway.connect("toy-1").await;
    let first = accept(&gateway, "toy-1", queued("busy")).await;
    let second = accept(&gateway, "toy-1", queued("echo")).await;
    assert_eq!(
        outcome(&wait_for_end(&gateway, &second).await),
        ("succeeded", "yes")
    );
    assert_eq!(
        outcome(&wait_for_end(&gateway, &first).await),
        ("succeeded", "yes")
    );
    let order = json!([first.json["call_id"], second.json["call_id"]]);
    assert_eq!(json!(*gateway.edge.received.lock()), order);
}

#[tokio::test]
async fn queue_that_waits_for_a_slot_is_sent_when_one_is_free() {
    // One slot for each organisation. The sweep comes later than the end of the test.
    let flags = ["--kept-calls-under-way", "4", "--queue-sweep-ms", "600000"];
    let gateway = TestGateway::with_flags(&flags).await;
    let mut accepted = Vec::new();
    for device in 0..20 {
        let call = queued(if device == 0 { "silent" } else { "echo" });
        accepted.push(accept(&gateway, &format!("toy-{device:02}"), call).await);
    }
    gateway.connect("toy-00").await;
    let (_, reply) = gateway.edge.next_unanswered().await;
    for device in 1..20 {
        gateway.connect(&format!("toy-{device:02}")).await;
    }
    let refused = "switchboard_budget_refused_total{budget=\"queued_calls\",scope=\"share\"} 0\n";
    eventually_true("a queue is refused", || {
        !gateway.metrics().contains(refused)
    })
    .await;
    // A call for a connected device waits for the slot as well.
    accepted.push(accept(&gateway, "toy-07", queued("echo")).await);
    let answer = Answer::result(true, Bytes::from_static(b"{\"success\":true}"));
    gateway.edge.bus.answer(&reply, answer);
    for accepted in &accepted {
        let ended = wait_for_end(&gateway, accepted).await;
        assert_eq!(outcome(&ended), ("succeeded", "yes"));
    }
}

#[tokio::test]
async fn undeliverable_call_does_not_block_its_queue() {
    let gateway = TestGateway::start().await;
    gateway.connect("toy-1").await;
    let check = async |service: &str, expected| {
        let accepted = accept(&gateway, "toy-1", queued(service)).await;
        assert_eq!(outcome(&wait_for_end(&gateway, &accepted).await), expected);
    };
    check("invalid", ("invalid", "no")).await;
    check("unknown", ("unknown_service", "no")).await;
    check("lost", ("lost", "unknown")).await;
    check("fail", ("failed", "yes")).await;
    check("echo", ("succeeded", "yes")).await;
}

#[tokio::test]
async fn expired_call_is_not_sent() {
    let gateway = TestGateway::start().await;
    let mut body = queued("echo");
    body["expires_in_ms"] = json!(400);
    let accepted = accept(&gateway, "toy-1", body).await;
    assert!(accepted.json["expires_at"].is_string());
    let started = Instant::now();
    let ended = wait_for_end(&gateway, &accepted).await;
    assert_eq!(outcome(&ended), ("expired", "no"), "{ended}");
    assert!(
        started.elapsed() < Duration::from_secs(2),
        "not by the sweep"
    );
    gateway.assert_metric("switchboard_gateway_calls_total{outcome=\"expired\"} 1");
    gateway.connect("toy-1").await;
    let next = accept(&gateway, "toy-1", queued("echo")).await;
    assert_eq!(
        outcome(&wait_for_end(&gateway, &next).await),
        ("succeeded", "yes")
    );
    assert_eq!(gateway.edge.received.lock().len(), 1);
}

#[tokio::test]
async fn only_queued_call_can_be_cancelled() {
    let gateway = TestGateway::start().await;
    let cancel = async |accepted: &Response| {
        let path = format!("/v1/calls/{}", accepted.json["call_id"].as_str().unwrap());
        send(gateway.request(Method::DELETE, &path)).await
    };
    let accepted = accept(&gateway, "toy-1", queued("echo")).await;
    for _ in 0..2 {
        assert_eq!(cancel(&accepted).await.status, 204, "also when repeated");
    }
    assert_eq!(
        outcome(&wait_for_end(&gateway, &accepted).await),
        ("cancelled", "no")
    );
    gateway.connect("toy-1").await;
    let mut silent = queued("silent");
    silent["timeout_ms"] = json!(700);
    let sent = accept(&gateway, "toy-1", silent).await;
    eventually_true("the call is delivered", || {
        !gateway.edge.received.lock().is_empty()
    })
    .await;
    let refused = cancel(&sent).await;
    let expected = (409, &json!("/problems/call_sent"));
    assert_eq!((refused.status, &refused.json["type"]), expected);
    assert_eq!(
        outcome(&wait_for_end(&gateway, &sent).await),
        ("timed_out", "unknown")
    );
    let refused = cancel(&sent).await;
    let expected = (409, &json!("/problems/call_ended"));
    assert_eq!((refused.status, &refused.json["type"]), expected);
    assert_eq!(gateway.edge.received.lock().len(), 1);
}

#[tokio::test]
async fn queues_are_limited_per_device_and_org() {
    let limits = [
        "--queued-calls-per-device",
        "2",
        "--queued-calls-per-org",
        "3",
    ];
    let gateway = TestGateway::with_flags(&limits).await;
    let check = async |device: &str, full: bool| {
        let answer = gateway.call(device, &queued("echo").to_string()).await;
        assert_eq!(
            answer.status,
            if full { 429 } else { 202 },
            "{}",
            answer.text
        );
        if full {
            assert_eq!(answer.json["type"], "/problems/queue_full");
            assert_eq!(answer.json["delivered"], "no");
            assert!(answer.headers.contains_key("retry-after"));
        }
    };
    check("toy-1", false).await;
    check("toy-1", false).await;
    check("toy-1", true).await;
    check("toy-2", false).await;
    check("toy-3", true).await;
    gateway.assert_metric("switchboard_gateway_shed_total{reason=\"device_queue\"} 1");
    gateway.assert_metric("switchboard_gateway_shed_total{reason=\"org_queue\"} 1");
    gateway.assert_metric("switchboard_gateway_shed_total{reason=\"kept_calls\"} 0");
}

#[tokio::test]
async fn async_calls_in_flight_are_limited() {
    let gateway = TestGateway::with_flags(&["--kept-calls-under-way", "1"]).await;
    gateway.connect("toy-1").await;
    let silent = json!({"service": "silent", "mode": "async", "timeout_ms": 500});
    let accepted = accept(&gateway, "toy-1", silent.clone()).await;
    let refused = gateway.call("toy-1", &silent.to_string()).await;
    assert_eq!(
        (refused.status, &refused.json["delivered"]),
        (429, &json!("no"))
    );
    assert_eq!(
        outcome(&wait_for_end(&gateway, &accepted).await),
        ("timed_out", "unknown")
    );
    assert_eq!(gateway.edge.received.lock().len(), 1);
}

#[tokio::test]
async fn async_calls_of_an_org_leave_room_for_others() {
    let gateway = TestGateway::with_flags(&["--kept-calls-under-way", "8"]).await;
    gateway.connect("toy-1").await;
    let silent = json!({"service": "silent", "mode": "async", "timeout_ms": 5_000}).to_string();
    for expected in [202, 202, 429] {
        let answer = gateway.call("toy-1", &silent).await;
        assert_eq!(answer.status, expected, "{}", answer.text);
        if expected == 429 {
            assert_eq!(answer.json["budget"], "async_calls");
            assert_eq!(answer.headers["retry-after"], "1");
        }
    }
    let key = gateway.foreign_key().await;
    let request = gateway.request_as(&key, Method::POST, "/v1/devices/other/calls");
    let answer = send(request.json(&json!({"service": "echo", "mode": "async"}))).await;
    assert_eq!(answer.status, 202, "{}", answer.text);
    gateway.assert_metric(
        "switchboard_budget_refused_total{budget=\"async_calls\",scope=\"share\"} 1",
    );
}

#[tokio::test]
async fn large_params_of_an_org_leave_room_for_others() {
    let gateway = TestGateway::with_flags(QUICK).await;
    gateway.connect("toy-1").await;
    let large = |service: &str, mode: &str| {
        let params = json!({"text": "x".repeat(250_000)});
        json!({"service": service, "mode": mode, "timeout_ms": 300_000, "params": params})
    };
    let silent = large("silent", "async").to_string();
    let mut accepted = 0;
    let refused = loop {
        let answer = gateway.call("toy-1", &silent).await;
        if answer.status != 202 {
            break answer;
        }
        accepted += 1;
    };
    assert_eq!((accepted, refused.status), (67, 429), "{}", refused.text);
    assert_eq!(refused.json["budget"], "call_params");
    assert_eq!(refused.json["delivered"], "no");
    let key = gateway.foreign_key().await;
    let request = gateway.request_as(&key, Method::POST, "/v1/devices/other/calls");
    let answer = send(request.json(&large("echo", "async"))).await;
    assert_eq!(answer.status, 202, "{}", answer.text);
    let small = json!({"service": "echo", "mode": "async"});
    accept(&gateway, "toy-1", small).await;

    // A queued call of this size waits until others have ended.
    let refused = "switchboard_budget_refused_total{budget=\"call_params\",scope=\"share\"}";
    gateway.assert_metric(&format!("{refused} 1"));
    let queued = accept(&gateway, "toy-1", large("echo", "queued")).await;
    eventually_true("the queued call is refused", || {
        !gateway.metrics().contains(&format!("{refused} 1\n"))
    })
    .await;
    for _ in 0..accepted {
        let (_, reply) = gateway.edge.next_unanswered().await;
        let answer = Answer::result(true, Bytes::from_static(b"{\"success\":true}"));
        gateway.edge.bus.answer(&reply, answer);
    }
    let ended = wait_for_end(&gateway, &queued).await;
    assert_eq!(outcome(&ended), ("succeeded", "yes"));
}

#[tokio::test]
async fn i2_repeated_async_request_makes_one_call() {
    let gateway = TestGateway::start().await;
    let ask = async |key: &str, body: &Value| {
        let request = gateway.call_request("toy-1", &body.to_string());
        send(request.header("idempotency-key", key)).await
    };
    let body = queued("echo");
    let first = ask("k", &body).await;
    let second = ask("k", &body).await;
    assert_eq!(second.status, 202, "{}", second.text);
    assert_eq!(second.headers["idempotency-replayed"], "true");
    assert_eq!(second.json["call_id"], first.json["call_id"]);
    let other = json!({"service": "echo", "mode": "async", "params": {"a": 1}});
    let reused = ask("k", &other).await;
    assert_eq!(reused.json["type"], "/problems/idempotency_key_reused");

    gateway.connect("toy-1").await;
    wait_for_end(&gateway, &first).await;
    let third = ask("k", &body).await;
    assert_eq!(third.json["outcome"], "succeeded", "what is known by now");
    assert_eq!(gateway.edge.received.lock().len(), 1);

    // An undelivered call releases its key.
    let failed = json!({"service": "overloaded", "mode": "async"});
    let first = ask("k-2", &failed).await;
    assert_eq!(
        outcome(&wait_for_end(&gateway, &first).await),
        ("overloaded", "no")
    );
    let second = ask("k-2", &failed).await;
    assert_ne!(second.json["call_id"], first.json["call_id"]);
}

#[tokio::test]
async fn i4_stored_call_is_hidden_from_other_orgs() {
    let hub = LocalHub::default();
    let ours = TestGateway::with_bus(&hub, BusConfig::local(&hub, "gateway-1")).await;
    let theirs = ours.foreign_key().await;
    let accepted = accept(&ours, "toy-1", queued("echo")).await;
    let path = format!("/v1/calls/{}", accepted.json["call_id"].as_str().unwrap());
    for (method, path) in [
        (Method::GET, path.clone()),
        (Method::GET, format!("{path}?wait_ms=2000")),
        (Method::DELETE, path.clone()),
    ] {
        let started = Instant::now();
        let refused = send(ours.request_as(&theirs, method, &path)).await;
        assert_eq!(refused.status, 404, "{}", refused.text);
        assert!(started.elapsed() < Duration::from_secs(1), "known at once");
    }
    let list = send(ours.request_as(&theirs, Method::GET, "/v1/calls")).await;
    assert_eq!(list.json["calls"], json!([]));
    assert_eq!(ours.get(&path).await.json["state"], "queued");
    let reader = ours.add_key(&[Scope::Read]).await;
    let refused = send(ours.request_as(&reader, Method::GET, &path)).await;
    assert_eq!(refused.status, 403);
}

#[tokio::test]
async fn call_list_is_paginated() {
    let gateway = TestGateway::start().await;
    let mut ids = Vec::new();
    for device in ["toy-1", "toy-2", "toy-1", "toy-1"] {
        let accepted = accept(&gateway, device, queued("echo")).await;
        ids.push(accepted.json["call_id"].clone());
    }
    let listed = |page: &Response| -> Vec<Value> {
        let calls = page.json["calls"].as_array().unwrap().iter();
        calls.map(|call| call["call_id"].clone()).collect()
    };
    let first = gateway.get("/v1/calls?device_id=toy-1&limit=2").await;
    assert_eq!(listed(&first), [ids[0].clone(), ids[2].clone()]);
    let cursor = first.json["next_cursor"].as_str().unwrap();
    let path = format!("/v1/calls?device_id=toy-1&limit=2&cursor={cursor}");
    let second = gateway.get(&path).await;
    assert_eq!(listed(&second), [ids[3].clone()]);
    assert_eq!(second.json["next_cursor"], Value::Null);
    let newest = gateway.get("/v1/calls?order=desc&limit=3").await;
    let expected = [ids[3].clone(), ids[2].clone(), ids[1].clone()];
    assert_eq!(listed(&newest), expected);
    let newest = newest.json["next_cursor"].as_str().unwrap();
    let oldest = gateway
        .get(&format!("/v1/calls?order=desc&cursor={newest}"))
        .await;
    assert_eq!(listed(&oldest), [ids[0].clone()]);
    assert_eq!(oldest.json["next_cursor"], Value::Null);
    let other_order = format!("cursor={newest}");
    for (query, part) in [
        ("limit=0", "limit"),
        (&*other_order, "`cursor` does not belong to this list"),
        ("order=up", "order"),
        ("limit=201", "limit"),
        ("state=lost", "queued, sent or ended"),
        ("cursor=x", "`cursor` does not belong to this list"),
        ("device_id=a%20b", "device id"),
        ("page=2", "`page` is not known"),
    ] {
        let refused = gateway.get(&format!("/v1/calls?{query}")).await;
        assert_eq!(
            (refused.status, refused.text.contains(part)),
            (400, true),
            "{}",
            refused.text
        );
    }
    let id = ids[0].as_str().unwrap();
    let refused = gateway.get(&format!("/v1/calls/{id}?wait_ms=60001")).await;
    assert_eq!(refused.status, 400);
    let unknown = "/v1/calls/call_0000000000000000000000000000abcd";
    assert_eq!(gateway.get(unknown).await.status, 404);
}

#[tokio::test]
async fn async_call_is_refused_without_the_database() {
    let gateway = TestGateway::start().await;
    gateway.connect("toy-1").await;
    assert_eq!(gateway.get("/v1/devices").await.status, 200);
    let check = async |mode: &str| {
        let body = json!({"service": "echo", "mode": mode}).to_string();
        let refused = gateway.call("toy-1", &body).await;
        let expected = (503, &json!("/problems/store_unavailable"));
        assert_eq!(
            (refused.status, &refused.json["type"]),
            expected,
            "{}",
            refused.text
        );
        assert_eq!(refused.json["delivered"], "no");
        assert!(refused.json.get("outcome").is_none());
    };
    let lock = gateway.database.lock("calls").await.unwrap();
    check("async").await;
    check("queued").await;
    lock.release().await.unwrap();
    gateway.database.set_unavailable(true).await.unwrap();
    check("async").await;
    check("queued").await;
    gateway.database.set_unavailable(false).await.unwrap();
    let settled = async {
        loop {
            let list = gateway.get("/v1/calls").await;
            if list.status == 200 {
                return list;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let list = tokio::time::timeout(TEST_TIMEOUT, settled).await.unwrap();
    assert_eq!(list.json["calls"], json!([]));
    assert!(gateway.edge.received.lock().is_empty());
}

#[tokio::test]
async fn waiter_survives_a_database_outage() {
    let gateway = TestGateway::with_flags(QUICK).await;
    let accepted = accept(&gateway, "toy-1", queued("echo")).await;
    let path = format!(
        "/v1/calls/{}?wait_ms=9000",
        accepted.json["call_id"].as_str().unwrap()
    );
    let outage = async {
        gateway.database.set_unavailable(true).await.unwrap();
        gateway.connect("toy-1").await;
        gateway.database.set_unavailable(false).await.unwrap();
    };
    let polling = async {
        loop {
            let answer = gateway.get(&path).await;
            if answer.status != 503 {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let (answer, ()) = tokio::join!(polling, outage);
    assert_eq!(
        outcome(&answer.json),
        ("succeeded", "yes"),
        "{}",
        answer.text
    );
    assert_eq!(gateway.edge.received.lock().len(), 1);
}

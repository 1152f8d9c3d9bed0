//! Calls whose callers do not wait: kept, delivered when their device is there, at most once, in order.

use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};
use switchboard_bus::{BusConfig, LocalHub};
use switchboard_protocol::access::Scope;

use crate::stage::{LONG, Response, Stage, send, until};

const QUICK: &[&str] = &["--queue-sweep-ms", "50"];

/// Asks for a call that nobody waits for.
async fn keep(stage: &Stage, device: &str, body: Value) -> Response {
    let answer = stage.call(device, &body.to_string()).await;
    assert_eq!(answer.status, 202, "{}", answer.text);
    let id = answer.json["call_id"].as_str().unwrap();
    assert_eq!(answer.headers["location"], format!("/v1/calls/{id}"));
    answer
}

fn queued(service: &str) -> Value {
    json!({"service": service, "mode": "queued", "params": {"a": 1}})
}

async fn end_of(stage: &Stage, kept: &Response) -> Value {
    let ended = stage.end_of(&kept.json["call_id"]).await;
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
async fn an_async_call_is_answered_at_once_and_its_end_is_kept() {
    let stage = Stage::set().await;
    stage.connect("toy-1").await;
    let body = r#"{"service":"echo","mode":"async","params":{"text":"你好","n":1.50e0}}"#;
    let kept = stage.call("toy-1", body).await;
    assert_eq!((kept.status, &kept.json["mode"]), (202, &json!("async")));
    assert_eq!(outcome(&kept.json), ("", "unknown"), "nothing is claimed");
    let ended = stage.end_of(&kept.json["call_id"]).await;
    let result = r#""result":{ "success" : true, "data":{"text":"你好","n":1.50e0}}"#;
    assert!(ended.text.contains(result), "{}", ended.text);
    stage.must_show("switchboard_gateway_calls_total{outcome=\"succeeded\"} 1");
}

#[tokio::test]
async fn every_end_of_an_async_call_says_what_it_would_say_to_a_caller_that_waits() {
    let stage = Stage::set().await;
    stage.connect("toy-1").await;
    stage.remember("asleep").await;
    let check = async |(device, service): (&str, &str), expected: (&str, &str)| {
        let body = json!({"service": service, "mode": "async", "timeout_ms": 300});
        let kept = keep(&stage, device, body).await;
        let ended = end_of(&stage, &kept).await;
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
    let list = stage.get("/v1/calls?device_id=toy-1&state=ended").await;
    assert_eq!(list.json["calls"].as_array().unwrap().len(), 7);
}

#[tokio::test]
async fn i18_queued_calls_wait_for_their_device_and_reach_it_in_order() {
    let stage = Stage::set().await;
    let mut ids = Vec::new();
    for _ in 0..30 {
        let kept = keep(&stage, "toy-1", queued("echo")).await;
        assert_eq!(kept.json["state"], "queued");
        assert_eq!(outcome(&kept.json), ("", "no"));
        ids.push(kept.json["call_id"].clone());
    }
    // Another device's queue goes its own way.
    let other = keep(&stage, "toy-2", queued("echo")).await;
    stage.connect("toy-1").await;
    for id in &ids {
        let ended = stage.end_of(id).await;
        assert_eq!(outcome(&ended.json), ("succeeded", "yes"), "{}", ended.text);
        assert_eq!(ended.json["result"]["data"], json!({"a": 1}));
    }
    assert_eq!(json!(*stage.edge.seen.lock()), json!(ids));
    let waits = stage.get("/v1/calls?state=queued").await;
    assert_eq!(waits.json["calls"][0]["call_id"], other.json["call_id"]);

    // The device is there already.
    let kept = keep(&stage, "toy-1", queued("echo")).await;
    assert_eq!(outcome(&end_of(&stage, &kept).await), ("succeeded", "yes"));
}

#[tokio::test]
async fn i18_a_call_that_its_device_refuses_for_now_keeps_its_place() {
    let stage = Stage::with_flags(QUICK).await;
    *stage.edge.refusals.lock() = 2;
    stage.connect("toy-1").await;
    let first = keep(&stage, "toy-1", queued("busy")).await;
    let second = keep(&stage, "toy-1", queued("echo")).await;
    assert_eq!(
        outcome(&end_of(&stage, &second).await),
        ("succeeded", "yes")
    );
    assert_eq!(outcome(&end_of(&stage, &first).await), ("succeeded", "yes"));
    let order = json!([first.json["call_id"], second.json["call_id"]]);
    assert_eq!(json!(*stage.edge.seen.lock()), order);
}

#[tokio::test]
async fn a_call_that_can_never_be_delivered_does_not_hold_up_the_others() {
    let stage = Stage::set().await;
    stage.connect("toy-1").await;
    let check = async |service: &str, expected| {
        let kept = keep(&stage, "toy-1", queued(service)).await;
        assert_eq!(outcome(&end_of(&stage, &kept).await), expected);
    };
    check("invalid", ("invalid", "no")).await;
    check("unknown", ("unknown_service", "no")).await;
    check("lost", ("lost", "unknown")).await;
    check("fail", ("failed", "yes")).await;
    check("echo", ("succeeded", "yes")).await;
}

#[tokio::test]
async fn a_call_that_waited_too_long_is_never_sent() {
    let stage = Stage::set().await;
    let mut body = queued("echo");
    body["expires_in_ms"] = json!(400);
    let kept = keep(&stage, "toy-1", body).await;
    assert!(kept.json["expires_at"].is_string());
    let started = Instant::now();
    let ended = end_of(&stage, &kept).await;
    assert_eq!(outcome(&ended), ("expired", "no"), "{ended}");
    assert!(
        started.elapsed() < Duration::from_secs(2),
        "not by the sweep"
    );
    stage.must_show("switchboard_gateway_calls_total{outcome=\"expired\"} 1");
    stage.connect("toy-1").await;
    let next = keep(&stage, "toy-1", queued("echo")).await;
    assert_eq!(outcome(&end_of(&stage, &next).await), ("succeeded", "yes"));
    assert_eq!(stage.edge.seen.lock().len(), 1);
}

#[tokio::test]
async fn only_what_still_waits_is_taken_back() {
    let stage = Stage::set().await;
    let withdraw = async |kept: &Response| {
        let path = format!("/v1/calls/{}", kept.json["call_id"].as_str().unwrap());
        send(stage.request(Method::DELETE, &path)).await
    };
    let kept = keep(&stage, "toy-1", queued("echo")).await;
    for _ in 0..2 {
        assert_eq!(withdraw(&kept).await.status, 204, "also when repeated");
    }
    assert_eq!(outcome(&end_of(&stage, &kept).await), ("cancelled", "no"));
    stage.connect("toy-1").await;
    let mut silent = queued("silent");
    silent["timeout_ms"] = json!(700);
    let sent = keep(&stage, "toy-1", silent).await;
    until(|| !stage.edge.seen.lock().is_empty()).await;
    let refused = withdraw(&sent).await;
    let expected = (409, &json!("/problems/call_sent"));
    assert_eq!((refused.status, &refused.json["type"]), expected);
    assert_eq!(
        outcome(&end_of(&stage, &sent).await),
        ("timed_out", "unknown")
    );
    let refused = withdraw(&sent).await;
    let expected = (409, &json!("/problems/call_ended"));
    assert_eq!((refused.status, &refused.json["type"]), expected);
    assert_eq!(stage.edge.seen.lock().len(), 1);
}

#[tokio::test]
async fn so_many_wait_and_no_more() {
    let limits = [
        "--queued-calls-per-device",
        "2",
        "--queued-calls-per-org",
        "3",
    ];
    let stage = Stage::with_flags(&limits).await;
    let check = async |device: &str, full: bool| {
        let answer = stage.call(device, &queued("echo").to_string()).await;
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
    stage.must_show("switchboard_gateway_shed_total{reason=\"device_queue\"} 1");
    stage.must_show("switchboard_gateway_shed_total{reason=\"org_queue\"} 1");
    stage.must_show("switchboard_gateway_shed_total{reason=\"kept_calls\"} 0");
}

#[tokio::test]
async fn as_many_go_on_without_a_caller_as_the_node_may_make() {
    let stage = Stage::with_flags(&["--kept-calls-under-way", "1"]).await;
    stage.connect("toy-1").await;
    let silent = json!({"service": "silent", "mode": "async", "timeout_ms": 500});
    let kept = keep(&stage, "toy-1", silent.clone()).await;
    let refused = stage.call("toy-1", &silent.to_string()).await;
    assert_eq!(
        (refused.status, &refused.json["delivered"]),
        (429, &json!("no"))
    );
    assert_eq!(
        outcome(&end_of(&stage, &kept).await),
        ("timed_out", "unknown")
    );
    assert_eq!(stage.edge.seen.lock().len(), 1);
}

#[tokio::test]
async fn i2_a_repeated_request_for_a_kept_call_makes_no_second_one() {
    let stage = Stage::set().await;
    let ask = async |key: &str, body: &Value| {
        let request = stage.calling("toy-1", &body.to_string());
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

    stage.connect("toy-1").await;
    end_of(&stage, &first).await;
    let third = ask("k", &body).await;
    assert_eq!(third.json["outcome"], "succeeded", "what is known by now");
    assert_eq!(stage.edge.seen.lock().len(), 1);

    // What was not delivered may be tried again.
    let failed = json!({"service": "overloaded", "mode": "async"});
    let first = ask("k-2", &failed).await;
    assert_eq!(outcome(&end_of(&stage, &first).await), ("overloaded", "no"));
    let second = ask("k-2", &failed).await;
    assert_ne!(second.json["call_id"], first.json["call_id"]);
}

#[tokio::test]
async fn i4_a_kept_call_is_its_organisations_alone() {
    let hub = LocalHub::default();
    let ours = Stage::with_bus(&hub, BusConfig::local(&hub, "gateway-1")).await;
    let theirs = ours.another_org().await;
    let kept = keep(&ours, "toy-1", queued("echo")).await;
    let path = format!("/v1/calls/{}", kept.json["call_id"].as_str().unwrap());
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
async fn lists_come_in_pages() {
    let stage = Stage::set().await;
    let mut ids = Vec::new();
    for device in ["toy-1", "toy-2", "toy-1", "toy-1"] {
        let kept = keep(&stage, device, queued("echo")).await;
        ids.push(kept.json["call_id"].clone());
    }
    let listed = |page: &Response| -> Vec<Value> {
        let calls = page.json["calls"].as_array().unwrap().iter();
        calls.map(|call| call["call_id"].clone()).collect()
    };
    let first = stage.get("/v1/calls?device_id=toy-1&limit=2").await;
    assert_eq!(listed(&first), [ids[0].clone(), ids[2].clone()]);
    let cursor = first.json["next_cursor"].as_str().unwrap();
    let path = format!("/v1/calls?device_id=toy-1&limit=2&cursor={cursor}");
    let second = stage.get(&path).await;
    assert_eq!(listed(&second), [ids[3].clone()]);
    assert_eq!(second.json["next_cursor"], Value::Null);
    for (query, part) in [
        ("limit=0", "limit"),
        ("limit=201", "limit"),
        ("state=lost", "queued, sent or ended"),
        ("cursor=x", "`cursor` is not one of this list"),
        ("device_id=a%20b", "device id"),
        ("page=2", "unknown field"),
    ] {
        let refused = stage.get(&format!("/v1/calls?{query}")).await;
        assert_eq!(
            (refused.status, refused.text.contains(part)),
            (400, true),
            "{}",
            refused.text
        );
    }
    let id = ids[0].as_str().unwrap();
    let refused = stage.get(&format!("/v1/calls/{id}?wait_ms=60001")).await;
    assert_eq!(refused.status, 400);
    let unknown = "/v1/calls/call_0000000000000000000000000000abcd";
    assert_eq!(stage.get(unknown).await.status, 404);
}

#[tokio::test]
async fn without_the_record_nothing_is_kept_and_nothing_is_sent() {
    let stage = Stage::set().await;
    stage.connect("toy-1").await;
    assert_eq!(stage.get("/v1/devices").await.status, 200);
    let check = async |mode: &str| {
        let body = json!({"service": "echo", "mode": mode}).to_string();
        let refused = stage.call("toy-1", &body).await;
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
    let lock = stage.database.lock("calls").await.unwrap();
    check("async").await;
    check("queued").await;
    lock.release().await.unwrap();
    stage.database.set_away(true).await.unwrap();
    check("async").await;
    check("queued").await;
    stage.database.set_away(false).await.unwrap();
    let settled = async {
        loop {
            let list = stage.get("/v1/calls").await;
            if list.status == 200 {
                return list;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let list = tokio::time::timeout(LONG, settled).await.unwrap();
    assert_eq!(list.json["calls"], json!([]));
    assert!(stage.edge.seen.lock().is_empty());
}

#[tokio::test]
async fn whoever_waits_hears_of_the_end_although_the_record_was_away_meanwhile() {
    let stage = Stage::with_flags(QUICK).await;
    let kept = keep(&stage, "toy-1", queued("echo")).await;
    let path = format!(
        "/v1/calls/{}?wait_ms=9000",
        kept.json["call_id"].as_str().unwrap()
    );
    let meanwhile = async {
        stage.database.set_away(true).await.unwrap();
        stage.connect("toy-1").await;
        stage.database.set_away(false).await.unwrap();
    };
    let waiting = async {
        loop {
            let answer = stage.get(&path).await;
            if answer.status != 503 {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let (answer, ()) = tokio::join!(waiting, meanwhile);
    assert_eq!(
        outcome(&answer.json),
        ("succeeded", "yes"),
        "{}",
        answer.text
    );
    assert_eq!(stage.edge.seen.lock().len(), 1);
}

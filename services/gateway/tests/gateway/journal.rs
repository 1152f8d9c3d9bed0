//! The journal of synchronous calls.

use futures_util::{StreamExt as _, stream};
use reqwest::Method;
use serde_json::{Value, json};
use switchboard_bus::QuotaLimits;
use switchboard_protocol::token::Scope;
use switchboard_store::{OrgSettings, OrgWrite};
use switchboard_test_support::eventually::{eventually, eventually_true};

use crate::{
    mcp_client::{DEVICE, TOOLS, exchange, modern},
    test_gateway::{TEST_TIMEOUT, TestGateway, send},
};

const ECHO: &str = r#"{"service":"echo","params":{"a":"你好"}}"#;

/// The journal when it has this many calls.
async fn journal(gateway: &TestGateway, query: &str, count: usize) -> Value {
    let read = async || {
        let path = format!("/v1/calls/recent?limit=200{query}");
        let answer = gateway.get(&path).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json
    };
    let has_all = |page: &Value| page["items"].as_array().unwrap().len() == count;
    let page = eventually(TEST_TIMEOUT, read, has_all).await;
    assert!(has_all(&page), "{page}");
    page
}

/// Stores and publishes whether the organisation wants params, as control does.
async fn want_params(gateway: &TestGateway, wants: bool) {
    let org = gateway.store.org(gateway.org).await.unwrap().unwrap();
    let settings = OrgSettings {
        journal_params: wants,
        ..org.settings
    };
    let written = gateway
        .store
        .replace_org(gateway.org, org.version, &settings);
    let written = written.await.unwrap();
    assert!(matches!(written, OrgWrite::Written(_)), "{written:?}");
    let quotas = QuotaLimits {
        journal_params: gateway.store.orgs_with_journal_params().await.unwrap(),
        ..QuotaLimits::default()
    };
    gateway.edge.bus.publish_quotas(&quotas).await.unwrap();
    let is_known = || gateway.bus.journals_params(gateway.org) == wants;
    eventually_true("the gateway knows the setting", is_known).await;
}

#[tokio::test]
async fn ended_calls_are_listed_with_outcome_way_and_caller() {
    let gateway = TestGateway::start().await;
    gateway.connect_with("toy-1", TOOLS).await;
    gateway.store_device("asleep").await;
    assert_eq!(gateway.call("toy-1", ECHO).await.status, 200);
    let failing = r#"{"service":"fail"}"#;
    assert_eq!(gateway.call("toy-1", failing).await.status, 200);
    assert_eq!(gateway.call("asleep", ECHO).await.status, 409);
    let call = json!({"name": "echo", "arguments": {"a": "你好"}});
    exchange(modern(&gateway, DEVICE, "tools/call", call))
        .await
        .result();
    let stored = json!({"service": "echo", "mode": "async"}).to_string();
    assert_eq!(gateway.call("toy-1", &stored).await.status, 202);
    let page = journal(&gateway, "", 4).await;
    assert_eq!(
        (&page["left_out"], &page["next_cursor"]),
        (&json!(0), &Value::Null)
    );
    let key = gateway.store.api_key_by_hash(&gateway.key.hash()).await;
    let key = key.unwrap().unwrap().id.to_string();
    let items = page["items"].as_array().unwrap();
    let seen = items.iter().map(|item| {
        assert_eq!(item["caller"]["kind"], "key", "{item}");
        assert_eq!(item["caller"]["id"], json!(key));
        assert!(item["caller"]["name"].is_string(), "{item}");
        assert!(item["elapsed_ms"].as_f64().is_some_and(|ms| ms > 0.0));
        assert!(item["call_id"].as_str().unwrap().starts_with("call_"));
        for absent in ["params", "result", "params_cut", "result_cut"] {
            assert!(item.get(absent).is_none(), "{item}");
        }
        let fields = ["device_id", "service", "outcome", "delivered", "via"];
        fields.map(|field| item[field].as_str().unwrap())
    });
    let expected = [
        ["toy-1", "echo", "succeeded", "yes", "mcp"],
        ["asleep", "echo", "offline", "no", "rest"],
        ["toy-1", "fail", "failed", "yes", "rest"],
        ["toy-1", "echo", "succeeded", "yes", "rest"],
    ];
    assert_eq!(seen.collect::<Vec<_>>(), expected);
    assert_eq!(items[0]["params_bytes"], items[3]["params_bytes"]);
    assert!(items[3]["result_bytes"].as_u64().unwrap() > 2);
    assert_eq!(items[1]["result_bytes"], 0);
    for (query, count) in [
        ("&device=asleep", 1),
        ("&service=echo&outcome=succeeded", 2),
        (&format!("&caller={key}") as &str, 4),
        ("&caller=npc_01a1fdc1e83670f68020c071fd533605", 0),
    ] {
        journal(&gateway, query, count).await;
    }
    for query in [
        "outcome=good",
        "caller=me",
        "service=",
        "limit=201",
        "device=",
    ] {
        let refused = gateway.get(&format!("/v1/calls/recent?{query}")).await;
        assert_eq!(refused.status, 400, "{query}: {refused:?}");
    }
}

#[tokio::test]
async fn call_whose_caller_leaves_is_listed_as_cancelled() {
    let gateway = TestGateway::start().await;
    gateway.connect("toy-1").await;
    let request = gateway.request(Method::POST, "/v1/devices/toy-1/calls");
    let calling = send(request.json(&json!({"service": "silent"})));
    let is_sent = || !gateway.edge.unanswered.lock().is_empty();
    tokio::select! {
        answer = calling => panic!("{answer:?}"),
        () = eventually_true("the device has the call", is_sent) => {}
    }
    let page = journal(&gateway, "", 1).await;
    let item = &page["items"][0];
    assert_eq!(
        (&item["outcome"], &item["delivered"]),
        (&json!("cancelled"), &json!("unknown"))
    );
}

#[tokio::test]
async fn params_and_results_are_listed_while_the_organisation_wants_them() {
    let gateway = TestGateway::start().await;
    gateway.connect("toy-1").await;
    want_params(&gateway, true).await;
    let long = json!({"service": "echo", "params": {"a": "x".repeat(5_000)}}).to_string();
    for body in [ECHO, &long] {
        assert_eq!(gateway.call("toy-1", body).await.status, 200);
    }
    let page = journal(&gateway, "", 2).await;
    let [long, short] = [&page["items"][0], &page["items"][1]];
    assert_eq!(short["params"], r#"{"a":"你好"}"#);
    assert_eq!(
        (&short["params_cut"], &short["result_cut"]),
        (&json!(false), &json!(false))
    );
    let result: Value = serde_json::from_str(short["result"].as_str().unwrap()).unwrap();
    assert_eq!(result["success"], true, "{result}");
    assert_eq!(
        (&long["params_cut"], &long["params_bytes"]),
        (&json!(true), &json!(5_008))
    );
    assert_eq!(long["params"].as_str().unwrap().len(), 4_096);
    // The former ones do not come back.
    want_params(&gateway, false).await;
    let page = journal(&gateway, "", 2).await;
    assert!(page["items"][1].get("params").is_none(), "{page}");
    want_params(&gateway, true).await;
    let page = journal(&gateway, "", 2).await;
    assert!(page["items"][1].get("params").is_none(), "{page}");
}

#[tokio::test]
async fn calls_beyond_the_rate_are_left_out_and_counted() {
    const CALLS: usize = 600;
    let gateway =
        TestGateway::with_flags(&["--caller-burst=10000", "--called-device-burst=10000"]).await;
    gateway.connect("toy-1").await;
    gateway.connect("toy-2").await;
    let foreign = gateway.foreign_key().await;
    let calls = (0..CALLS).map(|_| gateway.call("toy-1", ECHO));
    let answers = stream::iter(calls).buffer_unordered(64);
    let succeeded = answers.filter(|answer| std::future::ready(answer.status == 200));
    assert_eq!(succeeded.count().await, CALLS);
    let page = async || gateway.get("/v1/calls/recent?limit=200").await.json;
    let is_counted = |page: &Value| page["left_out"].as_u64().is_some_and(|calls| calls > 0);
    let first = eventually(TEST_TIMEOUT, page, is_counted).await;
    // Two pages: the burst, and what the rate allows in the meantime.
    let count = async || {
        let (mut count, mut cursor) = (0, String::new());
        loop {
            let path = format!("/v1/calls/recent?limit=200{cursor}");
            let page = gateway.get(&path).await.json;
            count += page["items"].as_array().unwrap().len();
            match page["next_cursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => break (count, page["left_out"].as_u64().unwrap()),
            }
        }
    };
    let is_complete = |sums: &(usize, u64)| sums.0 as u64 + sums.1 == CALLS as u64;
    let sums = eventually(TEST_TIMEOUT, count, is_complete).await;
    assert!(is_complete(&sums) && sums.0 >= 200, "{sums:?}, {first}");
    gateway.assert_metric(&format!(
        "switchboard_gateway_journal_left_out_total {}",
        sums.1
    ));
    let theirs = send(gateway.request_as(&foreign, Method::GET, "/v1/calls/recent")).await;
    assert_eq!(
        theirs.json,
        json!({"items": [], "next_cursor": null, "left_out": 0})
    );
}

#[tokio::test]
async fn calls_during_a_database_outage_are_answered_and_listed_later() {
    let gateway = TestGateway::start().await;
    gateway.connect("toy-1").await;
    assert_eq!(gateway.call("toy-1", ECHO).await.status, 200);
    gateway.database.set_unavailable(true).await.unwrap();
    for _ in 0..5 {
        assert_eq!(gateway.call("toy-1", ECHO).await.status, 200);
    }
    gateway.database.set_unavailable(false).await.unwrap();
    let page = journal(&gateway, "", 6).await;
    assert_eq!(page["left_out"], 0);
}

#[tokio::test]
async fn restricted_key_lists_the_calls_that_it_reaches() {
    let gateway = TestGateway::start().await;
    for device in ["toy-1", "lamp-1"] {
        gateway.connect(device).await;
        assert_eq!(gateway.call(device, ECHO).await.status, 200);
        let failing = r#"{"service":"fail"}"#;
        assert_eq!(gateway.call(device, failing).await.status, 200);
    }
    journal(&gateway, "", 4).await;
    for (prefix, services, expected) in [
        (Some("toy-"), None, 2),
        (None, Some(&["ec*"][..]), 2),
        (Some("toy-"), Some(&["fail"][..]), 1),
    ] {
        let key = gateway.restricted_key(prefix, services).await;
        let listed = send(gateway.request_as(&key, Method::GET, "/v1/calls/recent")).await;
        let items = listed.json["items"].as_array().unwrap();
        assert_eq!(items.len(), expected, "{listed:?}");
    }
    let caller = gateway.add_key(&[Scope::Call]).await;
    let refused = send(gateway.request_as(&caller, Method::GET, "/v1/calls/recent")).await;
    assert_eq!(refused.json["type"], "/problems/insufficient_scope");
}

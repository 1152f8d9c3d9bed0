//! The usage of an organisation: counted by the gateway and added up in the database.

use std::{collections::BTreeMap, time::Duration};

use chrono::{TimeDelta, Utc};
use serde_json::json;
use switchboard_protocol::id::OrgId;

use crate::test_gateway::{TEST_TIMEOUT, TestGateway};

/// The number of calls by outcome.
async fn used(gateway: &TestGateway, org: OrgId) -> BTreeMap<String, i64> {
    let (from, to) = (Utc::now() - TimeDelta::days(1), Utc::now());
    let used = gateway
        .store
        .usage(org, from, to, true)
        .await
        .unwrap_or_default();
    let mut sums = BTreeMap::new();
    for one in used {
        assert!(one.milliseconds >= 0, "{one:?}");
        *sums.entry(one.outcome).or_default() += one.calls;
    }
    sums
}

/// Waits until the database has these numbers.
async fn wait_for_usage(gateway: &TestGateway, sums: &[(&str, i64)]) {
    let sums = expected(sums);
    let written = async {
        while used(gateway, gateway.org).await != sums {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let late = tokio::time::timeout(TEST_TIMEOUT, written).await.is_err();
    assert!(!late, "{:?}", used(gateway, gateway.org).await);
}

fn expected(sums: &[(&str, i64)]) -> BTreeMap<String, i64> {
    sums.iter()
        .map(|(outcome, calls)| ((*outcome).to_owned(), *calls))
        .collect()
}

#[tokio::test]
async fn calls_of_all_modes_count_once() {
    let gateway = TestGateway::with_flags(&["--queue-sweep-ms", "50"]).await;
    gateway.connect("toy-1").await;
    gateway.store_device("asleep").await;
    for (device, service) in [
        ("toy-1", "echo"),
        ("toy-1", "fail"),
        ("asleep", "echo"),
        ("nobody", "echo"),
    ] {
        gateway
            .call(device, &json!({"service": service}).to_string())
            .await;
    }
    for mode in ["async", "queued"] {
        let accepted = gateway
            .call(
                "toy-1",
                &json!({"service": "echo", "mode": mode}).to_string(),
            )
            .await;
        assert_eq!(accepted.status, 202, "{}", accepted.text);
        gateway.wait_for_end(&accepted.json["call_id"]).await;
    }
    // A queued call without an outcome does not count.
    gateway
        .call(
            "asleep",
            &json!({"service": "echo", "mode": "queued"}).to_string(),
        )
        .await;
    gateway.drain();
    wait_for_usage(
        &gateway,
        &[
            ("failed", 1),
            ("offline", 1),
            ("succeeded", 3),
            ("unknown_device", 1),
        ],
    )
    .await;
    let other = OrgId::from_uuid(uuid::Uuid::now_v7());
    assert_eq!(used(&gateway, other).await, expected(&[]));
}

#[tokio::test]
async fn calls_during_a_database_outage_are_counted() {
    let gateway = TestGateway::start().await;
    gateway.connect("toy-1").await;
    let echo = json!({"service": "echo"}).to_string();
    assert_eq!(gateway.call("toy-1", &echo).await.status, 200);
    gateway.database.set_unavailable(true).await.unwrap();
    assert_eq!(gateway.call("toy-1", &echo).await.status, 200);
    gateway.database.set_unavailable(false).await.unwrap();
    gateway.drain();
    wait_for_usage(&gateway, &[("succeeded", 2)]).await;
}

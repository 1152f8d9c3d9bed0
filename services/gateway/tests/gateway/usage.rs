//! What an organisation's calls come to, counted by the gateway and added up in the database.

use std::{collections::BTreeMap, time::Duration};

use chrono::{TimeDelta, Utc};
use serde_json::json;
use switchboard_protocol::id::OrgId;

use crate::stage::{LONG, Stage};

/// Calls by their outcome.
async fn used(stage: &Stage, org: OrgId) -> BTreeMap<String, i64> {
    let (from, to) = (Utc::now() - TimeDelta::days(1), Utc::now());
    let used = stage
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

/// Waits until the calls come to this.
async fn comes_to(stage: &Stage, sums: &[(&str, i64)]) {
    let sums = expected(sums);
    let written = async {
        while used(stage, stage.org).await != sums {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let late = tokio::time::timeout(LONG, written).await.is_err();
    assert!(!late, "{:?}", used(stage, stage.org).await);
}

fn expected(sums: &[(&str, i64)]) -> BTreeMap<String, i64> {
    sums.iter()
        .map(|(outcome, calls)| ((*outcome).to_owned(), *calls))
        .collect()
}

#[tokio::test]
async fn every_call_counts_once_however_it_was_asked_for() {
    let stage = Stage::with_flags(&["--queue-sweep-ms", "50"]).await;
    stage.connect("toy-1").await;
    stage.remember("asleep").await;
    for (device, service) in [
        ("toy-1", "echo"),
        ("toy-1", "fail"),
        ("asleep", "echo"),
        ("nobody", "echo"),
    ] {
        stage
            .call(device, &json!({"service": service}).to_string())
            .await;
    }
    for mode in ["async", "queued"] {
        let kept = stage
            .call(
                "toy-1",
                &json!({"service": "echo", "mode": mode}).to_string(),
            )
            .await;
        assert_eq!(kept.status, 202, "{}", kept.text);
        stage.end_of(&kept.json["call_id"]).await;
    }
    // Asked for and not made: it has not come to an end.
    stage
        .call(
            "asleep",
            &json!({"service": "echo", "mode": "queued"}).to_string(),
        )
        .await;
    stage.drain();
    comes_to(
        &stage,
        &[
            ("failed", 1),
            ("offline", 1),
            ("succeeded", 3),
            ("unknown_device", 1),
        ],
    )
    .await;
    let other = OrgId::from_uuid(uuid::Uuid::now_v7());
    assert_eq!(used(&stage, other).await, expected(&[]));
}

#[tokio::test]
async fn calls_count_that_were_made_while_the_database_was_away() {
    let stage = Stage::set().await;
    stage.connect("toy-1").await;
    let echo = json!({"service": "echo"}).to_string();
    assert_eq!(stage.call("toy-1", &echo).await.status, 200);
    stage.database.set_away(true).await.unwrap();
    assert_eq!(stage.call("toy-1", &echo).await.status, 200);
    stage.database.set_away(false).await.unwrap();
    stage.drain();
    comes_to(&stage, &[("succeeded", 2)]).await;
}

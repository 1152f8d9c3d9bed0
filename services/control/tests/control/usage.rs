//! `/v1/usage`.

use chrono::{DateTime, TimeDelta, Utc};
use http::{Method, StatusCode};
use serde_json::{Value, json};
use switchboard_runtime::shutdown::Shutdown;
use switchboard_store::{CountedCalls, CountedTurns, UsageByCounter, UsageDimension, UsageSums};
use uuid::Uuid;

use crate::installation::{Installation, OPERATOR_KEY, Org};

fn counted(org: &Org, hour: &str, outcome: &'static str, calls: i64) -> CountedCalls {
    CountedCalls {
        org: org.id(),
        hour: hour.parse().unwrap(),
        outcome,
        calls,
        microseconds: calls * 10_000,
    }
}

async fn usage(installation: &Installation, key: &str, query: &str) -> Value {
    let path = format!("/v1/usage{query}");
    let (status, usage) = installation.send(Method::GET, &path, Some(key), None).await;
    assert_eq!(status, StatusCode::OK, "{usage}");
    usage
}

/// The calls in a usage without turns.
fn calls_of(usage: &Value) -> Value {
    if let Some(periods) = usage.as_array() {
        return periods.iter().map(calls_of).collect();
    }
    let mut calls = usage.clone();
    for name in [
        "turns",
        "prompt_tokens",
        "completion_tokens",
        "cost",
        "speech_milliseconds",
    ] {
        let none = calls.as_object_mut().unwrap().remove(name);
        assert_eq!(none.unwrap().as_f64(), Some(0.0), "{name}");
    }
    calls
}

#[tokio::test]
async fn calls_are_summed_by_hours_and_days() {
    let installation = Installation::start().await;
    let (own, other) = (
        installation.new_org("Toys").await,
        installation.new_org("Games").await,
    );
    let (one, two) = (Uuid::now_v7(), Uuid::now_v7());
    let deleted = Org {
        id: format!("org_{}", Uuid::now_v7().simple()),
        key: String::new(),
    };
    let batch = [
        counted(&own, "2026-03-01T22:00:00Z", "succeeded", 5),
        counted(&own, "2026-03-01T22:00:00Z", "offline", 1),
        counted(&own, "2026-03-01T23:00:00Z", "succeeded", 2),
        counted(&own, "2026-03-02T00:00:00Z", "failed", 3),
        counted(&other, "2026-03-01T22:00:00Z", "succeeded", 100),
        counted(&deleted, "2026-03-01T22:00:00Z", "succeeded", 1),
    ];
    // The first is sent twice because its response was lost. The second is from another gateway.
    for (counter, number) in [(one, 1), (one, 1), (two, 1)] {
        installation
            .store
            .add_usage(counter, number, &batch)
            .await
            .unwrap();
    }
    installation
        .store
        .add_usage(one, 2, &batch[3..4])
        .await
        .unwrap();

    let march = "?from=2026-03-01T00:00:00Z&to=2026-03-05T00:00:00Z";
    let days = usage(&installation, &own.key, march).await;
    assert_eq!(
        calls_of(&days["periods"]),
        json!([
            {"start": "2026-03-01T00:00:00Z", "calls": 16, "milliseconds": 160, "by_outcome": {"succeeded": 14, "offline": 2}},
            {"start": "2026-03-02T00:00:00Z", "calls": 9, "milliseconds": 90, "by_outcome": {"failed": 9}},
        ])
    );
    assert_eq!(
        calls_of(&days["total"]),
        json!({"calls": 25, "milliseconds": 250, "by_outcome": {"succeeded": 14, "offline": 2, "failed": 9}})
    );
    let hours = "?granularity=hour&from=2026-03-01T22:30:00Z&to=2026-03-02T00:00:00Z";
    let hours = usage(&installation, &own.key, hours).await;
    assert_eq!(
        calls_of(&hours["periods"]),
        json!([
            {"start": "2026-03-01T23:00:00Z", "calls": 4, "milliseconds": 40, "by_outcome": {"succeeded": 4}},
        ])
    );
    assert_eq!(
        usage(&installation, &other.key, march).await["total"]["calls"],
        200
    );
    assert_eq!(
        usage(&installation, &own.key, "").await["periods"],
        json!([])
    );
}

/// These sums with turns of 100 and 20 tokens and 700 ms of speech each.
fn with_turns(mut sums: Value, turns: i64, cost: f64) -> Value {
    sums["turns"] = turns.into();
    sums["prompt_tokens"] = (turns * 100).into();
    sums["completion_tokens"] = (turns * 20).into();
    sums["cost"] = cost.into();
    sums["speech_milliseconds"] = (turns * 700).into();
    sums
}

#[tokio::test]
async fn turns_are_summed_with_the_calls_of_their_period() {
    let installation = Installation::start().await;
    let (own, other) = (
        installation.new_org("Toys").await,
        installation.new_org("Games").await,
    );
    let turn = |org: &Org, at: &str, cost| CountedTurns {
        speech_ms: 700,
        ..CountedTurns::new(org.id(), at.parse().unwrap(), 100, 20, cost)
    };
    let turns = [
        turn(&own, "2026-03-01T21:59:59Z", 0.25),
        turn(&own, "2026-03-01T22:00:00Z", 0.5),
        turn(&own, "2026-03-03T10:30:00Z", 0.0),
        turn(&other, "2026-03-01T22:00:00Z", 8.0),
    ];
    let counter = Uuid::now_v7();
    let store = &installation.store;
    store.add_turn_usage(counter, 1, &turns).await.unwrap();
    let calls = [counted(&own, "2026-03-01T22:00:00Z", "succeeded", 5)];
    store.add_usage(Uuid::now_v7(), 1, &calls).await.unwrap();

    let march = "?from=2026-03-01T00:00:00Z&to=2026-03-05T00:00:00Z";
    let days = usage(&installation, &own.key, march).await;
    let none = json!({"calls": 0, "milliseconds": 0, "by_outcome": {}});
    let calls = json!({"calls": 5, "milliseconds": 50, "by_outcome": {"succeeded": 5}});
    let at = |start: &str, mut sums: Value| {
        sums["start"] = start.into();
        sums
    };
    assert_eq!(
        days["periods"],
        json!([
            at("2026-03-01T00:00:00Z", with_turns(calls.clone(), 2, 0.75)),
            at("2026-03-03T00:00:00Z", with_turns(none.clone(), 1, 0.0)),
        ])
    );
    assert_eq!(days["total"], with_turns(calls.clone(), 3, 0.75));
    let hours = format!("{march}&granularity=hour");
    let hours = usage(&installation, &own.key, &hours).await;
    assert_eq!(
        hours["periods"],
        json!([
            at("2026-03-01T21:00:00Z", with_turns(none.clone(), 1, 0.25)),
            at("2026-03-01T22:00:00Z", with_turns(calls, 1, 0.5)),
            at("2026-03-03T10:00:00Z", with_turns(none.clone(), 1, 0.0)),
        ])
    );
    let theirs = usage(&installation, &other.key, march).await;
    assert_eq!(theirs["total"], with_turns(none, 1, 8.0));
}

#[tokio::test]
async fn expired_usage_is_deleted() {
    let installation = Installation::start().await;
    let own = installation.new_org("Toys").await;
    let store = &installation.store;
    let batch = [
        counted(&own, "2026-03-01T23:00:00Z", "succeeded", 5),
        counted(&own, "2026-03-02T00:00:00Z", "succeeded", 2),
    ];
    store.add_usage(Uuid::now_v7(), 1, &batch).await.unwrap();
    let between: DateTime<Utc> = "2026-03-01T23:30:00Z".parse().unwrap();
    let cutoff = Utc::now() - between;
    let longer = (cutoff + TimeDelta::days(1)).to_std().unwrap();
    assert_eq!(store.purge_usage(longer).await.unwrap(), 0);
    assert_eq!(
        store.purge_usage(cutoff.to_std().unwrap()).await.unwrap(),
        1
    );
    let march = "?from=2026-03-01T00:00:00Z&to=2026-03-05T00:00:00Z";
    assert_eq!(
        usage(&installation, &own.key, march).await["total"]["calls"],
        2
    );
}

#[tokio::test]
async fn current_usage_excludes_public_resources() {
    let installation = Installation::start().await;
    let own = installation.new_org("Toys").await;
    let other = installation.new_org("Games").await;
    let before = usage(&installation, &own.key, "").await["now"].clone();
    let counts = [
        "devices",
        "templates",
        "npcs",
        "memories",
        "pictures",
        "picture_bytes",
        "skills_books",
        "skills_book_bytes",
        "voices",
        "voice_bytes",
    ];
    for count in counts {
        assert_eq!(before[count], 0, "{count}");
    }
    for key in [&own.key, &own.key, OPERATOR_KEY] {
        installation
            .create(key, "/v1/templates", json!({"name": "Bello"}))
            .await;
    }
    installation
        .create(&own.key, "/v1/npcs", json!({"overrides": {"name": "Rex"}}))
        .await;
    let now = usage(&installation, &own.key, "").await["now"].clone();
    assert_eq!((&now["templates"], &now["npcs"]), (&json!(2), &json!(1)));
    assert_eq!(usage(&installation, &other.key, "").await["now"], before);
    for query in [
        "?granularity=week",
        "?from=yesterday",
        "?org_id=x",
        "?from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z",
        "?from=2020-01-01T00:00:00Z",
    ] {
        let path = format!("/v1/usage{query}");
        let (status, problem) = installation
            .send(Method::GET, &path, Some(&own.key), None)
            .await;
        assert_eq!(
            (status.as_u16(), &problem["type"]),
            (400, &json!("/problems/invalid_query")),
            "{query}"
        );
    }
    let (status, _) = installation
        .send(Method::GET, "/v1/usage", Some(OPERATOR_KEY), None)
        .await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
}

/// Counts calls of devices on a day, and writes them.
async fn count_calls(
    installation: &Installation,
    org: &Org,
    day: &str,
    calls: &[(&str, &'static str, i64)],
) {
    let counter = UsageByCounter::default();
    for (device, outcome, calls) in calls {
        let sums = UsageSums {
            calls: *calls,
            microseconds: calls * 10_000,
            ..UsageSums::default()
        };
        let device = (UsageDimension::Device, *device);
        let at = day.parse().unwrap();
        assert!(counter.count((org.id(), at), device, outcome, &sums));
    }
    let shutdown = Shutdown::new();
    shutdown.drain();
    counter
        .run(|| false, installation.store.clone(), shutdown)
        .await;
}

#[tokio::test]
async fn usage_is_summed_by_device() {
    let installation = Installation::start().await;
    let (own, other) = (
        installation.new_org("Toys").await,
        installation.new_org("Games").await,
    );
    let (first, second) = ("2026-03-01T12:00:00Z", "2026-03-02T00:00:00Z");
    let calls = [
        ("toy-1", "succeeded", 5),
        ("toy-1", "offline", 1),
        ("toy-2", "succeeded", 7),
        ("toy-3", "failed", 2),
        ("", "unknown_device", 3),
    ];
    count_calls(&installation, &own, first, &calls).await;
    count_calls(&installation, &own, second, &[("toy-1", "succeeded", 4)]).await;
    count_calls(&installation, &other, first, &[("toy-1", "succeeded", 90)]).await;
    let march = "/by?dimension=device&from=2026-03-01T00:00:00Z&to=2026-03-05T00:00:00Z";
    let by_device = usage(&installation, &own.key, &format!("{march}&limit=2")).await;
    let sums = |key: &str, calls: i64, by_outcome: Value| {
        json!({
            "key": key, "calls": calls, "milliseconds": calls * 10, "by_outcome": by_outcome,
            "turns": 0, "prompt_tokens": 0, "completion_tokens": 0, "cost": 0.0,
        })
    };
    let rows = json!([
        sums("toy-1", 10, json!({"offline": 1, "succeeded": 9})),
        sums("toy-2", 7, json!({"succeeded": 7})),
    ]);
    assert_eq!(by_device["rows"], rows);
    let rest = sums("", 5, json!({"failed": 2, "unknown_device": 3}));
    assert_eq!(by_device["other"], rest);
    let day = "/by?dimension=device&from=2026-03-02T00:00:00Z&to=2026-03-03T00:00:00Z";
    let by_device = usage(&installation, &own.key, day).await;
    let rows = json!([sums("toy-1", 4, json!({"succeeded": 4}))]);
    assert_eq!(
        (&by_device["rows"], &by_device["other"]),
        (&rows, &Value::Null)
    );
    let by_npc = usage(&installation, &own.key, "/by?dimension=npc").await;
    assert_eq!(by_npc["rows"], json!([]));
}

#[tokio::test]
async fn keys_of_a_day_are_bounded_and_the_rest_is_summed() {
    let installation = Installation::start().await;
    let own = installation.new_org("Toys").await;
    let day = "2026-03-01T12:00:00Z";
    let names: Vec<String> = (0..600).map(|number| format!("toy-{number:03}")).collect();
    let calls: Vec<_> = names.iter().map(|name| (&**name, "succeeded", 1)).collect();
    count_calls(&installation, &own, day, &calls[..400]).await;
    count_calls(&installation, &own, day, &calls).await;
    count_calls(
        &installation,
        &own,
        day,
        &[("toy-999", "succeeded", 9), ("toy-000", "offline", 1)],
    )
    .await;
    let range = "from=2026-03-01T00:00:00Z&to=2026-03-02T00:00:00Z&limit=200";
    let by_device = usage(
        &installation,
        &own.key,
        &format!("/by?dimension=device&{range}"),
    )
    .await;
    assert_eq!(by_device["rows"][0]["key"], "toy-000");
    assert_eq!(by_device["rows"][0]["calls"], 3);
    // 400 devices with two calls and 100 with one have rows; 200 of the former are listed.
    assert_eq!(by_device["other"]["calls"], 400 + 100 + 100 + 9);
}

//! `GET /v1/orgs` and `PATCH /v1/orgs/{id}`: the operator suspends organisations.

use std::time::Duration;

use futures_util::{StreamExt as _, stream::FuturesUnordered};
use http::{Method, StatusCode};
use serde_json::{Value, json};
use switchboard_bus::{Bus, BusConfig};
use switchboard_store::AttemptsInFlight;
use switchboard_test_support::eventually::{eventually, eventually_true};

use crate::installation::{Installation, OPERATOR_KEY, Org};

/// Within this, a suspension is in force on every node.
const IN_FORCE_TIMEOUT: Duration = Duration::from_secs(5);

/// Shorter than a request waits for a connection.
const PROMPT_TIMEOUT: Duration = Duration::from_secs(2);
/// Within this, a request finds the share of its organisation exhausted.
const SHARE_TIMEOUT: Duration = Duration::from_secs(8);

const CLAIM_LEASE: Duration = Duration::from_secs(1);

impl Installation {
    async fn set_suspended(&self, org: &Org, suspended: bool) -> Value {
        let path = format!("/v1/orgs/{}", org.id);
        let body = Some(json!({"suspended": suspended}));
        let (status, org) = self
            .send(Method::PATCH, &path, Some(OPERATOR_KEY), body)
            .await;
        assert_eq!(status, StatusCode::OK, "{org}");
        assert_eq!(org["suspended"], suspended);
        assert_eq!(org["suspended_at"].is_string(), suspended);
        org
    }

    /// Waits until a credential is answered like this.
    async fn await_answer(&self, credential: &str, expected: (u16, Option<&str>)) {
        let send = async || {
            let answer = self.send(Method::GET, "/v1/api-keys", Some(credential), None);
            let (status, body) = answer.await;
            (status.as_u16(), body["type"].as_str().map(str::to_owned))
        };
        let expected = (expected.0, expected.1.map(str::to_owned));
        let answer = eventually(IN_FORCE_TIMEOUT, send, |answer| *answer == expected).await;
        assert_eq!(answer, expected);
    }
}

#[tokio::test]
async fn suspended_organisation_is_refused_until_it_is_resumed() {
    let installation = Installation::start().await;
    installation.trusted().await;
    let (org, other) = (
        installation.new_org("Toys").await,
        installation.new_org("Others").await,
    );
    let body = json!({"subject": "client:app", "scopes": ["admin"]});
    let (_, token) = installation
        .send(Method::POST, "/v1/tokens", Some(&org.key), Some(body))
        .await;
    let token = token["access_token"].as_str().unwrap();
    installation.set_suspended(&org, true).await;
    let refused = (403, Some("/problems/org_suspended"));
    for credential in [&org.key, token] {
        installation.await_answer(credential, refused).await;
    }
    installation.await_answer(&other.key, (200, None)).await;
    installation.set_suspended(&org, false).await;
    for credential in [&org.key, token] {
        installation.await_answer(credential, (200, None)).await;
    }
    let path = "/v1/audit-log?resource=org&action=changed";
    let (_, log) = installation
        .send(Method::GET, path, Some(&org.key), None)
        .await;
    let entries = log["entries"].as_array().unwrap();
    assert_eq!(entries.len(), 2, "{log}");
    for entry in entries {
        assert_eq!(entry["actor"], "operator");
        assert_eq!(entry["changed"], json!(["suspended_at"]));
    }
}

#[tokio::test]
async fn suspension_does_not_wait_for_the_requests_of_its_organisation() {
    let installation = Installation::idle(Some(OPERATOR_KEY)).await;
    let org = installation.new_org("Toys").await;
    let _lock = installation.database.lock("npcs").await.unwrap();
    // They hold the organisation's share of database connections until their statements time out.
    let blocked = async {
        let request = || installation.send(Method::GET, "/v1/npcs", Some(&org.key), None);
        let mut blocked: FuturesUnordered<_> = (0..12).map(|_| request()).collect();
        while blocked.next().await.is_some() {}
    };
    let suspension = async {
        let status = async || {
            let answer = installation.send(Method::GET, "/v1/org", Some(&org.key), None);
            answer.await.0
        };
        let exhausted = StatusCode::SERVICE_UNAVAILABLE;
        let status = eventually(SHARE_TIMEOUT, status, |status| *status == exhausted).await;
        assert_eq!(status, exhausted);
        let path = format!("/v1/orgs/{}", org.id);
        let body = Some(json!({"suspended": true, "quotas": {"api_keys": 1}}));
        let change = installation.send(Method::PATCH, &path, Some(OPERATOR_KEY), body);
        let changed = tokio::time::timeout(PROMPT_TIMEOUT, change).await;
        let (status, changed) = changed.expect("the suspension waits for the organisation");
        assert_eq!(status, StatusCode::OK, "{changed}");
        assert_eq!(changed["suspended"], true);
        assert_eq!(changed["quotas"], json!({"api_keys": 1}));
    };
    tokio::select! {
        biased;
        () = blocked => panic!("the share is free again"),
        () = suspension => {}
    }
}

#[tokio::test]
async fn suspension_is_published_by_the_worker_as_well() {
    let installation = Installation::start().await;
    installation.trusted().await;
    let org = installation.new_org("Toys").await;
    // As if the process that stored it had ended before it published.
    let stored = installation.store.set_suspended(org.id(), true).await;
    assert!(stored.unwrap().is_some());
    let registry = prometheus::Registry::new();
    let node = BusConfig::local(&installation.hub, "edge");
    let edge = Bus::start(node, &registry, &installation.shutdown).unwrap();
    let spread = eventually_true("the suspension reaches the node", || {
        edge.is_suspended(org.id())
    });
    tokio::time::timeout(IN_FORCE_TIMEOUT, spread)
        .await
        .unwrap();
}

#[tokio::test]
async fn suspended_organisation_sends_no_webhooks() {
    let installation = Installation::idle(Some(OPERATOR_KEY)).await;
    let (org, other) = (
        installation.new_org("Toys").await,
        installation.new_org("Others").await,
    );
    for org in [&org, &other] {
        let document = json!({"url": "http://127.0.0.1:9/hook", "events": ["device.online"]});
        let (hook, _) = installation.webhook(org, document).await;
        installation.send_test_event(org, &hook).await;
    }
    let claimed = async || {
        installation.make_deliveries_due().await;
        let in_flight = AttemptsInFlight {
            share: 10,
            ..AttemptsInFlight::default()
        };
        let store = &installation.store;
        let claim = store.claim_deliveries(&in_flight, CLAIM_LEASE, 10);
        let claimed = claim.await.unwrap();
        claimed.iter().map(|one| one.org).collect::<Vec<_>>()
    };
    installation.set_suspended(&org, true).await;
    assert_eq!(claimed().await, [other.id()]);
    installation.set_suspended(&org, false).await;
    assert_eq!(claimed().await.len(), 2);
}

#[tokio::test]
async fn operator_lists_organisations() {
    let installation = Installation::start().await;
    let mut orgs = Vec::new();
    for name in ["a", "b", "c"] {
        orgs.push(installation.new_org(name).await);
    }
    installation.set_suspended(&orgs[1], true).await;
    let (mut listed, mut cursor) = (Vec::new(), String::new());
    loop {
        let path = format!("/v1/orgs?limit=2{cursor}");
        let (status, page) = installation
            .send(Method::GET, &path, Some(OPERATOR_KEY), None)
            .await;
        assert_eq!(status, StatusCode::OK, "{page}");
        listed.extend(page["orgs"].as_array().unwrap().iter().cloned());
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    let summary = |org: &Value| (org["name"].clone(), org["suspended"].clone());
    assert_eq!(
        listed.iter().map(summary).collect::<Vec<_>>(),
        [("a", false), ("b", true), ("c", false)].map(|(name, is)| (json!(name), json!(is)))
    );
    assert_eq!(listed[1]["org_id"], orgs[1].id.as_str());
}

#[tokio::test]
async fn unknown_organisation_cannot_be_suspended() {
    let installation = Installation::start().await;
    let org = installation.new_org("Toys").await;
    let check = async |id: &str, credential: &str, body: Value, status: u16| {
        let path = format!("/v1/orgs/{id}");
        let (got, problem) = installation
            .send(Method::PATCH, &path, Some(credential), Some(body))
            .await;
        assert_eq!(got.as_u16(), status, "{id}: {problem}");
    };
    let suspended = json!({"suspended": true});
    let unknown = "org_00000000000000000000000000000000";
    check(unknown, OPERATOR_KEY, suspended.clone(), 404).await;
    check("x", OPERATOR_KEY, suspended.clone(), 404).await;
    check(&org.id, &org.key, suspended, 403).await;
    check(&org.id, OPERATOR_KEY, json!({}), 422).await;
    check(&org.id, OPERATOR_KEY, json!({"suspended": 1}), 422).await;
}

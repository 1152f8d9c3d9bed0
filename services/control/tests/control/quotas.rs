//! Quotas of organisations: what is created beyond one is refused, and the operator changes it.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use axum::body::Body;
use futures_util::{StreamExt as _, stream::FuturesUnordered};
use http::{Method, Request, StatusCode, header};
use serde_json::{Value, json};
use switchboard_control::QuotaConfig;
use switchboard_protocol::id::DeviceKey;
use switchboard_store::{DeviceEvent, DeviceEventKind};
use switchboard_test_support::eventually::eventually;

use crate::{
    cases::{VOICES, new_book, png, wav},
    installation::{Installation, OPERATOR_KEY, Org, body},
};

/// Within this, a changed quota is in force: an amount is cached for 10 s.
pub(crate) const IN_FORCE_TIMEOUT: Duration = Duration::from_secs(15);

pub(crate) const NONE: QuotaConfig = QuotaConfig {
    quota_devices_connected: 0,
    quota_devices_known: 0,
    quota_object_bytes: 0,
    quota_settings: 0,
    quota_api_keys: 0,
    quota_live_tokens: 0,
    quota_stored_result_bytes: 0,
    quota_turns_per_day: 0,
    quota_model_cost_per_day: 0.0,
    quota_speech_minutes_per_day: 0,
    quota_check_interval_s: 1,
};

impl Installation {
    pub(crate) async fn try_create(
        &self,
        key: &str,
        path: &str,
        request: Value,
    ) -> (StatusCode, Value) {
        self.send(Method::POST, path, Some(key), Some(request))
            .await
    }

    async fn upload_bytes(&self, key: &str, path: &str, bytes: Vec<u8>) -> (StatusCode, Value) {
        let method = if path.contains("/parts/") {
            "PUT"
        } else {
            "POST"
        };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::AUTHORIZATION, format!("Bearer {key}"));
        let response = self.answer(request.body(Body::from(bytes)).unwrap()).await;
        (response.status(), body(response).await)
    }

    pub(crate) async fn set_quotas(&self, org: &Org, quotas: Value) -> (StatusCode, Value) {
        let path = format!("/v1/orgs/{}", org.id);
        let request = Some(json!({"quotas": quotas}));
        self.send(Method::PATCH, &path, Some(OPERATOR_KEY), request)
            .await
    }

    /// The use of a quota and its limit, as the organisation reads them.
    pub(crate) async fn quota(&self, org: &Org, quota: &str) -> (Value, Value) {
        let (_, usage) = self
            .send(Method::GET, "/v1/usage", Some(&org.key), None)
            .await;
        let all = usage["quotas"].as_array().unwrap();
        let one = all.iter().find(|one| one["quota"] == quota).unwrap();
        (one["used"].clone(), one["limit"].clone())
    }

    pub(crate) async fn record_device(&self, org: &Org, name: &str) {
        let event = DeviceEvent {
            device: DeviceKey {
                org: org.id(),
                device: name.parse().unwrap(),
            },
            epoch: 1,
            at: chrono::Utc::now(),
            kind: DeviceEventKind::Connected,
        };
        self.store.record_device_events(&[event]).await.unwrap();
    }
}

/// Fills a quota up to its limit with `create`, sees the next one refused, another organisation
/// unaffected, and the next one created after the operator has raised the quota.
async fn check_limit(
    installation: &Installation,
    (quota, limit): (&str, u64),
    create: impl AsyncFn(&Org, u64) -> (StatusCode, Value),
) {
    let (org, other) = (
        installation.new_org("Toys").await,
        installation.new_org("Others").await,
    );
    let (count, refused) = loop {
        let (used, shown) = installation.quota(&org, quota).await;
        assert_eq!(shown, limit, "{quota}");
        let count = used.as_u64().unwrap();
        let (status, answer) = create(&org, count).await;
        if status.is_success() {
            assert!(count < limit, "{quota}: {count}");
            continue;
        }
        assert_eq!(status, StatusCode::CONFLICT, "{answer}");
        break (count, answer);
    };
    assert_eq!(refused["type"], "/problems/quota_exceeded", "{refused}");
    assert_eq!(
        (&refused["quota"], &refused["limit"], &refused["used"]),
        (&json!(quota), &json!(limit), &json!(count)),
        "{refused}"
    );
    let (status, answer) = create(&other, 0).await;
    assert!(status.is_success(), "{quota}: {answer}");
    let (status, changed) = installation
        .set_quotas(&org, json!({quota: limit * 2}))
        .await;
    assert_eq!(status, StatusCode::OK, "{changed}");
    assert_eq!(changed["quotas"], json!({quota: limit * 2}));
    let next = AtomicU64::new(count + 1);
    let create_again = async || create(&org, next.fetch_add(1, Ordering::Relaxed)).await;
    let created = eventually(IN_FORCE_TIMEOUT, create_again, |(status, _)| {
        status.is_success()
    })
    .await;
    assert!(created.0.is_success(), "{quota}: {}", created.1);
}

#[tokio::test]
async fn responses_to_requests_with_a_key_are_stored_up_to_a_quota() {
    const LIMIT: u64 = 2_000;
    let quotas = QuotaConfig {
        quota_stored_result_bytes: LIMIT,
        ..NONE
    };
    let installation = Installation::with_quotas(quotas).await;
    let (org, other) = (
        installation.new_org("Toys").await,
        installation.new_org("Others").await,
    );
    let create = async |org: &Org, key: Option<u64>| {
        let mut request = Request::post("/v1/templates")
            .header(header::AUTHORIZATION, format!("Bearer {}", org.key))
            .header(header::CONTENT_TYPE, "application/json");
        if let Some(key) = key {
            request = request.header("Idempotency-Key", key.to_string());
        }
        let request = request.body(Body::from(r#"{"name": "Bello"}"#)).unwrap();
        let response = installation.answer(request).await;
        (response.status(), body(response).await)
    };
    let (_, first) = create(&org, Some(0)).await;
    let mut key = 1;
    let refused = loop {
        let (status, answer) = create(&org, Some(key)).await;
        if status != StatusCode::CREATED {
            assert_eq!(status, StatusCode::CONFLICT, "{answer}");
            break answer;
        }
        key += 1;
        assert!(key < LIMIT, "a response has more than a byte");
    };
    assert_eq!(refused["quota"], "stored_result_bytes", "{refused}");
    let (used, limit) = installation.quota(&org, "stored_result_bytes").await;
    assert!(used.as_u64().unwrap() >= LIMIT && limit == LIMIT, "{used}");
    // Stored responses are replayed, and requests without a key are executed.
    assert_eq!(create(&org, Some(0)).await, (StatusCode::CREATED, first));
    assert_eq!(create(&org, None).await.0, StatusCode::CREATED);
    assert_eq!(create(&other, Some(0)).await.0, StatusCode::CREATED);
}

#[tokio::test]
async fn creations_beyond_a_quota_are_refused() {
    let quotas = QuotaConfig {
        quota_api_keys: 3,
        quota_live_tokens: 2,
        quota_settings: 4,
        quota_object_bytes: 3 * 20_000,
        ..NONE
    };
    let installation = &Installation::with_quotas(quotas).await;
    check_limit(installation, ("api_keys", 3), async |org, _| {
        let request = json!({"name": "Backend"});
        installation
            .try_create(&org.key, "/v1/api-keys", request)
            .await
    })
    .await;
    check_limit(installation, ("live_tokens", 2), async |org, count| {
        let request = json!({"subject": format!("client:{count}"), "scopes": ["read"]});
        installation
            .try_create(&org.key, "/v1/tokens", request)
            .await
    })
    .await;
    // Of different kinds, in turn.
    check_limit(installation, ("settings", 4), async |org, count| {
        match count % 4 {
            0 => {
                let request = json!({"name": "Bello"});
                installation
                    .try_create(&org.key, "/v1/templates", request)
                    .await
            }
            1 => {
                installation
                    .try_create(&org.key, "/v1/npcs", json!({"overrides": {"name": "Rex"}}))
                    .await
            }
            2 => {
                let width = u32::try_from(count).unwrap() + 1;
                installation
                    .upload_bytes(&org.key, "/v1/pictures", png(width))
                    .await
            }
            _ => {
                let request = new_book(b"Text.");
                installation
                    .try_create(&org.key, "/v1/skills-books", request)
                    .await
            }
        }
    })
    .await;
    check_limit(installation, ("object_bytes", 60_000), async |org, _| {
        installation
            .upload_bytes(&org.key, VOICES, wav(1_250))
            .await
    })
    .await;
}

#[tokio::test]
async fn provisioning_key_leaves_half_of_the_tokens_to_administrators() {
    let quotas = QuotaConfig {
        quota_live_tokens: 4,
        ..NONE
    };
    let installation = Installation::with_quotas(quotas).await;
    let org = installation.new_org("Toys").await;
    let document = json!({"name": "factory", "scopes": ["provision"], "device_prefix": "toy-"});
    let (status, key) = installation
        .try_create(&org.key, "/v1/api-keys", document)
        .await;
    assert_eq!(status, StatusCode::CREATED, "{key}");
    let leaked = key["api_key"].as_str().unwrap();
    let issue = async |key: &str, id: u8| {
        let request = json!({"subject": format!("device:toy-{id}"), "scopes": ["device"]});
        installation.try_create(key, "/v1/tokens", request).await
    };
    for id in 0..2 {
        assert_eq!(issue(leaked, id).await.0, StatusCode::CREATED);
    }
    let (status, problem) = issue(leaked, 2).await;
    assert_eq!(status, StatusCode::CONFLICT, "{problem}");
    assert_eq!(problem["type"], "/problems/quota_exceeded");
    assert_eq!(
        (&problem["used"], &problem["limit"]),
        (&json!(2), &json!(2))
    );
    assert!(
        problem["detail"].as_str().unwrap().contains("`admin`"),
        "{problem}"
    );
    for id in 2..4 {
        assert_eq!(issue(&org.key, id).await.0, StatusCode::CREATED);
    }
    assert_eq!(issue(&org.key, 4).await.0, StatusCode::CONFLICT);
}

#[tokio::test]
async fn memories_and_parts_count_as_well() {
    let quotas = QuotaConfig {
        quota_settings: 4,
        quota_object_bytes: 100,
        ..NONE
    };
    let installation = Installation::with_quotas(quotas).await;
    let org = installation.new_org("Toys").await;
    let (_, template) = installation
        .try_create(&org.key, "/v1/templates", json!({"name": "Bello"}))
        .await;
    let path = format!(
        "/v1/templates/{}/memories",
        template["id"]
            .as_str()
            .unwrap_or_else(|| panic!("{template}"))
    );
    let memories = |count: usize| json!({"memories": vec![json!({"text": "It barks."}); count]});
    let (status, answer) = installation.try_create(&org.key, &path, memories(4)).await;
    assert_eq!(
        (status, &answer["quota"]),
        (StatusCode::CONFLICT, &json!("settings"))
    );
    let (status, answer) = installation.try_create(&org.key, &path, memories(2)).await;
    assert_eq!(status, StatusCode::CREATED, "{answer}");

    let document = vec![b'x'; 101];
    let (status, book) = installation
        .try_create(&org.key, "/v1/skills-books", new_book(&document))
        .await;
    assert_eq!(status, StatusCode::CREATED, "{book}");
    let part = |number| {
        format!(
            "/v1/skills-books/{}/parts/{number}",
            book["id"].as_str().unwrap_or_else(|| panic!("{book}"))
        )
    };
    let (status, answer) = installation
        .upload_bytes(&org.key, &part(1), document[..60].into())
        .await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    let (status, answer) = installation
        .upload_bytes(&org.key, &part(2), document[..41].into())
        .await;
    assert_eq!(
        (status, &answer["quota"]),
        (StatusCode::CONFLICT, &json!("object_bytes"))
    );
}

#[tokio::test]
async fn unknown_device_beyond_the_quota_gets_no_token() {
    let quotas = QuotaConfig {
        quota_devices_known: 2,
        ..NONE
    };
    let installation = &Installation::with_quotas(quotas).await;
    let issue = async |org: &Org, device: String| {
        let request = json!({"subject": format!("device:{device}"), "scopes": ["device"]});
        installation
            .try_create(&org.key, "/v1/tokens", request)
            .await
    };
    check_limit(installation, ("devices_known", 2), async |org, count| {
        let device = format!("toy-{count}");
        let issued = issue(org, device.clone()).await;
        if issued.0.is_success() {
            installation.record_device(org, &device).await;
        } else {
            // One that is known is not affected.
            let (status, answer) = issue(org, "toy-0".to_owned()).await;
            assert_eq!(status, StatusCode::CREATED, "{answer}");
        }
        issued
    })
    .await;
}

#[tokio::test]
#[expect(
    clippy::too_many_lines,
    reason = "each step needs the state of the one before"
)]
async fn quota_is_set_by_the_operator_only() {
    let quotas = QuotaConfig {
        quota_api_keys: 50,
        ..NONE
    };
    let installation = Installation::with_quotas(quotas).await;
    let (org, other) = (
        installation.new_org("Toys").await,
        installation.new_org("Others").await,
    );
    let path = format!("/v1/orgs/{}", org.id);
    for key in [&org.key, &other.key] {
        let request = Some(json!({"quotas": {"api_keys": 1_000}}));
        let (status, answer) = installation
            .send(Method::PATCH, &path, Some(key), request)
            .await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{answer}");
    }
    for (quotas, field, named) in [
        (json!({"moons": 1}), "/quotas/moons", "api_keys"),
        (
            json!({"api_keys": -1}),
            "/quotas/api_keys",
            "0 is unlimited",
        ),
        (json!({"api_keys": 0.5}), "/quotas/api_keys", "an integer"),
        (
            json!({"api_keys": 1e16}),
            "/quotas/api_keys",
            "1000000000000000",
        ),
        (json!({"api_keys": "many"}), "/quotas/api_keys", "many"),
        (json!([]), "/quotas", "an object"),
    ] {
        let (status, problem) = installation.set_quotas(&org, quotas).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{problem}");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains(named), "{problem}");
        let at = problem["errors"][0]["pointer"].as_str().unwrap();
        assert!(at.starts_with(field), "{problem}");
    }
    let (status, problem) = installation
        .send(Method::PATCH, &path, Some(OPERATOR_KEY), Some(json!({})))
        .await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{problem}");

    let quotas = json!({"api_keys": 7, "model_cost_per_day": 0.25, "settings": 0});
    let (_, changed) = installation.set_quotas(&org, quotas.clone()).await;
    assert_eq!(changed["quotas"], quotas);
    let shows = async |org: &Org, quota: &str, limit: Value| {
        let shown = async || installation.quota(org, quota).await.1;
        let seen = eventually(IN_FORCE_TIMEOUT, shown, |shown| *shown == limit).await;
        assert_eq!(seen, limit, "{quota}");
    };
    shows(&org, "api_keys", json!(7)).await;
    shows(&org, "model_cost_per_day", json!(0.25)).await;
    shows(&org, "settings", Value::Null).await;
    shows(&other, "api_keys", json!(50)).await;
    // Null is the default; others stay.
    let (_, changed) = installation
        .set_quotas(&org, json!({"api_keys": null}))
        .await;
    assert_eq!(
        changed["quotas"],
        json!({"model_cost_per_day": 0.25, "settings": 0})
    );
    shows(&org, "api_keys", json!(50)).await;
    let (_, log) = installation
        .send(
            Method::GET,
            "/v1/audit-log?resource=org&action=changed",
            Some(&org.key),
            None,
        )
        .await;
    let entries = log["entries"].as_array().unwrap();
    assert_eq!(entries.len(), 2, "{log}");
    assert_eq!(entries[0]["changed"], json!(["quotas"]));
    assert_eq!(entries[0]["actor"], "operator");
}

#[tokio::test]
async fn concurrent_creations_do_not_exceed_a_quota() {
    let quotas = QuotaConfig {
        quota_api_keys: 2,
        ..NONE
    };
    let installation = Installation::with_quotas(quotas).await;
    let org = installation.new_org("Toys").await;
    let create = || {
        let request = json!({"name": "Backend"});
        installation.try_create(&org.key, "/v1/api-keys", request)
    };
    // The organisation has one key; nothing was measured yet.
    let mut creations: FuturesUnordered<_> = (0..50).map(|_| create()).collect();
    let mut created = 0;
    while let Some((status, answer)) = creations.next().await {
        if status == StatusCode::CREATED {
            created += 1;
        } else {
            assert_eq!(status, StatusCode::CONFLICT, "{answer}");
            assert_eq!(
                (&answer["type"], &answer["quota"], &answer["limit"]),
                (
                    &json!("/problems/quota_exceeded"),
                    &json!("api_keys"),
                    &json!(2)
                )
            );
        }
    }
    assert_eq!(created, 1);
    // The refused ones were not created.
    assert_eq!(
        installation.quota(&org, "api_keys").await,
        (json!(2), json!(2))
    );
}

#[tokio::test]
async fn token_far_from_the_quota_is_issued_without_a_look_at_its_device() {
    for quota_devices_known in [0, 100] {
        let quotas = QuotaConfig {
            quota_devices_known,
            ..NONE
        };
        let installation = Installation::with_quotas(quotas).await;
        let org = installation.new_org("Toys").await;
        let issue = async |id: u8| {
            let request = json!({"subject": format!("device:toy-{id}"), "scopes": ["device"]});
            let issued = installation.try_create(&org.key, "/v1/tokens", request);
            let (status, answer) = issued.await;
            assert_eq!(status, StatusCode::CREATED, "{answer}");
        };
        issue(0).await;
        let lock = installation.database.lock("devices").await.unwrap();
        issue(1).await;
        lock.release().await.unwrap();
    }
}

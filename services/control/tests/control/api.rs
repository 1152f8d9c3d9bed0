//! Organisations, API keys and access tokens.

use http::{Method, StatusCode};
use serde_json::{Value, json};
use switchboard_bus::TokenError;
use switchboard_protocol::token::{AccessError, Scope};
use switchboard_test_support::eventually::eventually_some;

use crate::installation::{Installation, OPERATOR_KEY, body};

#[tokio::test]
async fn only_the_operator_creates_organisations() {
    let installation = Installation::start().await;
    let check = async |credential: Option<&str>, body: Value, status: u16, slug: &str| {
        let (got, answer) = installation
            .send(Method::POST, "/v1/orgs", credential, Some(body))
            .await;
        assert_eq!(got.as_u16(), status, "{answer}");
        assert_eq!(
            answer["type"].as_str().unwrap_or_default(),
            slug,
            "{answer}"
        );
    };
    let named = || json!({"name": "Toys"});
    let operator = Some(OPERATOR_KEY);
    check(None, named(), 401, "/problems/missing_credentials").await;
    check(
        Some("not the operator's key"),
        named(),
        401,
        "/problems/token_malformed",
    )
    .await;
    let unknown = format!("sb_{}", "0".repeat(43));
    check(Some(&unknown), named(), 401, "/problems/unknown_api_key").await;
    check(operator, json!({"name": ""}), 422, "/problems/invalid_body").await;
    check(
        operator,
        json!({"name": "Toys", "plan": "gold"}),
        422,
        "/problems/invalid_body",
    )
    .await;
    check(operator, json!({}), 422, "/problems/invalid_body").await;
    check(operator, named(), 201, "").await;

    let org = installation.new_org("玩具").await;
    check(Some(&org.key), named(), 403, "/problems/operator_only").await;
    assert!(org.id.starts_with("org_") && org.key.starts_with("sb_"));
    let (status, keys) = installation
        .send(Method::GET, "/v1/api-keys", Some(&org.key), None)
        .await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(keys["api_keys"].as_array().unwrap().len(), 1);
    assert_eq!(keys["api_keys"][0]["prefix"], org.key[..11]);
    assert_eq!(
        keys["api_keys"][0]["scopes"],
        json!(["device", "call", "read", "admin", "provision"])
    );
    assert!(
        !keys.to_string().contains(&org.key),
        "the list has a secret"
    );
}

#[tokio::test]
async fn missing_operator_key_is_explained() {
    let installation = Installation::without_operator().await;
    let body = Some(json!({"name": "Toys"}));
    let (status, problem) = installation
        .send(Method::POST, "/v1/orgs", Some(OPERATOR_KEY), body)
        .await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    assert!(
        problem["detail"]
            .as_str()
            .unwrap()
            .contains("SWITCHBOARD_OPERATOR_KEY"),
        "{problem}"
    );
}

#[tokio::test]
async fn token_is_verified_with_the_key_set() {
    let installation = Installation::start().await;
    installation.trusted().await;
    let org = installation.new_org("Toys").await;
    let body = json!({"subject": "device:toy-1", "scopes": ["device"], "ttl_s": 60});
    let (status, token) = installation
        .send(Method::POST, "/v1/tokens", Some(&org.key), Some(body))
        .await;
    assert_eq!(status, StatusCode::CREATED, "{token}");
    assert_eq!(
        (&token["token_type"], &token["expires_in"]),
        (&json!("Bearer"), &json!(60))
    );
    let claims = installation
        .bus
        .verify(token["access_token"].as_str().unwrap())
        .unwrap();
    assert_eq!(claims.id.to_string(), token["token_id"]);
    assert_eq!(
        (claims.org.to_string(), claims.subject.to_string()),
        (org.id, "device:toy-1".to_owned())
    );
    assert_eq!(claims.scopes.iter().collect::<Vec<_>>(), [Scope::Device]);
    assert_eq!(claims.expires_at - claims.issued_at, 60);

    let (status, jwks) = installation
        .send(Method::GET, "/.well-known/jwks.json", None, None)
        .await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(
        (&jwks["keys"][0]["kty"], &jwks["keys"][0]["crv"]),
        (&json!("OKP"), &json!("Ed25519"))
    );
    assert!(
        jwks["keys"][0].get("d").is_none(),
        "the key set has a private key"
    );
}

#[tokio::test]
async fn public_keys_are_served_without_the_database() {
    const PATH: &str = "/.well-known/jwks.json";
    let installation = Installation::idle(None).await;
    let get = async || installation.request(Method::GET, PATH, None, None).await;
    let early = get().await;
    assert_eq!(early.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(early.headers()["retry-after"], "1");
    assert_eq!(body(early).await["type"], "/problems/store_unavailable");

    installation.start_workers();
    installation.trusted().await;
    let before = body(get().await).await;
    assert_eq!(before["keys"].as_array().unwrap().len(), 1, "{before}");
    installation.database.set_unavailable(true).await.unwrap();
    let response = get().await;
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.headers()["cache-control"], "public, max-age=60");
    assert_eq!(body(response).await, before);
    installation.database.set_unavailable(false).await.unwrap();
}

#[tokio::test]
async fn invalid_token_request_has_a_reason() {
    let installation = Installation::start().await;
    let org = installation.new_org("Toys").await;
    let check = async |body: Value, status: u16, mentions: &str| {
        let (got, problem) = installation
            .send(Method::POST, "/v1/tokens", Some(&org.key), Some(body))
            .await;
        assert_eq!(got.as_u16(), status, "{problem}");
        assert!(
            problem["detail"]
                .as_str()
                .unwrap_or_default()
                .contains(mentions),
            "{problem}"
        );
    };
    let request = |subject: &str, scopes: Value| json!({"subject": subject, "scopes": scopes});
    check(request("device:toy-1", json!(["device"])), 201, "").await;
    check(request("client:app", json!(["call", "read"])), 201, "").await;
    check(request("device:toy-1", json!([])), 422, "at least one").await;
    check(
        request("device:toy-1", json!(["device", "call"])),
        422,
        "no other",
    )
    .await;
    check(request("device:toy-1", json!(["call"])), 422, "no other").await;
    check(request("client:app", json!(["device"])), 422, "device:").await;
    check(request("toy-1", json!(["device"])), 422, "subject").await;
    check(request("device:a b", json!(["device"])), 422, "subject").await;
    check(request("client:app", json!(["fly"])), 422, "scopes").await;
    check(json!({"subject": "client:app"}), 422, "scopes").await;
    check(
        json!({"subject": "client:app", "scopes": ["read"], "ttl": 5}),
        422,
        "ttl",
    )
    .await;
    check(
        json!({"subject": "client:app", "scopes": ["read"], "ttl_s": 0}),
        422,
        "from 1 to",
    )
    .await;
    check(
        json!({"subject": "client:app", "scopes": ["read"], "ttl_s": 99_999_999}),
        422,
        "from 1 to",
    )
    .await;
    check(
        json!({"subject": "client:app", "scopes": ["read"], "ttl_s": -1}),
        422,
        "ttl_s",
    )
    .await;
}

#[tokio::test]
async fn scope_that_is_not_held_cannot_be_granted() {
    let installation = Installation::start().await;
    let org = installation.new_org("Toys").await;
    let body = json!({"name": "back office", "scopes": ["admin", "read"]});
    let (status, key) = installation
        .send(Method::POST, "/v1/api-keys", Some(&org.key), Some(body))
        .await;
    assert_eq!(status, StatusCode::CREATED, "{key}");
    let limited = key["api_key"].as_str().unwrap();

    let check = async |path: &str, body: Value, status: u16, slug: &str| {
        let (got, answer) = installation
            .send(Method::POST, path, Some(limited), Some(body))
            .await;
        assert_eq!(got.as_u16(), status, "{answer}");
        assert_eq!(
            answer["type"].as_str().unwrap_or_default(),
            slug,
            "{answer}"
        );
    };
    let (held, not_held) = ("", "/problems/scope_not_held");
    check(
        "/v1/tokens",
        json!({"subject": "client:a", "scopes": ["read"]}),
        201,
        held,
    )
    .await;
    check(
        "/v1/tokens",
        json!({"subject": "client:a", "scopes": ["call"]}),
        403,
        not_held,
    )
    .await;
    check(
        "/v1/tokens",
        json!({"subject": "device:a", "scopes": ["device"]}),
        403,
        not_held,
    )
    .await;
    check(
        "/v1/api-keys",
        json!({"name": "k", "scopes": ["call"]}),
        403,
        not_held,
    )
    .await;
    check("/v1/api-keys", json!({"name": "k"}), 201, held).await;

    let reader = json!({"name": "reader", "scopes": ["read"]});
    let (_, key) = installation
        .send(Method::POST, "/v1/api-keys", Some(&org.key), Some(reader))
        .await;
    let reader = key["api_key"].as_str();
    for path in ["/v1/api-keys", "/v1/tokens"] {
        let body = json!({"name": "k", "subject": "client:a", "scopes": ["read"]});
        let (status, problem) = installation
            .send(Method::POST, path, reader, Some(body))
            .await;
        assert_eq!(
            (status, &problem["scope"]),
            (StatusCode::FORBIDDEN, &json!("admin")),
            "{problem}"
        );
    }
}

#[tokio::test]
async fn token_is_revoked_immediately_by_its_org_only() {
    let installation = Installation::start().await;
    installation.trusted().await;
    let org = installation.new_org("Toys").await;
    let stranger = installation.new_org("Others").await;
    let body = json!({"subject": "client:app", "scopes": ["admin"]});
    let (_, token) = installation
        .send(Method::POST, "/v1/tokens", Some(&org.key), Some(body))
        .await;
    let access_token = token["access_token"].as_str().unwrap();
    let path = format!("/v1/tokens/{}", token["token_id"].as_str().unwrap());
    let (status, _) = installation
        .send(Method::GET, "/v1/api-keys", Some(access_token), None)
        .await;
    assert_eq!(status, StatusCode::OK);

    let (status, _) = installation
        .send(Method::DELETE, &path, Some(&stranger.key), None)
        .await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    for _ in 0..2 {
        let (status, body) = installation
            .send(Method::DELETE, &path, Some(&org.key), None)
            .await;
        assert_eq!(status, StatusCode::NO_CONTENT, "{body}");
    }
    let refused = installation.bus.verify(access_token).unwrap_err();
    assert_eq!(refused, TokenError::Access(AccessError::Revoked));
    let (status, problem) = installation
        .send(Method::GET, "/v1/api-keys", Some(access_token), None)
        .await;
    assert_eq!(
        (status, &problem["type"]),
        (StatusCode::UNAUTHORIZED, &json!("/problems/token_revoked"))
    );

    for unknown in ["tok_00000000000000000000000000000000", "nonsense"] {
        let path = format!("/v1/tokens/{unknown}");
        let (status, _) = installation
            .send(Method::DELETE, &path, Some(&org.key), None)
            .await;
        assert_eq!(status, StatusCode::NOT_FOUND);
    }
}

#[tokio::test]
async fn last_admin_key_cannot_be_revoked() {
    let installation = Installation::start().await;
    let org = installation.new_org("Toys").await;
    let (_, keys) = installation
        .send(Method::GET, "/v1/api-keys", Some(&org.key), None)
        .await;
    let first = keys["api_keys"][0]["api_key_id"].as_str().unwrap();
    let first = format!("/v1/api-keys/{first}");
    // A key without the scope `admin` does not count.
    for (name, scopes) in [("caller", json!(["call"])), ("second", json!(["admin"]))] {
        let (status, problem) = installation
            .send(Method::DELETE, &first, Some(&org.key), None)
            .await;
        assert_eq!(
            (status, &problem["type"]),
            (StatusCode::CONFLICT, &json!("/problems/last_admin_key")),
            "before {name}"
        );
        let body = json!({"name": name, "scopes": scopes});
        let (status, _) = installation
            .send(Method::POST, "/v1/api-keys", Some(&org.key), Some(body))
            .await;
        assert_eq!(status, StatusCode::CREATED);
    }
    let (status, _) = installation
        .send(Method::DELETE, &first, Some(&org.key), None)
        .await;
    assert_eq!(status, StatusCode::NO_CONTENT);
}

#[tokio::test]
async fn revoked_key_is_rejected_within_seconds() {
    let installation = Installation::start().await;
    let org = installation.new_org("Toys").await;
    let body = json!({"name": "second"});
    let (_, key) = installation
        .send(Method::POST, "/v1/api-keys", Some(&org.key), Some(body))
        .await;
    let second = key["api_key"].as_str().unwrap();
    let (status, _) = installation
        .send(Method::GET, "/v1/api-keys", Some(second), None)
        .await;
    assert_eq!(status, StatusCode::OK);

    let path = format!("/v1/api-keys/{}", key["api_key_id"].as_str().unwrap());
    let stranger = installation.new_org("Others").await;
    let (status, _) = installation
        .send(Method::DELETE, &path, Some(&stranger.key), None)
        .await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    let (status, _) = installation
        .send(Method::DELETE, &path, Some(&org.key), None)
        .await;
    assert_eq!(status, StatusCode::NO_CONTENT);
    eventually_some("the key is rejected", async || {
        let (status, problem) = installation
            .send(Method::GET, "/v1/api-keys", Some(second), None)
            .await;
        (status == StatusCode::UNAUTHORIZED)
            .then(|| assert_eq!(problem["type"], "/problems/unknown_api_key"))
    })
    .await;
}

#[tokio::test]
async fn keys_are_listed_in_pages() {
    let installation = Installation::start().await;
    let org = installation.new_org("Toys").await;
    for name in ["b", "c"] {
        let body = Some(json!({"name": name}));
        installation
            .send(Method::POST, "/v1/api-keys", Some(&org.key), body)
            .await;
    }
    let mut names = Vec::new();
    let mut path = "/v1/api-keys?limit=2".to_owned();
    loop {
        let (status, page) = installation
            .send(Method::GET, &path, Some(&org.key), None)
            .await;
        assert_eq!(status, StatusCode::OK, "{page}");
        names.extend(
            page["api_keys"]
                .as_array()
                .unwrap()
                .iter()
                .map(|key| key["name"].clone()),
        );
        let Some(cursor) = page["next_cursor"].as_str() else {
            break;
        };
        path = format!("/v1/api-keys?limit=2&cursor={cursor}");
    }
    assert_eq!(names, [json!("first key"), json!("b"), json!("c")]);
    for query in ["limit=0", "limit=201", "limit=x", "cursor=x", "page=2"] {
        let path = format!("/v1/api-keys?{query}");
        let (status, problem) = installation
            .send(Method::GET, &path, Some(&org.key), None)
            .await;
        assert_eq!(
            (status, &problem["type"]),
            (StatusCode::BAD_REQUEST, &json!("/problems/invalid_query")),
            "{query}"
        );
    }
}

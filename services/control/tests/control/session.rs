//! Who a caller is, and sessions of the console behind a proxy that ends HTTPS.

use http::{HeaderMap, Method, Request, StatusCode, header, request::Builder};
use serde_json::{Value, json};
use switchboard_test_support::eventually::eventually_some;

use crate::installation::{Installation, OPERATOR_KEY, Org, body};

/// What the console sends with its requests.
const CONSOLE: [(&str, &str); 2] = [
    ("sec-fetch-site", "same-origin"),
    ("x-switchboard-console", "1"),
];

fn request(method: Method, path: &str, headers: &[(&str, &str)]) -> Builder {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::HOST, "toys.example")
        .header("x-forwarded-proto", "https");
    headers.iter().fold(request, |request, (name, value)| {
        request.header(*name, *value)
    })
}

impl Installation {
    async fn send_with(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        document: Option<Value>,
    ) -> (StatusCode, HeaderMap, Value) {
        let mut request = request(method, path, headers);
        if document.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let document = document.map_or_else(String::new, |document| document.to_string());
        let response = self.answer(request.body(document.into()).unwrap()).await;
        let (status, headers) = (response.status(), response.headers().clone());
        (status, headers, body(response).await)
    }

    async fn sign_in(&self, key: &str) -> (StatusCode, HeaderMap, Value) {
        let document = json!({"api_key": key});
        self.send_with(Method::POST, "/v1/session", &[], Some(document))
            .await
    }

    /// The cookie of a new session, as the browser sends it.
    async fn cookie(&self, key: &str) -> String {
        let (status, headers, seen) = self.sign_in(key).await;
        assert_eq!(status, StatusCode::OK, "{seen}");
        let cookie = headers[header::SET_COOKIE].to_str().unwrap();
        cookie.split(';').next().unwrap().to_owned()
    }

    async fn get_with(&self, path: &str, cookie: &str) -> (StatusCode, Value) {
        let [site, console] = CONSOLE;
        let headers = [site, console, ("cookie", cookie)];
        let (status, _, answer) = self.send_with(Method::GET, path, &headers, None).await;
        (status, answer)
    }
}

#[tokio::test]
async fn session_stands_for_its_key() {
    let installation = Installation::start().await;
    let org = installation.new_org("Toys").await;
    let (status, headers, seen) = installation.sign_in(&org.key).await;
    assert_eq!(status, StatusCode::OK, "{seen}");
    assert_eq!(seen["org_id"], json!(org.id));
    assert_eq!(
        (&seen["org_name"], &seen["is_operator"]),
        (&json!("Toys"), &json!(false))
    );
    assert_eq!(seen["actor"]["kind"], "api_key");
    assert_eq!(seen["device_port"], 7799);
    assert_eq!(
        seen["restrictions"],
        json!({"device_prefix": null, "device_label": null, "services": null})
    );
    assert!(seen["expires_at"].is_string(), "{seen}");
    assert_eq!(headers[header::CACHE_CONTROL], "no-store");
    let cookie = headers[header::SET_COOKIE].to_str().unwrap();
    assert!(cookie.starts_with("__Host-switchboard="), "{cookie}");
    assert!(
        cookie.ends_with("; Path=/; HttpOnly; SameSite=Strict; Secure"),
        "{cookie}"
    );
    assert!(!cookie.contains(&org.key));
    let cookie = cookie.split(';').next().unwrap();
    let (status, again) = installation.get_with("/v1/session", cookie).await;
    assert_eq!((status, &again["actor"]), (StatusCode::OK, &seen["actor"]));
    let (status, _) = installation.get_with("/v1/org", cookie).await;
    assert_eq!(status, StatusCode::OK);
    // Changes have the key as their author.
    let headers = [CONSOLE[0], CONSOLE[1], ("cookie", cookie)];
    let document = Some(json!({"name": "made in the console", "scopes": ["call"]}));
    let made = installation.send_with(Method::POST, "/v1/api-keys", &headers, document);
    assert_eq!(made.await.0, StatusCode::CREATED);
    let (_, log) = installation.get_with("/v1/audit-log", cookie).await;
    let entries = log["entries"].as_array().unwrap();
    let entry = entries.last().unwrap();
    assert_eq!(entry["actor"], seen["actor"]["id"], "{log}");
}

#[tokio::test]
async fn session_is_for_pages_of_the_console_only() {
    let installation = Installation::start().await;
    let org = installation.new_org("Toys").await;
    let cookie = installation.cookie(&org.key).await;
    let check =
        async |method: Method, path: &str, headers: &[(&str, &str)], expected: (u16, &str)| {
            let headers: Vec<_> = headers
                .iter()
                .copied()
                .chain([("cookie", cookie.as_str())])
                .collect();
            let (status, _, answer) = installation.send_with(method, path, &headers, None).await;
            let kind = answer["type"].as_str().unwrap_or_default();
            assert_eq!((status.as_u16(), kind), expected, "{path} {headers:?}");
        };
    let refused = (403, "/problems/cross_site_request");
    let [site, console] = CONSOLE;
    let path = "/v1/org";
    check(Method::GET, path, &[site, console], (200, "")).await;
    check(Method::GET, path, &[console], (200, "")).await;
    check(
        Method::GET,
        path,
        &[console, ("origin", "https://toys.example")],
        (200, ""),
    )
    .await;
    check(
        Method::GET,
        path,
        &[console, ("origin", "https://evil.example")],
        refused,
    )
    .await;
    check(Method::GET, path, &[site], refused).await;
    check(Method::GET, path, &[], refused).await;
    check(Method::DELETE, "/v1/webhooks/x", &[site], refused).await;
    for other in ["same-site", "cross-site", "none"] {
        check(
            Method::GET,
            path,
            &[("sec-fetch-site", other), console],
            refused,
        )
        .await;
    }
    // An element of a page loads media without the header.
    let picture = "/v1/pictures/pic_00000000000000000000000000000001/content";
    check(Method::GET, picture, &[site], (404, "/problems/not_found")).await;
    check(
        Method::GET,
        picture,
        &[("sec-fetch-site", "cross-site")],
        refused,
    )
    .await;
    check(
        Method::POST,
        picture,
        &[site],
        (405, "/problems/method_not_allowed"),
    )
    .await;
    // A credential in a header is what counts.
    let bearer = format!("Bearer {}", org.key);
    check(Method::GET, path, &[("authorization", &bearer)], (200, "")).await;
    check(
        Method::GET,
        path,
        &[("authorization", "Bearer x"), site, console],
        (401, "/problems/token_malformed"),
    )
    .await;
}

#[tokio::test]
async fn another_site_neither_signs_in_nor_out() {
    let installation = Installation::start().await;
    let org = installation.new_org("Toys").await;
    let cookie = installation.cookie(&org.key).await;
    let foreign = [
        ("sec-fetch-site", "cross-site"),
        CONSOLE[1],
        ("cookie", &*cookie),
    ];
    let ended = installation.send_with(Method::DELETE, "/v1/session", &foreign, None);
    assert_eq!(ended.await.0, StatusCode::FORBIDDEN);
    let document = Some(json!({"api_key": org.key}));
    let begun = installation.send_with(Method::POST, "/v1/session", &foreign, document);
    assert_eq!(begun.await.0, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn session_ends_with_its_key_and_by_sign_out() {
    let installation = Installation::start().await;
    let org = installation.new_org("Toys").await;
    let document = json!({"name": "guest", "scopes": ["read"]});
    let made = installation.send(Method::POST, "/v1/api-keys", Some(&org.key), Some(document));
    let (_, made) = made.await;
    let cookie = installation.cookie(made["api_key"].as_str().unwrap()).await;
    assert_eq!(
        installation.get_with("/v1/org", &cookie).await.0,
        StatusCode::OK
    );
    let path = format!("/v1/api-keys/{}", made["api_key_id"].as_str().unwrap());
    let revoked = installation.send(Method::DELETE, &path, Some(&org.key), None);
    assert_eq!(revoked.await.0, StatusCode::NO_CONTENT);
    eventually_some("the session has ended", async || {
        let (status, problem) = installation.get_with("/v1/org", &cookie).await;
        (status == 401).then(|| assert_eq!(problem["type"], "/problems/unknown_api_key"))
    })
    .await;
    // Tampered, truncated, and empty.
    let valid = installation.cookie(&org.key).await;
    let (name, value) = valid.split_once('=').unwrap();
    let other = if value.starts_with('A') { "B" } else { "A" };
    for value in [
        format!("{other}{}", &value[1..]),
        value[..40].to_owned(),
        String::new(),
    ] {
        let (status, problem) = installation
            .get_with("/v1/org", &format!("{name}={value}"))
            .await;
        assert_eq!(
            (status.as_u16(), &problem["type"]),
            (401, &json!("/problems/session_expired"))
        );
    }
    let headers = [CONSOLE[0], CONSOLE[1], ("cookie", valid.as_str())];
    let (status, headers, _) = installation
        .send_with(Method::DELETE, "/v1/session", &headers, None)
        .await;
    assert_eq!(status, StatusCode::NO_CONTENT);
    let cleared: Vec<_> = headers.get_all(header::SET_COOKIE).iter().collect();
    assert_eq!(cleared.len(), 2);
    assert!(
        cleared
            .iter()
            .all(|cookie| cookie.to_str().unwrap().ends_with("Max-Age=0"))
    );
}

#[tokio::test]
async fn operator_has_a_session_without_an_organisation() {
    let installation = Installation::start().await;
    installation.new_org("Toys").await;
    let (status, headers, seen) = installation.sign_in(OPERATOR_KEY).await;
    assert_eq!(status, StatusCode::OK, "{seen}");
    assert_eq!(
        (&seen["is_operator"], &seen["org_id"]),
        (&json!(true), &Value::Null)
    );
    let cookie = headers[header::SET_COOKIE].to_str().unwrap();
    let cookie = cookie.split(';').next().unwrap();
    let (status, orgs) = installation.get_with("/v1/orgs", cookie).await;
    assert_eq!(status, StatusCode::OK, "{orgs}");
    let (status, seen) = installation.get_with("/v1/session", cookie).await;
    assert_eq!(
        (status, &seen["actor"]["kind"]),
        (StatusCode::OK, &json!("operator"))
    );
    let (status, problem) = installation.get_with("/v1/org", cookie).await;
    assert_eq!(
        (status.as_u16(), &problem["type"]),
        (403, &json!("/problems/organisation_required"))
    );
    // The session of an organisation is not that of the operator.
    let org = installation.new_org("Games").await;
    let cookie = installation.cookie(&org.key).await;
    let (status, problem) = installation.get_with("/v1/orgs", &cookie).await;
    assert_eq!(
        (status.as_u16(), &problem["type"]),
        (403, &json!("/problems/operator_only"))
    );
    let bearer = installation.send(Method::GET, "/v1/session", Some(OPERATOR_KEY), None);
    assert_eq!(bearer.await.1["is_operator"], json!(true));
}

#[tokio::test]
async fn sign_in_needs_https_and_a_key_and_is_limited() {
    let installation = Installation::start().await;
    let org: Org = installation.new_org("Toys").await;
    let plain = installation.request(
        Method::POST,
        "/v1/session",
        None,
        Some(json!({"api_key": org.key})),
    );
    let plain = plain.await;
    assert_eq!(plain.status(), StatusCode::BAD_REQUEST);
    assert_eq!(body(plain).await["type"], "/problems/insecure_session");
    let check = async |document: Value, expected: (u16, &str)| {
        let sent = installation.send_with(Method::POST, "/v1/session", &[], Some(document));
        let (status, headers, problem) = sent.await;
        let kind = problem["type"].as_str().unwrap_or_default();
        assert_eq!((status.as_u16(), kind), expected, "{problem}");
        assert!(!headers.contains_key(header::SET_COOKIE));
    };
    check(json!({}), (422, "/problems/invalid_body")).await;
    check(
        json!({"api_key": org.key, "code": "x"}),
        (422, "/problems/invalid_body"),
    )
    .await;
    check(json!({"api_key": "x"}), (401, "/problems/token_malformed")).await;
    let unknown = "sb_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
    check(
        json!({"api_key": unknown}),
        (401, "/problems/unknown_api_key"),
    )
    .await;
    check(
        json!({"code": "x"}),
        (401, "/problems/sign_in_code_refused"),
    )
    .await;
    eventually_some("the address is over its rate", async || {
        let (status, headers, _) = installation.sign_in("x").await;
        (status == 429).then(|| assert!(headers.contains_key(header::RETRY_AFTER)))
    })
    .await;
}

#[tokio::test]
async fn secret_of_a_repeated_creation_is_for_the_same_session() {
    let installation = Installation::start().await;
    let org = installation.new_org("Toys").await;
    let create = async |cookie: &str| {
        let headers = [
            CONSOLE[0],
            CONSOLE[1],
            ("cookie", cookie),
            ("idempotency-key", "one"),
        ];
        let document = Some(json!({"name": "ci", "scopes": ["call"]}));
        let (status, _, key) = installation
            .send_with(Method::POST, "/v1/api-keys", &headers, document)
            .await;
        (status.as_u16(), key)
    };
    let (first, second) = (
        installation.cookie(&org.key).await,
        installation.cookie(&org.key).await,
    );
    let (status, key) = create(&first).await;
    assert_eq!(status, 201, "{key}");
    assert_eq!(create(&first).await, (201, key));
    let (status, problem) = create(&second).await;
    assert_eq!(
        (status, &problem["type"]),
        (409, &json!("/problems/idempotency_answer_sealed"))
    );
}

//! `Idempotency-Key` on every operation that supports it.

use std::collections::BTreeSet;

use axum::{body::Body, response::Response};
use http::{Method, Request, StatusCode, header};
use http_body_util::BodyExt;
use serde_json::{Value, json};

use crate::{
    cases::{Case, Content, Operation, credential, operations, png},
    installation::{Installation, OPERATOR_KEY, body},
};

/// The parts of a response that a replay must repeat.
async fn read(response: Response) -> (StatusCode, Vec<Option<String>>, Vec<u8>, bool) {
    let names = [
        header::CONTENT_TYPE,
        header::LOCATION,
        header::ETAG,
        header::CACHE_CONTROL,
    ];
    let text = |name| {
        response
            .headers()
            .get(name)
            .map(|value| value.to_str().unwrap().to_owned())
    };
    let headers = names.map(text).to_vec();
    let replayed = response
        .headers()
        .get("idempotency-replayed")
        .is_some_and(|value| value == "true");
    let status = response.status();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (status, headers, bytes.to_vec(), replayed)
}

/// A different request to the same path.
fn other(case: &Case) -> Case {
    let content = match &case.content {
        Content::Json(Value::Object(members)) => {
            let mut members = members.clone();
            members.insert("name".to_owned(), "another".into());
            Content::Json(Value::Object(members))
        }
        _ => Content::Bytes(png(4)),
    };
    Case {
        method: case.method.clone(),
        path: case.path.clone(),
        content,
        if_match: false,
    }
}

async fn slug(response: Response) -> (u16, String) {
    let status = response.status().as_u16();
    (
        status,
        body(response).await["type"]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
    )
}

fn keyed() -> Vec<Operation> {
    let all = operations();
    // Operations that create something support the header; these are idempotent without it, and nothing
    // is stored for a session.
    let repeatable = [
        "finishSkillsBook",
        "cancelSkillsBook",
        "trainVoice",
        "createSession",
    ];
    for operation in all.iter().filter(|operation| {
        operation.method == Method::POST && !repeatable.contains(&operation.id.as_str())
    }) {
        assert!(
            operation.keyed,
            "{} makes something and takes no Idempotency-Key",
            operation.id
        );
    }
    all.into_iter()
        .filter(|operation| operation.keyed)
        .collect()
}

#[tokio::test]
async fn repeated_request_is_replayed() {
    let installation = Installation::start().await;
    let org = installation.new_org("own").await;
    for operation in keyed() {
        let case = installation.case(&operation, &org).await;
        let credential = credential(&operation, &org);
        let key = Some(operation.id.as_str());
        let (status, headers, first, replayed) =
            read(installation.send_case(&case, credential, key).await).await;
        assert_eq!(
            (status, replayed),
            (StatusCode::CREATED, false),
            "{}",
            operation.id
        );
        let again = read(installation.send_case(&case, credential, key).await).await;
        assert_eq!(
            again,
            (status, headers, first.clone(), true),
            "{}",
            operation.id
        );
        let reused = slug(installation.send_case(&other(&case), credential, key).await).await;
        assert_eq!(
            reused,
            (422, "/problems/idempotency_key_reused".to_owned()),
            "{}",
            operation.id
        );
        let (_, _, without, _) = read(installation.send_case(&case, credential, None).await).await;
        assert_ne!(without, first, "{}", operation.id);
        let bad = slug(
            installation
                .send_case(&case, credential, Some("two words"))
                .await,
        )
        .await;
        assert_eq!(
            bad,
            (400, "/problems/invalid_idempotency_key".to_owned()),
            "{}",
            operation.id
        );
    }
    let (_, templates) = installation
        .send(Method::GET, "/v1/templates?limit=200", Some(&org.key), None)
        .await;
    // One for `createMemories`, and two for each of `createTemplate` and
    // `importTemplate`: with the key and without it.
    assert_eq!(templates["templates"].as_array().unwrap().len(), 5);
}

#[tokio::test]
async fn concurrent_repetitions_execute_once() {
    let installation = Installation::start().await;
    let org = installation.new_org("own").await;
    for operation in keyed() {
        let case = installation.case(&operation, &org).await;
        let key = format!("at-once-{}", operation.id);
        let send =
            || installation.send_case(&case, credential(&operation, &org), Some(key.as_str()));
        let answers = tokio::join!(send(), send(), send(), send(), send(), send());
        let answers = [
            answers.0, answers.1, answers.2, answers.3, answers.4, answers.5,
        ];
        let mut created = BTreeSet::new();
        for answer in answers {
            let (status, _, bytes, _) = read(answer).await;
            match status {
                StatusCode::CREATED => {
                    assert!(created.insert(bytes.clone()) || created.contains(&bytes))
                }
                status => assert_eq!(status, StatusCode::CONFLICT, "{}", operation.id),
            }
        }
        assert_eq!(created.len(), 1, "{}", operation.id);
    }
}

#[tokio::test]
async fn key_belongs_to_its_caller_and_failures_release_it() {
    let installation = Installation::start().await;
    let (one, other) = (
        installation.new_org("one").await,
        installation.new_org("other").await,
    );
    let second_key = installation.key(&one, &["admin"]).await;
    let case = |name: Value| Case {
        method: Method::POST,
        path: "/v1/templates".to_owned(),
        content: Content::Json(json!({"name": name})),
        if_match: false,
    };
    let refused = installation
        .send_case(&case(json!("")), Some(&one.key), Some("k"))
        .await;
    assert_eq!(refused.status(), StatusCode::UNPROCESSABLE_ENTITY);
    let mut created = BTreeSet::new();
    for credential in [one.key.as_str(), &other.key, &second_key, OPERATOR_KEY] {
        let (status, _, bytes, replayed) = read(
            installation
                .send_case(&case(json!("B")), Some(credential), Some("k"))
                .await,
        )
        .await;
        assert_eq!((status, replayed), (StatusCode::CREATED, false));
        assert!(created.insert(bytes));
    }
}

#[tokio::test]
async fn stored_secret_is_replayed_to_its_credential_only() {
    let installation = Installation::start().await;
    installation.trusted().await;
    let org = installation.new_org("own").await;
    let token = async || {
        let wish = json!({"subject": "client:backend", "scopes": ["admin"]});
        let (_, created) = installation
            .send(Method::POST, "/v1/tokens", Some(&org.key), Some(wish))
            .await;
        created["access_token"].as_str().unwrap().to_owned()
    };
    let (first, second) = (token().await, token().await);
    let case = Case {
        method: Method::POST,
        path: "/v1/api-keys".to_owned(),
        content: Content::Json(json!({"name": "backend"})),
        if_match: false,
    };
    let created = body(installation.send_case(&case, Some(&first), Some("k")).await).await;
    let secret = created["api_key"].as_str().unwrap();
    // The same subject and key, but another credential than the one that got the secret.
    let refused = slug(
        installation
            .send_case(&case, Some(&second), Some("k"))
            .await,
    )
    .await;
    assert_eq!(
        refused,
        (409, "/problems/idempotency_answer_sealed".to_owned())
    );
    // Fails if any row contains the secret.
    let looks = format!(
        "DO $$ BEGIN IF EXISTS (SELECT FROM idempotent_requests WHERE position('{secret}'::bytea IN body) > 0 OR NOT sealed) \
         THEN RAISE EXCEPTION 'a secret in the clear'; END IF; END $$"
    );
    installation.database.execute(&looks).await.unwrap();
}

#[tokio::test]
async fn large_picture_is_accepted_with_a_key() {
    let installation = Installation::start().await;
    let org = installation.new_org("own").await;
    let mut picture = png(5);
    picture.resize(10 * 1024 * 1024, 0);
    let request = || {
        let request = Request::post("/v1/pictures")
            .header(header::AUTHORIZATION, format!("Bearer {}", org.key))
            .header("Idempotency-Key", "k");
        request.body(Body::from(picture.clone())).unwrap()
    };
    let (status, _, first, _) = read(installation.answer(request()).await).await;
    assert_eq!(status, StatusCode::CREATED);
    let (_, _, again, replayed) = read(installation.answer(request()).await).await;
    assert_eq!((again, replayed), (first, true));
}

//! `/v1/templates/{id}/memories` and `/v1/memories/{id}`.

use http::{Method, StatusCode, header};
use serde_json::{Value, json};

use crate::installation::{Installation, OPERATOR_KEY};

impl Installation {
    /// Creates a template. Returns the path of its memories.
    async fn memories_path(&self, key: &str) -> String {
        let (status, created) = self
            .send(
                Method::POST,
                "/v1/templates",
                Some(key),
                Some(json!({"name": "Bello"})),
            )
            .await;
        assert_eq!(status, StatusCode::CREATED, "{created}");
        format!("/v1/templates/{}/memories", created["id"].as_str().unwrap())
    }

    async fn texts(&self, key: &str, path: &str) -> Vec<Value> {
        let (status, page) = self.send(Method::GET, path, Some(key), None).await;
        assert_eq!(status, StatusCode::OK, "{page}");
        page["memories"]
            .as_array()
            .unwrap()
            .iter()
            .map(|memory| memory["text"].clone())
            .collect()
    }
}

#[tokio::test]
async fn memory_is_created_listed_and_deleted() {
    let installation = Installation::start().await;
    let org = installation.new_org("Toys").await;
    let path = installation.memories_path(&org.key).await;
    let document = json!({
        "text": "likes bones", "subject": "client:anna", "kind": "preference", "importance": 0.9, "source": "chat",
        "metadata": {"turn": 7}, "expires_at": "2999-01-01T00:00:00Z", "uri": "notes://bello/bones",
        "mime_type": "text/markdown",
    });
    let response = installation
        .request(Method::POST, &path, Some(&org.key), Some(document.clone()))
        .await;
    assert_eq!(response.status(), StatusCode::CREATED);
    let location = response.headers()[header::LOCATION]
        .to_str()
        .unwrap()
        .to_owned();
    let memory = crate::installation::body(response).await;
    assert_eq!(
        location,
        format!("/v1/memories/{}", memory["id"].as_str().unwrap())
    );
    for (name, value) in document.as_object().unwrap() {
        assert_eq!(&memory[name], value, "{name}");
    }
    let (_, page) = installation
        .send(Method::GET, &path, Some(&org.key), None)
        .await;
    assert_eq!(page, json!({"memories": [memory], "next_cursor": null}));

    for expected in [StatusCode::NO_CONTENT, StatusCode::NOT_FOUND] {
        let (status, _) = installation
            .send(Method::DELETE, &location, Some(&org.key), None)
            .await;
        assert_eq!(status, expected);
    }
    assert!(installation.texts(&org.key, &path).await.is_empty());
}

#[tokio::test]
async fn omitted_members_have_defaults() {
    let installation = Installation::start().await;
    let org = installation.new_org("Toys").await;
    let path = installation.memories_path(&org.key).await;
    let (_, memory) = installation
        .send(
            Method::POST,
            &path,
            Some(&org.key),
            Some(json!({"text": "a"})),
        )
        .await;
    assert_eq!(
        memory["uri"],
        format!("switchboard://memories/{}", memory["id"].as_str().unwrap())
    );
    assert_eq!(
        (
            &memory["mime_type"],
            &memory["importance"],
            &memory["metadata"],
            &memory["expires_at"]
        ),
        (&json!("text/plain"), &json!(0.5), &json!({}), &Value::Null)
    );
}

#[tokio::test]
async fn batch_is_stored_in_order() {
    let installation = Installation::start().await;
    let org = installation.new_org("Toys").await;
    let path = installation.memories_path(&org.key).await;
    let texts: Vec<_> = (0..100)
        .map(|index| json!({"text": format!("memory {index}")}))
        .collect();
    let (status, stored) = installation
        .send(
            Method::POST,
            &path,
            Some(&org.key),
            Some(json!({"memories": texts})),
        )
        .await;
    assert_eq!(status, StatusCode::CREATED, "{stored}");
    assert_eq!(stored["memories"].as_array().unwrap().len(), 100);
    let first = installation
        .texts(&org.key, &format!("{path}?limit=60"))
        .await;
    assert_eq!(
        (first.len(), &first[0], &first[59]),
        (60, &json!("memory 0"), &json!("memory 59"))
    );
    let (_, page) = installation
        .send(
            Method::GET,
            &format!("{path}?limit=60"),
            Some(&org.key),
            None,
        )
        .await;
    let rest = format!(
        "{path}?limit=60&cursor={}",
        page["next_cursor"].as_str().unwrap()
    );
    let rest = installation.texts(&org.key, &rest).await;
    assert_eq!(
        (rest.len(), &rest[0], &rest[39]),
        (40, &json!("memory 60"), &json!("memory 99"))
    );
}

#[tokio::test]
async fn invalid_batch_is_not_stored() {
    let installation = Installation::start().await;
    let org = installation.new_org("Toys").await;
    let path = installation.memories_path(&org.key).await;
    let check = async |batch: Value, status: u16, slug: &str, pointer: &str| {
        let (got, problem) = installation
            .send(Method::POST, &path, Some(&org.key), Some(batch))
            .await;
        assert_eq!(got.as_u16(), status, "{problem}");
        assert_eq!(
            (&problem["type"], &problem["errors"][0]["pointer"]),
            (&json!(format!("/problems/{slug}")), &json!(pointer))
        );
    };
    let one = json!({"text": "a", "uri": "notes://a"});
    check(
        json!({"memories": [one, {"text": "b"}, {"text": ""}]}),
        422,
        "invalid_body",
        "/memories/2/text",
    )
    .await;
    check(
        json!({"memories": [one, {"text": "b"}, one]}),
        409,
        "uri_taken",
        "/memories/2/uri",
    )
    .await;
    check(
        json!({"memories": vec![json!({"text": "a"}); 101]}),
        422,
        "invalid_body",
        "/memories",
    )
    .await;
    assert!(installation.texts(&org.key, &path).await.is_empty());
}

#[tokio::test]
async fn uri_is_unique_in_an_organisation() {
    let installation = Installation::start().await;
    let (org, other) = (
        installation.new_org("Toys").await,
        installation.new_org("Games").await,
    );
    let (path, others) = (
        installation.memories_path(&org.key).await,
        installation.memories_path(&other.key).await,
    );
    let check = async |path: &str, key: &str, status: u16| {
        let document = json!({"text": "a", "uri": "test://template/{id}/data"});
        let (got, answer) = installation
            .send(Method::POST, path, Some(key), Some(document))
            .await;
        assert_eq!(got.as_u16(), status, "{answer}");
    };
    check(&path, &org.key, 201).await;
    check(&path, &org.key, 409).await;
    check(&others, &other.key, 201).await;
}

#[tokio::test]
async fn memory_expires() {
    let installation = Installation::start().await;
    let org = installation.new_org("Toys").await;
    let path = installation.memories_path(&org.key).await;
    let document = json!({"text": "a", "uri": "notes://a", "expires_at": "2999-01-01T00:00:00Z"});
    let (_, memory) = installation
        .send(Method::POST, &path, Some(&org.key), Some(document.clone()))
        .await;
    installation
        .database
        .execute("UPDATE memories SET expires_at = now()")
        .await
        .unwrap();
    assert!(installation.texts(&org.key, &path).await.is_empty());
    let gone = format!("/v1/memories/{}", memory["id"].as_str().unwrap());
    let (status, _) = installation
        .send(Method::DELETE, &gone, Some(&org.key), None)
        .await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    let (status, answer) = installation
        .send(Method::POST, &path, Some(&org.key), Some(document))
        .await;
    assert_eq!(
        status,
        StatusCode::CREATED,
        "its URI is free again: {answer}"
    );
}

#[tokio::test]
async fn memories_of_others_are_not_accessible() {
    let installation = Installation::start().await;
    let (org, other) = (
        installation.new_org("Toys").await,
        installation.new_org("Games").await,
    );
    let path = installation.memories_path(&org.key).await;
    let (_, memory) = installation
        .send(
            Method::POST,
            &path,
            Some(&org.key),
            Some(json!({"text": "a"})),
        )
        .await;
    let one = format!("/v1/memories/{}", memory["id"].as_str().unwrap());
    for (method, path) in [
        (Method::GET, &path),
        (Method::POST, &path),
        (Method::DELETE, &one),
    ] {
        let (status, _) = installation
            .send(method, path, Some(&other.key), Some(json!({"text": "b"})))
            .await;
        assert_eq!(status, StatusCode::NOT_FOUND);
    }
    assert_eq!(installation.texts(&org.key, &path).await, ["a"]);
    let public = installation.memories_path(OPERATOR_KEY).await;
    let (status, _) = installation
        .send(
            Method::POST,
            &public,
            Some(&org.key),
            Some(json!({"text": "b"})),
        )
        .await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    let (status, _) = installation
        .send(
            Method::POST,
            &public,
            Some(OPERATOR_KEY),
            Some(json!({"text": "c"})),
        )
        .await;
    assert_eq!(status, StatusCode::CREATED);
    assert_eq!(installation.texts(&org.key, &public).await, ["c"]);
}

#[tokio::test]
async fn memories_are_deleted_with_their_template() {
    let installation = Installation::start().await;
    let org = installation.new_org("Toys").await;
    let path = installation.memories_path(&org.key).await;
    let document = json!({"text": "a", "uri": "notes://a"});
    installation
        .send(Method::POST, &path, Some(&org.key), Some(document))
        .await;
    let resources = async || {
        installation
            .store
            .list_resources(org.id(), None, 9)
            .await
            .unwrap()
            .len()
    };
    assert_eq!(resources().await, 1);
    let template = path.trim_end_matches("/memories");
    let request = http::Request::builder()
        .method(Method::DELETE)
        .uri(template)
        .header(header::AUTHORIZATION, format!("Bearer {}", org.key))
        .header(header::IF_MATCH, "\"1\"");
    let response = installation
        .answer(request.body(axum::body::Body::empty()).unwrap())
        .await;
    assert_eq!(response.status(), StatusCode::NO_CONTENT);
    assert_eq!(resources().await, 0);
}

#[tokio::test]
async fn memory_is_changed_by_a_merge_patch() {
    let installation = Installation::start().await;
    let org = installation.new_org("Toys").await;
    let other = installation.new_org("Games").await;
    let path = installation.memories_path(&org.key).await;
    let document =
        json!({"text": "likes bones", "kind": "fact", "expires_at": "2999-01-01T00:00:00Z"});
    let (_, memory) = installation
        .send(Method::POST, &path, Some(&org.key), Some(document))
        .await;
    assert_eq!(memory["version"], 1);
    let path = format!("/v1/memories/{}", memory["id"].as_str().unwrap());
    let patch = async |key: &str, patch: Value| {
        let patched = installation.send(Method::PATCH, &path, Some(key), Some(patch));
        patched.await
    };
    let change = json!({"text": "likes cats", "kind": null, "importance": 0.9, "subject": "user:anna", "expires_at": null});
    let (status, changed) = patch(&org.key, change).await;
    let mut expected = memory.clone();
    for (name, value) in [
        ("text", json!("likes cats")),
        ("kind", Value::Null),
        ("importance", json!(0.9)),
        ("subject", json!("user:anna")),
        ("expires_at", Value::Null),
        ("version", json!(2)),
    ] {
        expected[name] = value;
    }
    assert_eq!((status, &changed), (StatusCode::OK, &expected));
    let found = format!(
        "/v1/templates/{}/memories?q=cats",
        memory["template_id"].as_str().unwrap()
    );
    assert_eq!(installation.texts(&org.key, &found).await, ["likes cats"]);
    let check = async |key: &str, change: Value, status: StatusCode| {
        assert_eq!(patch(key, change.clone()).await.0, status, "{change}");
    };
    check(
        &org.key,
        json!({"uri": "a:b"}),
        StatusCode::UNPROCESSABLE_ENTITY,
    )
    .await;
    check(
        &org.key,
        json!({"text": " "}),
        StatusCode::UNPROCESSABLE_ENTITY,
    )
    .await;
    check(
        &org.key,
        json!({"text": null}),
        StatusCode::UNPROCESSABLE_ENTITY,
    )
    .await;
    check(
        &org.key,
        json!({"tekst": "a"}),
        StatusCode::UNPROCESSABLE_ENTITY,
    )
    .await;
    check(&other.key, json!({"text": "a"}), StatusCode::NOT_FOUND).await;
}

#[tokio::test]
async fn change_of_a_memory_may_require_its_version() {
    let installation = Installation::start().await;
    let org = installation.new_org("Toys").await;
    let path = installation.memories_path(&org.key).await;
    let document = json!({"text": "likes bones"});
    let (_, memory) = installation
        .send(Method::POST, &path, Some(&org.key), Some(document))
        .await;
    let path = format!("/v1/memories/{}", memory["id"].as_str().unwrap());
    let change = json!({"kind": "fact", "importance": 0.9});
    let changed = installation.patch(&org.key, &path, None, change).await;
    assert_eq!(changed.headers()[header::ETAG], "\"2\"");
    let conditional = async |tag: &'static str| {
        let body = json!({"text": "likes dogs"});
        installation.patch(&org.key, &path, Some(tag), body).await
    };
    assert_eq!(
        conditional("\"1\"").await.status(),
        StatusCode::PRECONDITION_FAILED
    );
    let response = conditional("\"2\"").await;
    assert_eq!(response.headers()[header::ETAG], "\"3\"");
    assert_eq!(conditional("\"3\"").await.headers()[header::ETAG], "\"3\"");
    let log = "/v1/audit-log?resource=memory&order=desc&limit=2";
    let (_, log) = installation
        .send(Method::GET, log, Some(&org.key), None)
        .await;
    assert_eq!(log["entries"][0]["changed"], json!(["text"]), "{log}");
    let names = json!(["importance", "kind"]);
    assert_eq!(log["entries"][1]["changed"], names, "{log}");
    let older = log["next_cursor"].as_str().unwrap();
    let log = format!("/v1/audit-log?resource=memory&order=desc&cursor={older}");
    let (_, log) = installation
        .send(Method::GET, &log, Some(&org.key), None)
        .await;
    assert_eq!(log["entries"][0]["action"], "created", "{log}");
    assert_eq!(log["entries"][1], Value::Null);
    let log = format!("/v1/audit-log?resource=memory&cursor={older}");
    let (status, _) = installation
        .send(Method::GET, &log, Some(&org.key), None)
        .await;
    assert_eq!(
        status,
        StatusCode::BAD_REQUEST,
        "a cursor of the other order"
    );
}

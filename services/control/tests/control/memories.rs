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

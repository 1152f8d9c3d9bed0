//! Lists of large elements: the size of a page is limited, and no element is left out.

use http::{Method, StatusCode};
use serde_json::{Value, json};
use switchboard_identity::ApiKeySecret;
use switchboard_protocol::{
    id::ApiKeyId,
    token::{Scope, Scopes},
};
use switchboard_runtime::budget::{Kind, Owner};
use switchboard_store::NewApiKey;
use uuid::Uuid;

use crate::installation::{Installation, Org};

/// The maximum size of the elements of a page, and of the JSON around them.
const MAX_PAGE_BYTES: usize = 4 * 1024 * 1024 + 64 * 1024;

/// Settings of about 900,000 bytes.
fn large(name: &str) -> Value {
    let message = json!({"role": "user", "content": {"type": "text", "text": "x".repeat(30_000)}});
    json!({"name": name, "prompt": {"messages": vec![message; 30]}})
}

/// The ids of each page, with the maximum `limit`.
async fn pages(installation: &Installation, org: &Org, path: &str) -> Vec<Vec<Value>> {
    let name = path.rsplit('/').next().unwrap();
    let (mut pages, mut cursor) = (Vec::new(), String::new());
    loop {
        let target = format!("{path}?limit=200{cursor}");
        let (status, page) = installation
            .send(Method::GET, &target, Some(&org.key), None)
            .await;
        assert_eq!(status, StatusCode::OK, "{target}");
        let bytes = page.to_string().len();
        assert!(bytes <= MAX_PAGE_BYTES, "{target}: {bytes}");
        let elements = page[name].as_array().unwrap().iter();
        pages.push(elements.map(|one| one["id"].clone()).collect());
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return pages,
        }
    }
}

#[tokio::test]
async fn page_of_large_elements_is_limited_in_bytes() {
    let installation = Installation::start().await;
    let org = installation.new_org("Toys").await;
    for (path, max) in [("/v1/templates", 4), ("/v1/npcs", 2)] {
        let mut expected = Vec::new();
        for index in 0..6 {
            let settings = large(&format!("T{index}"));
            let document = match path {
                "/v1/npcs" => json!({"overrides": settings}),
                _ => settings,
            };
            let (status, created) = installation
                .send(Method::POST, path, Some(&org.key), Some(document))
                .await;
            assert_eq!(status, StatusCode::CREATED, "{created}");
            expected.push(created["id"].clone());
        }
        let pages = pages(&installation, &org, path).await;
        let lengths: Vec<_> = pages.iter().map(Vec::len).collect();
        assert_eq!(pages.concat(), expected);
        assert!(
            lengths.iter().all(|length| (1..=max).contains(length)),
            "{path}: {lengths:?}"
        );
        assert_eq!(lengths[0], max, "{path}: {lengths:?}");
    }
}

#[tokio::test]
async fn page_of_large_memories_is_limited_in_bytes() {
    let installation = Installation::start().await;
    let org = installation.new_org("Toys").await;
    let send = async |path: &str, document: Value| {
        let key = Some(org.key.as_str());
        let created = installation.send(Method::POST, path, key, Some(document));
        let (status, created) = created.await;
        assert_eq!(status, StatusCode::CREATED, "{created}");
        created
    };
    let template = send("/v1/templates", json!({"name": "Bear"})).await;
    let path = format!(
        "/v1/templates/{}/memories",
        template["id"].as_str().unwrap()
    );
    let mut expected = Vec::new();
    for _ in 0..6 {
        let memory = json!({"text": "honey ".repeat(10_000).trim()});
        let batch = send(&path, json!({"memories": vec![memory; 14]})).await;
        let memories = batch["memories"].as_array().unwrap().iter();
        expected.extend(memories.map(|memory| memory["id"].clone()));
    }
    let pages = pages(&installation, &org, &path).await;
    let lengths: Vec<_> = pages.iter().map(Vec::len).collect();
    assert_eq!(lengths.iter().sum::<usize>(), 84);
    assert_eq!(lengths, [69, 15]);
    let mut listed = pages.concat();
    listed.sort_by_key(Value::to_string);
    expected.sort_by_key(Value::to_string);
    assert_eq!(listed, expected);
    let path = format!("{path}?q=honey&limit=200");
    let found = installation.send(Method::GET, &path, Some(&org.key), None);
    let (status, found) = found.await;
    assert_eq!(status, StatusCode::OK);
    assert!(found.to_string().len() <= MAX_PAGE_BYTES);
}

#[tokio::test]
async fn page_of_api_keys_is_charged_to_its_organisation() {
    let installation = Installation::start().await;
    let org = installation.new_org("Toys").await;
    for _ in 0..120 {
        let secret = ApiKeySecret::generate();
        let key = NewApiKey {
            id: ApiKeyId::from_uuid(Uuid::now_v7()),
            name: "🧸".repeat(100),
            prefix: secret.display_prefix().to_owned(),
            secret_hash: secret.hash(),
            scopes: [Scope::Call].into_iter().collect::<Scopes>(),
        };
        let created = installation.store.create_api_key(org.id(), &key).await;
        created.unwrap();
    }
    let list = async || {
        let path = "/v1/api-keys?limit=200";
        let found = installation.send(Method::GET, path, Some(&org.key), None);
        found.await
    };
    let (status, page) = list().await;
    assert_eq!(status, StatusCode::OK, "{page}");
    assert_eq!(page["api_keys"].as_array().unwrap().len(), 121);
    let responses = installation
        .budgets
        .bytes("http_responses", 1, Kind::quarter_of(1));
    let owner = Owner::Org(org.id().uuid());
    let share = responses.try_acquire(owner, responses.share()).unwrap();
    let (status, problem) = list().await;
    assert_eq!(
        (status, &problem["budget"]),
        (StatusCode::TOO_MANY_REQUESTS, &json!("http_responses"))
    );
    drop(share);
    assert_eq!(list().await.0, StatusCode::OK);
}

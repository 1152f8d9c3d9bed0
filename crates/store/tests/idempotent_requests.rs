//! Idempotency keys of requests in a real PostgreSQL.
#![expect(clippy::unwrap_used, reason = "test helpers may panic")]

use std::time::Duration;

use switchboard_catalog::TemplateSettings;
use switchboard_protocol::id::TemplateId;
use switchboard_store::{
    Owner, RequestClaim, RequestKey, Store, StoredResponse, testing::TestDatabase,
};
use uuid::Uuid;

const RESPONSE_TTL: Duration = Duration::from_secs(24 * 3600);
const KEY: RequestKey = RequestKey {
    owner: Owner::Installation,
    hash: [7; 32],
};

fn response() -> StoredResponse {
    StoredResponse {
        fingerprint: vec![8; 32],
        status: 201,
        location: Some("/v1/templates/x".to_owned()),
        etag: None,
        media_type: "application/json".to_owned(),
        body: b"{ \"a\": 1.0 }".to_vec(),
        sealed: false,
    }
}

/// Creates a template under the key, and commits or not.
async fn create_template(store: &Store, retention: Duration, commit: bool) {
    let mut creation = store.begin(KEY.owner).await.unwrap();
    assert_eq!(
        creation.claim_request(&KEY).await.unwrap(),
        RequestClaim::Free
    );
    let id = TemplateId::from_uuid(Uuid::now_v7());
    let settings = TemplateSettings {
        name: "Bello".to_owned(),
        ..TemplateSettings::default()
    };
    let created = creation.create_template(KEY.owner, id, &settings).await;
    created.unwrap();
    creation
        .store_response(&KEY, &response(), retention)
        .await
        .unwrap();
    if commit {
        creation.commit().await.unwrap();
    }
}

async fn templates(store: &Store) -> usize {
    let found = store.templates(KEY.owner, false, None, 9).await;
    found.unwrap().elements.len()
}

#[tokio::test]
async fn response_is_stored_with_its_effects() {
    let database = TestDatabase::create().await.unwrap();
    let store = database.store();
    // As when the process terminates before the commit.
    create_template(&store, RESPONSE_TTL, false).await;
    assert_eq!(templates(&store).await, 0);
    assert_eq!(store.stored_response(&KEY).await.unwrap(), None);

    create_template(&store, RESPONSE_TTL, true).await;
    assert_eq!(templates(&store).await, 1);
    assert_eq!(store.stored_response(&KEY).await.unwrap(), Some(response()));
    let mut second = store.begin(KEY.owner).await.unwrap();
    let claim = second.claim_request(&KEY).await.unwrap();
    assert_eq!(claim, RequestClaim::Completed(Box::new(response())));
}

#[tokio::test]
async fn concurrent_claim_reports_busy() {
    let database = TestDatabase::create().await.unwrap();
    let store = database.store();
    let mut first = store.begin(KEY.owner).await.unwrap();
    let mut second = store.begin(KEY.owner).await.unwrap();
    assert_eq!(first.claim_request(&KEY).await.unwrap(), RequestClaim::Free);
    assert_eq!(
        second.claim_request(&KEY).await.unwrap(),
        RequestClaim::Busy
    );
    drop(second);
    first
        .store_response(&KEY, &response(), RESPONSE_TTL)
        .await
        .unwrap();
    first.commit().await.unwrap();
    let mut third = store.begin(KEY.owner).await.unwrap();
    assert!(matches!(
        third.claim_request(&KEY).await.unwrap(),
        RequestClaim::Completed(_)
    ));
}

#[tokio::test]
async fn expired_response_frees_its_key() {
    let database = TestDatabase::create().await.unwrap();
    let store = database.store();
    create_template(&store, Duration::ZERO, true).await;
    assert_eq!(store.stored_response(&KEY).await.unwrap(), None);
    create_template(&store, Duration::ZERO, true).await;
    assert_eq!(store.purge_responses().await.unwrap(), 1);
    create_template(&store, RESPONSE_TTL, true).await;
    assert_eq!(store.purge_responses().await.unwrap(), 0);
    assert!(store.stored_response(&KEY).await.unwrap().is_some());
}

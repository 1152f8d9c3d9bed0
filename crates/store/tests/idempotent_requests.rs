//! Answers under idempotency keys against a real PostgreSQL.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::time::Duration;

use switchboard_protocol::id::TemplateId;
use switchboard_store::{
    KeptAnswer, Owner, RequestClaim, RequestKey, Store, TemplateSettings, testing::TestDatabase,
};
use uuid::Uuid;

const DAY: Duration = Duration::from_secs(24 * 3600);
const KEY: RequestKey = RequestKey {
    owner: Owner::Installation,
    hash: [7; 32],
};

fn answer() -> KeptAnswer {
    KeptAnswer {
        fingerprint: vec![8; 32],
        status: 201,
        location: Some("/v1/templates/x".to_owned()),
        etag: None,
        media_type: "application/json".to_owned(),
        body: b"{ \"a\": 1.0 }".to_vec(),
        sealed: false,
    }
}

/// Makes a template under the key, and commits or not.
async fn make(store: &Store, kept: Duration, commit: bool) {
    let mut creation = store.begin(KEY.owner).await.unwrap();
    assert_eq!(creation.claim(&KEY).await.unwrap(), RequestClaim::Free);
    let id = TemplateId::from_uuid(Uuid::now_v7());
    let settings = TemplateSettings {
        name: "Bello".to_owned(),
        ..TemplateSettings::default()
    };
    let made = creation.create_template(KEY.owner, id, &settings).await;
    made.unwrap();
    creation.keep(&KEY, &answer(), kept).await.unwrap();
    if commit {
        creation.commit().await.unwrap();
    }
}

async fn templates(store: &Store) -> usize {
    let found = store.templates(KEY.owner, false, None, 9).await;
    found.unwrap().elements.len()
}

#[tokio::test]
async fn what_is_made_and_its_answer_are_there_together_or_not_at_all() {
    let database = TestDatabase::create().await.unwrap();
    let store = database.store();
    // As when the process dies before the commit.
    make(&store, DAY, false).await;
    assert_eq!(templates(&store).await, 0);
    assert_eq!(store.kept_answer(&KEY).await.unwrap(), None);

    make(&store, DAY, true).await;
    assert_eq!(templates(&store).await, 1);
    assert_eq!(store.kept_answer(&KEY).await.unwrap(), Some(answer()));
    let mut second = store.begin(KEY.owner).await.unwrap();
    let claim = second.claim(&KEY).await.unwrap();
    assert_eq!(claim, RequestClaim::Answered(Box::new(answer())));
}

#[tokio::test]
async fn of_two_at_once_one_has_the_key() {
    let database = TestDatabase::create().await.unwrap();
    let store = database.store();
    let mut first = store.begin(KEY.owner).await.unwrap();
    let mut second = store.begin(KEY.owner).await.unwrap();
    assert_eq!(first.claim(&KEY).await.unwrap(), RequestClaim::Free);
    assert_eq!(second.claim(&KEY).await.unwrap(), RequestClaim::Busy);
    drop(second);
    first.keep(&KEY, &answer(), DAY).await.unwrap();
    first.commit().await.unwrap();
    let mut third = store.begin(KEY.owner).await.unwrap();
    assert!(matches!(
        third.claim(&KEY).await.unwrap(),
        RequestClaim::Answered(_)
    ));
}

#[tokio::test]
async fn an_expired_answer_is_forgotten_and_its_key_is_free() {
    let database = TestDatabase::create().await.unwrap();
    let store = database.store();
    make(&store, Duration::ZERO, true).await;
    assert_eq!(store.kept_answer(&KEY).await.unwrap(), None);
    make(&store, Duration::ZERO, true).await;
    assert_eq!(store.purge_answers().await.unwrap(), 1);
    make(&store, DAY, true).await;
    assert_eq!(store.purge_answers().await.unwrap(), 0);
    assert!(store.kept_answer(&KEY).await.unwrap().is_some());
}

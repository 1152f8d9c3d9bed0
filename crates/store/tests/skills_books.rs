//! Processing of skills books in a real PostgreSQL: leases, takeovers and counted chunks.
#![expect(clippy::unwrap_used, reason = "test helpers may panic")]

use std::time::Duration;

use bytes::Bytes;
use sha2::{Digest, Sha256};
use switchboard_protocol::id::SkillsBookId;
use switchboard_store::{
    BookCancel, BookFault, BookFinish, BookState, JobTurn, NewChunk, NewSkillsBook, Objects, Owner,
    PartWrite, Store, testing::TestDatabase,
};
use uuid::Uuid;

const LEASE: Duration = Duration::from_secs(600);
const OWNER: Owner = Owner::Installation;

/// A store with one book that is ready for processing.
async fn store_with_book() -> (Store, SkillsBookId, (TestDatabase, tempfile::TempDir)) {
    store_with_book_in("en", TestDatabase::create().await.unwrap()).await
}

/// The same with a book in this language.
async fn store_with_book_in(
    locale: &str,
    database: TestDatabase,
) -> (Store, SkillsBookId, (TestDatabase, tempfile::TempDir)) {
    let folder = tempfile::tempdir().unwrap();
    let objects = Objects::in_folder(folder.path()).unwrap();
    let store = database.store().with_objects(Some(objects));
    let id = SkillsBookId::from_uuid(Uuid::now_v7());
    let text = b"the whole text";
    let book = NewSkillsBook {
        id,
        name: "a book".to_owned(),
        mime_type: "text/plain",
        locale: locale.to_owned(),
        size_bytes: 14,
        sha256: Sha256::digest(text).into(),
    };
    begin(&store, &book).await;
    let part = Bytes::from_static(text);
    let written = store
        .write_skills_book_part(OWNER, id, 1, part)
        .await
        .unwrap();
    assert_eq!(written, PartWrite::Written { bytes_received: 14 });
    let finished = store.finish_skills_book(OWNER, id).await.unwrap();
    assert!(matches!(finished, BookFinish::Accepted(_)), "{finished:?}");
    (store, id, (database, folder))
}

async fn begin(store: &Store, book: &NewSkillsBook) {
    let mut creation = store.begin(OWNER).await.unwrap();
    creation.begin_skills_book(OWNER, book).await.unwrap();
    creation.commit().await.unwrap();
}

async fn claim(store: &Store, lease: Duration) -> Option<(Uuid, i32)> {
    let worker = Uuid::now_v7();
    let job = store
        .claim_skills_book(worker, lease, &mut JobTurn::default())
        .await
        .unwrap();
    job.map(|job| (worker, job.attempts))
}

fn chunks(count: usize) -> Vec<NewChunk> {
    let chunk = |number| NewChunk {
        heading: None,
        page: None,
        text: format!("chunk {number}"),
    };
    (0..count).map(chunk).collect()
}

async fn indexed(store: &Store, id: SkillsBookId) -> (BookState, Option<i32>, i32) {
    let book = store.skills_book(OWNER, id).await.unwrap().unwrap();
    (book.state, book.chunks_total, book.chunks_indexed)
}

#[tokio::test]
async fn takeover_continues_after_stored_chunks() {
    let (store, id, _guards) = store_with_book().await;
    let (dead, attempts) = claim(&store, Duration::ZERO).await.unwrap();
    assert_eq!(attempts, 1);
    let begun = store
        .begin_indexing_skills_book(dead, id, 5, &[1])
        .await
        .unwrap();
    assert_eq!(begun, Some(0));
    assert!(
        store
            .add_skills_book_chunks(dead, id, 0, &chunks(2))
            .await
            .unwrap()
    );
    // Neither repeated nor with a gap.
    for first in [0, 1, 3] {
        assert!(
            !store
                .add_skills_book_chunks(dead, id, first, &chunks(1))
                .await
                .unwrap()
        );
    }
    let (worker, _) = claim(&store, LEASE).await.unwrap();
    assert_eq!(claim(&store, LEASE).await, None, "it is leased");
    assert!(
        !store
            .add_skills_book_chunks(dead, id, 2, &chunks(1))
            .await
            .unwrap()
    );
    assert!(!store.renew_skills_book(dead, id, LEASE).await.unwrap());
    let fault = BookFault {
        kind: "x".to_owned(),
        detail: "x".to_owned(),
    };
    store.fail_skills_book(dead, id, &fault).await.unwrap();
    assert_eq!(indexed(&store, id).await, (BookState::Indexing, Some(5), 2));
    let begun = store
        .begin_indexing_skills_book(worker, id, 5, &[1])
        .await
        .unwrap();
    assert_eq!(begun, Some(2));
    assert!(
        !store.complete_skills_book(worker, id).await.unwrap(),
        "three chunks are missing"
    );
    assert!(
        store
            .add_skills_book_chunks(worker, id, 2, &chunks(3))
            .await
            .unwrap()
    );
    assert!(store.complete_skills_book(worker, id).await.unwrap());
    assert_eq!(indexed(&store, id).await, (BookState::Ready, Some(5), 5));
    assert_eq!(claim(&store, LEASE).await, None);
}

#[tokio::test]
async fn changed_parse_result_restarts_indexing() {
    let (store, id, _guards) = store_with_book().await;
    let (worker, _) = claim(&store, LEASE).await.unwrap();
    store
        .begin_indexing_skills_book(worker, id, 5, &[1])
        .await
        .unwrap();
    assert!(
        store
            .add_skills_book_chunks(worker, id, 0, &chunks(4))
            .await
            .unwrap()
    );
    let begun = store
        .begin_indexing_skills_book(worker, id, 2, &[2])
        .await
        .unwrap();
    assert_eq!(begun, Some(0));
    assert_eq!(indexed(&store, id).await, (BookState::Indexing, Some(2), 0));
    assert!(
        store
            .add_skills_book_chunks(worker, id, 0, &chunks(2))
            .await
            .unwrap()
    );
    assert!(store.complete_skills_book(worker, id).await.unwrap());
}

#[tokio::test]
async fn released_book_can_be_claimed_again() {
    let (store, id, _guards) = store_with_book().await;
    let (first, _) = claim(&store, LEASE).await.unwrap();
    store
        .release_skills_book(first, id, Duration::ZERO)
        .await
        .unwrap();
    let (again, attempts) = claim(&store, LEASE).await.unwrap();
    assert_eq!(attempts, 1, "a released attempt does not count");
    let cancelled = store.cancel_skills_book(OWNER, id).await.unwrap();
    assert!(
        matches!(cancelled, BookCancel::Cancelled(_)),
        "{cancelled:?}"
    );
    assert!(!store.renew_skills_book(again, id, LEASE).await.unwrap());
    let begun = store
        .begin_indexing_skills_book(again, id, 1, &[1])
        .await
        .unwrap();
    assert_eq!(begun, None);
    store
        .release_skills_book(again, id, Duration::ZERO)
        .await
        .unwrap();
    assert_eq!(claim(&store, LEASE).await, None);
}

#[tokio::test]
async fn book_search_works_in_locale_c() {
    let database = TestDatabase::create_in_locale_c().await.unwrap();
    let (store, id, _guards) = store_with_book_in("ru-RU", database).await;
    let (worker, _) = claim(&store, LEASE).await.unwrap();
    let texts = ["Кошки спят", "ДОМ", "他喜欢吃鱼。", "Über alles", "Кошки"];
    let mut chunks = chunks(texts.len());
    for (chunk, text) in chunks.iter_mut().zip(texts) {
        chunk.text = text.to_owned();
    }
    chunks[1].heading = Some("Глава ПЕРВАЯ".to_owned());
    let begun = store.begin_indexing_skills_book(worker, id, 5, &[1]).await;
    assert_eq!(begun.unwrap(), Some(0));
    assert!(
        store
            .add_skills_book_chunks(worker, id, 0, &chunks)
            .await
            .unwrap()
    );
    let check = async |question: &str, expected: &[i32]| {
        let found = store.search_skills_book(OWNER, id, question, None, 9).await;
        let found: Vec<_> = found.unwrap().iter().map(|chunk| chunk.number).collect();
        assert_eq!(found, expected, "{question}");
    };
    check("спит кошка", &[0, 4]).await;
    check("дом", &[1]).await;
    check("первая", &[1]).await;
    check("喜欢", &[2]).await;
    check("鱼", &[2]).await;
    check("欢鱼", &[]).await;
    check("ÜBER", &[3]).await;
    check("не", &[]).await;
    check("\0", &[]).await;
}

#[tokio::test]
async fn concurrent_claims_yield_one_worker() {
    let (store, _, _guards) = store_with_book().await;
    let mut workers = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let store = store.clone();
        workers.spawn(async move { claim(&store, LEASE).await.is_some() });
    }
    let claimed = workers.join_all().await;
    assert_eq!(claimed.iter().filter(|claimed| **claimed).count(), 1);
}

#[tokio::test]
async fn abandoned_upload_is_cancelled() {
    let (store, whole, (_database, folder)) = store_with_book().await;
    let id = SkillsBookId::from_uuid(Uuid::now_v7());
    let book = NewSkillsBook {
        id,
        name: "another".to_owned(),
        mime_type: "text/plain",
        locale: "en".to_owned(),
        size_bytes: 5,
        sha256: [0; 32],
    };
    begin(&store, &book).await;
    let part = Bytes::from_static(b"part");
    store
        .write_skills_book_part(OWNER, id, 1, part)
        .await
        .unwrap();
    let place = folder.path().join(format!("skills-books/public/{id}"));
    let objects = || std::fs::read_dir(&place).map_or(0, Iterator::count);
    assert_eq!(objects(), 1);
    assert_eq!(
        store.cancel_abandoned_skills_books(LEASE).await.unwrap(),
        []
    );
    assert_eq!(
        store
            .cancel_abandoned_skills_books(Duration::ZERO)
            .await
            .unwrap(),
        [(OWNER, id)]
    );
    assert_eq!(indexed(&store, id).await.0, BookState::Cancelled);
    assert_eq!(objects(), 0);
    assert_eq!(indexed(&store, whole).await.0, BookState::Parsing);
}

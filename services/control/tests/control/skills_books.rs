//! `/v1/skills-books`. The end-to-end tests cover the parser processes.

use axum::body::Body;
use http::{Method, Request, StatusCode, header};
use serde_json::{Value, json};
use std::time::Duration;
use switchboard_store::{JobTurn, NewChunk, Store};
use uuid::Uuid;

use crate::{
    cases::{new_book, sha256},
    installation::{Installation, OPERATOR_KEY, body},
};

const MAX_PART_BYTES: usize = 8 * 1024 * 1024;

impl Installation {
    /// Creates a book. Returns its path.
    pub(crate) async fn create_book(&self, key: &str, document: &[u8]) -> String {
        let (status, book) = self
            .send(
                Method::POST,
                "/v1/skills-books",
                Some(key),
                Some(new_book(document)),
            )
            .await;
        assert_eq!(
            (status, &book["state"]),
            (StatusCode::CREATED, &json!("uploading")),
            "{book}"
        );
        format!("/v1/skills-books/{}", book["id"].as_str().unwrap())
    }

    pub(crate) async fn upload_part(
        &self,
        key: &str,
        path: &str,
        number: &str,
        part: &[u8],
    ) -> (StatusCode, Value) {
        let request = Request::builder()
            .method(Method::PUT)
            .uri(format!("{path}/parts/{number}"))
            .header(header::AUTHORIZATION, format!("Bearer {key}"));
        let answer = self
            .answer(request.body(Body::from(part.to_vec())).unwrap())
            .await;
        (answer.status(), body(answer).await)
    }

    /// Creates and uploads a book. Returns its path.
    async fn finished_book(&self, key: &str, document: &[u8]) -> String {
        let path = self.create_book(key, document).await;
        let (status, answer) = self.upload_part(key, &path, "1", document).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        self.expect(
            key,
            (Method::POST, &format!("{path}/finish")),
            202,
            "parsing",
        )
        .await;
        path
    }

    /// Sends a request without a body, and checks the state or the problem.
    async fn expect(&self, key: &str, ask: (Method, &str), status: u16, expected: &str) -> Value {
        let (answered, answer) = self.send(ask.0, ask.1, Some(key), None).await;
        let found = answer["type"].as_str().or(answer["state"].as_str());
        let found = found.map(|text| text.trim_start_matches("/problems/"));
        assert_eq!(
            (answered.as_u16(), found),
            (status, Some(expected)),
            "{answer}"
        );
        answer
    }

    /// Creates a ready book with these chunks. Returns its path.
    pub(crate) async fn ready_book(&self, key: &str, texts: &[&str]) -> String {
        let path = self.finished_book(key, b"any").await;
        ingest(&self.store, texts).await;
        path
    }
}

/// Stores these chunks for the pending book, like a worker.
async fn ingest(store: &Store, texts: &[&str]) {
    let worker = Uuid::now_v7();
    let lease = Duration::from_secs(60);
    let job = store
        .claim_skills_book(worker, lease, &mut JobTurn::default())
        .await
        .unwrap()
        .unwrap();
    let chunk = |text: &&str| NewChunk {
        heading: Some("Guide › Care".to_owned()),
        page: Some(3),
        text: (*text).to_owned(),
    };
    let chunks: Vec<_> = texts.iter().map(chunk).collect();
    let count = i32::try_from(chunks.len()).unwrap();
    let first_chunk = store
        .begin_indexing_skills_book(worker, job.id, count, &[1])
        .await
        .unwrap();
    assert_eq!(first_chunk, Some(0));
    assert!(
        store
            .add_skills_book_chunks(worker, job.id, 0, &chunks)
            .await
            .unwrap()
    );
    assert!(store.complete_skills_book(worker, job.id).await.unwrap());
}

#[tokio::test]
async fn parts_are_uploaded_in_any_order() {
    let installation = Installation::start().await;
    let key = &installation.new_org("Toys").await.key;
    let document = b"first second third";
    let path = installation.create_book(key, document).await;
    let finish = format!("{path}/finish");
    let finish = || (Method::POST, finish.as_str());
    let problem = installation
        .expect(key, finish(), 409, "parts_missing")
        .await;
    assert_eq!(problem["missing_parts"], json!([1]));
    for (number, part) in [("3", "third"), ("1", "worse "), ("1", "fi")] {
        let (status, answer) = installation
            .upload_part(key, &path, number, part.as_bytes())
            .await;
        assert_eq!(status, StatusCode::OK, "{answer}");
    }
    assert_eq!(installation.objects().len(), 2);
    let problem = installation
        .expect(key, finish(), 409, "parts_missing")
        .await;
    assert_eq!(problem["missing_parts"], json!([2]));
    let (_, answer) = installation.upload_part(key, &path, "2", b"secund ").await;
    assert_eq!(
        answer,
        json!({"part": 2, "size_bytes": 7, "bytes_received": 14})
    );
    let problem = installation
        .expect(key, finish(), 409, "size_mismatch")
        .await;
    assert_eq!(
        (&problem["declared_bytes"], &problem["sent_bytes"]),
        (&json!(18), &json!(14))
    );
    let (status, problem) = installation.upload_part(key, &path, "4", b"12345").await;
    assert_eq!(
        (status, &problem["type"]),
        (
            StatusCode::CONFLICT,
            &json!("/problems/larger_than_declared")
        )
    );
    installation.upload_part(key, &path, "1", b"first ").await;
    let problem = installation
        .expect(key, finish(), 422, "sha256_mismatch")
        .await;
    assert_eq!(problem["sent_sha256"], sha256(b"first secund third"));
    let found = installation
        .expect(key, (Method::GET, &path), 200, "uploading")
        .await;
    assert_eq!(
        (&found["bytes_received"], &found["progress"]),
        (&json!(18), &json!(0.0))
    );
    installation.upload_part(key, &path, "2", b"second ").await;
    for _ in 0..2 {
        installation.expect(key, finish(), 202, "parsing").await;
    }
    let (status, problem) = installation.upload_part(key, &path, "2", b"second ").await;
    assert_eq!(
        (status, &problem["state"]),
        (StatusCode::CONFLICT, &json!("parsing")),
        "{problem}"
    );
}

#[tokio::test]
async fn book_is_listed_and_deleted_with_its_bytes() {
    let installation = Installation::start().await;
    let key = &installation.new_org("Toys").await.key;
    let path = installation.finished_book(key, b"some text").await;
    let (_, page) = installation
        .send(Method::GET, "/v1/skills-books", Some(key), None)
        .await;
    assert_eq!(
        (
            page["skills_books"].as_array().unwrap().len(),
            &page["next_cursor"]
        ),
        (1, &Value::Null)
    );
    // An object of a process that died before it inserted the row of the part.
    let part = installation.objects().remove(0);
    std::fs::copy(
        &part,
        part.with_file_name(Uuid::now_v7().simple().to_string()),
    )
    .unwrap();
    assert_eq!(installation.objects().len(), 2);
    let (status, _) = installation
        .send(Method::DELETE, &path, Some(key), None)
        .await;
    assert_eq!(
        (status, installation.objects().len()),
        (StatusCode::NO_CONTENT, 0)
    );
    installation
        .expect(key, (Method::GET, &path), 404, "not_found")
        .await;
}

#[tokio::test]
async fn invalid_part_is_rejected() {
    let installation = Installation::start().await;
    let key = &installation.new_org("Toys").await.key;
    let path = installation
        .create_book(key, &vec![b'x'; MAX_PART_BYTES + 2])
        .await;
    let check = async |number: &str, size: usize, status: u16, expected: &str| {
        let (answered, answer) = installation
            .upload_part(key, &path, number, &vec![b'x'; size])
            .await;
        assert_eq!(answered.as_u16(), status, "{answer}");
        if status != 200 {
            assert_eq!(answer["type"], format!("/problems/{expected}"));
        }
    };
    for number in ["0", "10001", "-1", "x", "99999999999"] {
        check(number, 1, 400, "invalid_part_number").await;
    }
    check("1", 0, 400, "empty_body").await;
    check("1", MAX_PART_BYTES + 1, 413, "body_too_large").await;
    check("10000", MAX_PART_BYTES, 200, "").await;
    check("1", 3, 409, "larger_than_declared").await;
    assert_eq!(installation.objects().len(), 1);
}

#[tokio::test]
async fn cancelled_book_leaves_nothing_behind() {
    let installation = Installation::start().await;
    let key = &installation.new_org("Toys").await.key;
    let path = installation.finished_book(key, b"some text").await;
    let part = installation.objects().remove(0);
    let cancel = format!("{path}/cancel");
    for _ in 0..2 {
        let book = installation
            .expect(key, (Method::POST, &cancel), 200, "cancelled")
            .await;
        assert_eq!(book["bytes_received"], 0);
        assert_eq!(installation.objects().len(), 0);
        // The first process died before it deleted the bytes.
        std::fs::write(&part, "some text").unwrap();
    }
    std::fs::remove_file(&part).unwrap();
    let claimed = installation
        .store
        .claim_skills_book(Uuid::now_v7(), Duration::ZERO, &mut JobTurn::default())
        .await;
    assert!(claimed.unwrap().is_none());
    let finish = format!("{path}/finish");
    installation
        .expect(key, (Method::POST, &finish), 409, "skills_book_over")
        .await;
    let ready = installation.finished_book(key, b"other text").await;
    ingest(&installation.store, &["other text"]).await;
    let found = installation
        .expect(key, (Method::GET, &ready), 200, "ready")
        .await;
    assert_eq!(
        (&found["progress"], &found["chunks_indexed"]),
        (&json!(1.0), &json!(1))
    );
    let cancel = format!("{ready}/cancel");
    installation
        .expect(key, (Method::POST, &cancel), 409, "skills_book_over")
        .await;
}

#[tokio::test]
async fn search_finds_words_and_cjk_characters() {
    let installation = Installation::start().await;
    let key = &installation.new_org("Toys").await.key;
    let path = installation.finished_book(key, b"any").await;
    let texts = [
        "Batteries are replaced once a year. Use two of them.",
        "Clean the antenna with a dry cloth; the antenna is fragile.",
        "更换电池之前，请先关闭电源。",
        "请不要让猫靠近天线。",
        "This is about something else, year after year.",
    ];
    ingest(&installation.store, &texts).await;
    let search = async |question: &str| {
        let path = format!("{path}/search?limit=3&q={question}");
        let (status, found) = installation.send(Method::GET, &path, Some(key), None).await;
        assert_eq!(status, StatusCode::OK, "{found}");
        let chunks = found["chunks"].as_array().unwrap().clone();
        let scores: Vec<_> = chunks
            .iter()
            .map(|chunk| chunk["score"].as_f64().unwrap())
            .collect();
        assert!(
            scores.is_sorted_by(|a, b| a >= b) && scores.iter().all(|s| (0.0..=1.0).contains(s))
        );
        chunks
    };
    let check = async |question: &str, first: Option<usize>| {
        let found = search(question).await;
        let text = found.first().map(|chunk| chunk["text"].as_str().unwrap());
        assert_eq!(text, first.map(|index| texts[index]), "{question}");
    };
    check("How%20do%20I%20replace%20a%20battery%3F", Some(0)).await;
    check("fragile%20antennas", Some(1)).await;
    check("ANTENNAE", Some(1)).await;
    // 电
    check("%E7%94%B5", Some(2)).await;
    // 怎么换电池; 猫
    check("%E6%80%8E%E4%B9%88%E6%8D%A2%E7%94%B5%E6%B1%A0", Some(2)).await;
    check("%E7%8C%AB", Some(3)).await;
    check("xylophone", None).await;
    check("%27%20%7C%20%21%28%3A*%26", None).await;
    let found = search("antenna").await;
    let chunk = &found[0];
    assert_eq!(
        (&chunk["chunk"], &chunk["heading"], &chunk["page"]),
        (&json!(1), &json!("Guide › Care"), &json!(3))
    );
    for query in ["", "?q=", "?q=%00", "?q=x&limit=0", "?q=x&other=1"] {
        let path = format!("{path}/search{query}");
        installation
            .expect(key, (Method::GET, &path), 400, "invalid_query")
            .await;
    }
}

#[tokio::test]
async fn books_of_others_are_not_accessible() {
    let installation = Installation::start().await;
    let (own, other) = (
        installation.new_org("Toys").await.key,
        installation.new_org("Games").await.key,
    );
    let book = installation.finished_book(&own, b"secret").await;
    ingest(&installation.store, &["secret"]).await;
    let public = installation.finished_book(OPERATOR_KEY, b"known").await;
    ingest(&installation.store, &["known"]).await;
    let check = async |path: &str, status: u16, expected: &str| {
        for (method, below) in [
            (Method::DELETE, ""),
            (Method::POST, "/finish"),
            (Method::POST, "/cancel"),
        ] {
            let path = format!("{path}{below}");
            installation
                .expect(&other, (method, &path), status, expected)
                .await;
        }
        let (answered, _) = installation.upload_part(&other, path, "1", b"x").await;
        assert_eq!(answered.as_u16(), status);
    };
    check(&book, 404, "not_found").await;
    check(&public, 403, "operator_only").await;
    for (path, status) in [(&book, 404), (&public, 200)] {
        let search = format!("{path}/search?q=secret+known");
        for path in [path, &search] {
            let (answered, answer) = installation
                .send(Method::GET, path, Some(&other), None)
                .await;
            assert_eq!(answered.as_u16(), status, "{answer}");
        }
    }
}

#[tokio::test]
async fn book_in_use_cannot_be_deleted() {
    let installation = Installation::start().await;
    let (key, other) = (
        installation.new_org("Toys").await.key,
        installation.new_org("Games").await.key,
    );
    let book = installation.create_book(&key, b"text").await;
    let id = book.rsplit('/').next().unwrap();
    let template = json!({"name": "Bello", "skills_book_ids": [id, id]});
    let ask = async |key: &str| {
        let request = Some(template.clone());
        installation
            .send(Method::POST, "/v1/templates", Some(key), request)
            .await
    };
    let (status, problem) = ask(&other).await;
    assert_eq!(
        (status.as_u16(), &problem["errors"][0]["pointer"]),
        (422, &json!("/skills_book_ids/0")),
        "{problem}"
    );
    let (status, created) = ask(&key).await;
    assert_eq!(status, StatusCode::CREATED, "{created}");
    installation
        .expect(&key, (Method::DELETE, &book), 409, "skills_book_in_use")
        .await;
    let patch = Request::builder()
        .method(Method::PATCH)
        .uri(format!("/v1/templates/{}", created["id"].as_str().unwrap()))
        .header(header::AUTHORIZATION, format!("Bearer {key}"))
        .header(header::CONTENT_TYPE, "application/merge-patch+json")
        .header(header::IF_MATCH, "\"1\"");
    let patch = patch
        .body(json!({"skills_book_ids": []}).to_string().into())
        .unwrap();
    assert_eq!(installation.answer(patch).await.status(), StatusCode::OK);
    let (status, _) = installation
        .send(Method::DELETE, &book, Some(&key), None)
        .await;
    assert_eq!(status, StatusCode::NO_CONTENT);
}

#[tokio::test]
async fn missing_object_store_is_explained() {
    let installation = Installation::without_objects().await;
    let key = &installation.new_org("Toys").await.key;
    let ask = Some(new_book(b"x"));
    let (status, problem) = installation
        .send(Method::POST, "/v1/skills-books", Some(key), ask)
        .await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(problem["type"], "/problems/objects_not_configured");
}

//! A large skills book is ingested while calls run. Neither delays the other.

use std::{
    fmt::Write as _,
    time::{Duration, Instant},
};

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::cluster::TestCluster;

/// Minimum size of the book.
const BOOK_BYTES: usize = 20 * 1024 * 1024;
/// Maximum size of a part.
const PART_BYTES: usize = 8 * 1024 * 1024;
/// Upper bound for ingesting the book.
const INGESTION_TIMEOUT: Duration = Duration::from_secs(600);
/// Number of calls before the upload, for comparison.
const CALLS_BEFORE: usize = 500;

/// Chapters in Markdown, all different.
fn book() -> String {
    let mut book = "# Manual\n".to_owned();
    let mut chapter = 0_u32;
    while book.len() < BOOK_BYTES {
        chapter += 1;
        write!(
            book,
            "\n## Chapter {chapter}\n\nThe word is marker{chapter}x."
        )
        .unwrap();
        for sentence in 0..20 {
            let part = chapter.wrapping_mul(2_654_435_761).rotate_left(sentence) % 100_000;
            write!(
                book,
                " Turn wheel {sentence} until part {part} rests, then wait for it."
            )
            .unwrap();
        }
        book.push('\n');
    }
    book
}

async fn ask(cluster: &TestCluster, ask: (Method, &str), body: Vec<u8>) -> (StatusCode, Value) {
    let url = format!("{}{}", cluster.control.address("http_url"), ask.1);
    let request = cluster
        .http
        .request(ask.0, url)
        .bearer_auth(&cluster.org.key);
    let request = request.header("Content-Type", "application/json");
    let answer = request.body(body).send().await.unwrap();
    (answer.status(), answer.json().await.unwrap())
}

/// The request that creates the book.
fn declared(document: &[u8]) -> Value {
    let sha256: String = Sha256::digest(document)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    json!({"name": "Manual", "mime_type": "text/markdown", "size_bytes": document.len(), "sha256": sha256})
}

/// Uploads and finishes the book. Returns its path.
async fn send(cluster: &TestCluster, declared: &Value, document: &[u8]) -> String {
    let begin = (Method::POST, "/v1/skills-books");
    let (status, book) = ask(cluster, begin, declared.to_string().into()).await;
    assert_eq!(status, StatusCode::CREATED, "{book}");
    let path = format!("/v1/skills-books/{}", book["id"].as_str().unwrap());
    for (number, part) in (1..).zip(document.chunks(PART_BYTES)) {
        let place = format!("{path}/parts/{number}");
        let (status, answer) = ask(cluster, (Method::PUT, &place), part.to_vec()).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
    }
    let finish = format!("{path}/finish");
    let (status, book) = ask(cluster, (Method::POST, &finish), Vec::new()).await;
    assert_eq!(status, StatusCode::ACCEPTED, "{book}");
    path
}

/// Makes one call, which must succeed, and returns its latency.
async fn call(cluster: &TestCluster, number: usize) -> Duration {
    let began = Instant::now();
    let body = json!({"service": "echo", "params": {"text": number.to_string()}});
    let (status, answer) = cluster.call("toy-1", &body).await;
    let took = began.elapsed();
    assert_eq!(
        (status, &answer["outcome"]),
        (StatusCode::OK, &json!("succeeded")),
        "{answer}"
    );
    assert_eq!(answer["result"]["data"]["text"], number.to_string());
    took
}

/// Prints latencies for the reader of the test's output.
fn print_latencies(when: &str, mut took: Vec<Duration>) {
    took.sort_unstable();
    let at = |share: usize| took[(took.len() - 1) * share / 100];
    eprintln!(
        "{when}: {} calls, p50 {:?}, p99 {:?}",
        took.len(),
        at(50),
        at(99)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_during_ingestion_of_large_book_stay_fast() {
    let objects = tempfile::tempdir().unwrap();
    let url = format!("file://{}", objects.path().display());
    let cluster = TestCluster::start_with(1, &[("SWITCHBOARD_OBJECTS", &url)]).await;
    let _served = cluster.echo(0, "toy-1").await.serve();
    let mut quiet = Vec::new();
    for number in 0..CALLS_BEFORE {
        quiet.push(call(&cluster, number).await);
    }
    let document = book();
    let declared = declared(document.as_bytes());
    let began = Instant::now();
    // The caller is independent of the book and calls until the book is ready.
    let reading = async {
        let path = send(&cluster, &declared, document.as_bytes()).await;
        let mut seen = Vec::new();
        loop {
            let (_, book) = ask(&cluster, (Method::GET, &path), Vec::new()).await;
            assert_ne!(book["state"], "failed", "{book}");
            let progress = book["progress"].as_f64().unwrap();
            if seen.last().is_none_or(|last| *last != progress) {
                seen.push(progress);
            }
            if book["state"] == "ready" {
                return (book, seen);
            }
            assert!(began.elapsed() < INGESTION_TIMEOUT, "{book}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let mut busy = Vec::new();
    let mut reading = std::pin::pin!(reading);
    let (book, seen) = loop {
        tokio::select! {
            read = &mut reading => break read,
            took = call(&cluster, busy.len()) => busy.push(took),
        }
    };
    assert!(seen.is_sorted(), "it went back: {seen:?}");
    let in_flight = seen.iter().filter(|seen| **seen > 0.0 && **seen < 1.0);
    assert!(in_flight.count() >= 3, "nobody saw it grow: {seen:?}");
    assert!(!busy.is_empty());
    eprintln!(
        "{} bytes, {} chunks, read in {:?}",
        document.len(),
        book["chunks_total"],
        began.elapsed()
    );
    print_latencies("without a book", quiet);
    print_latencies("while it was read", busy);
}

//! Skills books in several requests: created with a key, uploaded, finished, ingested.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use switchboard_test_support::eventually::eventually;

use super::{Answer, WAIT_TIMEOUT, Writer};

/// A skills book, and its acknowledged steps.
pub(super) struct Book {
    mark: String,
    halves: [String; 2],
    begun: Option<Value>,
    sent: [bool; 2],
    finished: bool,
}

impl Book {
    pub(super) fn new(number: usize) -> Self {
        let mark = format!("marker{number}x");
        Self {
            halves: [
                format!("The word is {mark}."),
                " Whoever looks for it finds it.".to_owned(),
            ],
            mark,
            begun: None,
            sent: [false; 2],
            finished: false,
        }
    }

    fn path(&self) -> String {
        let id = self.begun.as_ref().unwrap()["id"].as_str().unwrap();
        format!("/v1/skills-books/{id}")
    }

    /// Repeats the steps without an acknowledgement until one fails. Returns whether all succeeded.
    pub(super) async fn send(&mut self, writer: &Writer) -> bool {
        self.try_to_send(writer).await.is_some()
    }

    async fn try_to_send(&mut self, writer: &Writer) -> Option<()> {
        if self.begun.is_none() {
            self.begun = Some(self.begin(writer).await?.done()?.body);
        }
        for (half, number) in [(1, 2), (0, 1)] {
            if !self.sent[half] {
                let path = format!("{}/parts/{number}", self.path());
                let part = self.halves[half].clone().into_bytes();
                let put = writer.ask((Method::PUT, &path), None, part).await;
                put.and_then(Answer::done)?;
                self.sent[half] = true;
            }
        }
        let path = format!("{}/finish", self.path());
        let finish = writer.ask((Method::POST, &path), None, Vec::new()).await;
        finish.and_then(Answer::done)?;
        self.finished = true;
        Some(())
    }

    async fn begin(&self, writer: &Writer) -> Option<Answer> {
        let whole = self.halves.concat();
        let sha256: String = Sha256::digest(&whole)
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let book = json!({"name": self.mark, "mime_type": "text/plain", "size_bytes": whole.len(), "sha256": sha256});
        let body = book.to_string().into_bytes();
        let asked = (Method::POST, "/v1/skills-books");
        writer.ask(asked, Some(&self.mark), body).await
    }

    /// Checks that acknowledged steps persist and all others are complete or absent.
    async fn is_kept(&self, writer: &Writer) {
        let shown = writer.get(&self.path()).await;
        let received = shown["bytes_received"].as_u64().unwrap();
        let possible = |sent: bool, half: &String| match sent {
            true => vec![half.len()],
            false => vec![0, half.len()],
        };
        let sums = possible(self.sent[0], &self.halves[0])
            .into_iter()
            .flat_map(|first| {
                possible(self.sent[1], &self.halves[1])
                    .into_iter()
                    .map(move |second| first + second)
            })
            .any(|sum| sum as u64 == received);
        assert!(sums, "{} has other parts: {shown}", self.mark);
        let whole = self.sent == [true; 2];
        let state = shown["state"].as_str().unwrap();
        let read = ["parsing", "indexing", "ready"].contains(&state);
        assert!(
            (read && whole) || (state == "uploading" && !self.finished),
            "{}: {shown}",
            self.mark
        );
    }
}

/// Checks all books, sends them again, and checks that each exists once and is found by a search.
pub(super) async fn check(writer: &Writer, books: Vec<Book>) {
    let count = books.len();
    let named = async |mark: &str| {
        let all = writer.all("/v1/skills-books", "skills_books").await;
        all.iter().filter(|book| book["name"] == mark).count()
    };
    for mut book in books {
        match &book.begun {
            Some(begun) => {
                book.is_kept(writer).await;
                let again = book.begin(writer).await.unwrap();
                assert_eq!((again.status, again.replayed), (StatusCode::CREATED, true));
                assert_eq!(&again.body, begun, "{} has another answer", book.mark);
            }
            None => {
                let known = named(&book.mark).await;
                let again = book.begin(writer).await.unwrap();
                assert_eq!(
                    (again.status, again.replayed, known <= 1),
                    (StatusCode::CREATED, known == 1, true),
                    "{}",
                    book.mark
                );
                book.begun = Some(again.body);
            }
        }
        assert!(book.send(writer).await, "{} is not taken again", book.mark);
        let path = book.path();
        let shown = async || writer.get(&path).await["state"].clone();
        eventually(WAIT_TIMEOUT, shown, |state| *state == "ready").await;
        let found = writer.get(&format!("{path}/search?q={}", book.mark)).await;
        let chunks = found["chunks"].as_array().unwrap();
        assert_eq!(chunks.len(), 1, "{found}");
        assert_eq!(chunks[0]["text"], book.halves.concat());
    }
    let all = writer.all("/v1/skills-books", "skills_books").await;
    assert_eq!(all.len(), count, "one of them is there twice");
}

//! Skills books from upload to search: ingested by processes that may die, from documents that may
//! be hostile.

use std::{fmt::Write as _, path::Path, process::Command, time::Duration};

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use switchboard_test_support::{eventually::eventually, switchboard::Program};

use crate::cluster::TestCluster;

/// Upper bound for ingesting a book.
const INGESTION_TIMEOUT: Duration = Duration::from_secs(90);

/// A system with skills books.
struct Library {
    cluster: TestCluster,
    objects: tempfile::TempDir,
}

impl Library {
    async fn open() -> Self {
        let objects = tempfile::tempdir().unwrap();
        let url = format!("file://{}", objects.path().display());
        let cluster = TestCluster::start_with(0, &[("SWITCHBOARD_OBJECTS", &url)]).await;
        Self { cluster, objects }
    }

    /// Another control plane beside the first.
    fn another_control(&self) -> Program {
        let mut environment = self.cluster.environment();
        let url = format!("file://{}", self.objects.path().display());
        environment.push(("SWITCHBOARD_OBJECTS", url));
        Program::start(&["control", "--http-listen", "127.0.0.1:0"], &environment)
    }

    async fn ask(&self, at: &Program, ask: (Method, &str), body: Vec<u8>) -> (StatusCode, Value) {
        let url = format!("{}{}", at.address("http_url"), ask.1);
        let request = self.cluster.http.request(ask.0, url);
        let request = request.bearer_auth(&self.cluster.org.key);
        let request = request.header("Content-Type", "application/json");
        let answer = request.body(body).send().await.unwrap();
        let status = answer.status();
        (status, answer.json().await.unwrap_or_default())
    }

    /// Uploads a book in two parts, the second one first. Returns its path.
    async fn send(&self, mime_type: &str, document: &[u8]) -> String {
        let control = &self.cluster.control;
        let sha256 = Sha256::digest(document)
            .iter()
            .fold(String::new(), |mut hex, byte| {
                write!(hex, "{byte:02x}").unwrap();
                hex
            });
        let book = json!({"name": "Manual", "mime_type": mime_type, "size_bytes": document.len(), "sha256": sha256});
        let begun = (Method::POST, "/v1/skills-books");
        let (status, book) = self.ask(control, begun, book.to_string().into()).await;
        assert_eq!(status, StatusCode::CREATED, "{book}");
        let path = format!("/v1/skills-books/{}", book["id"].as_str().unwrap());
        let (first, second) = document.split_at(document.len() / 2);
        for (number, part) in [(2, second), (1, first)] {
            let place = format!("{path}/parts/{number}");
            let (status, answer) = self
                .ask(control, (Method::PUT, &place), part.to_vec())
                .await;
            assert_eq!(status, StatusCode::OK, "{answer}");
        }
        let finish = format!("{path}/finish");
        let (status, book) = self.ask(control, (Method::POST, &finish), Vec::new()).await;
        assert_eq!(status, StatusCode::ACCEPTED, "{book}");
        path
    }

    /// The book as soon as it is in this state.
    async fn becomes(&self, at: &Program, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let show = async || self.ask(at, (Method::GET, path), Vec::new()).await.1;
        eventually(INGESTION_TIMEOUT, show, wanted).await
    }

    async fn search(&self, at: &Program, path: &str, question: &str) -> Vec<Value> {
        let path = format!("{path}/search?q={question}");
        let (status, found) = self.ask(at, (Method::GET, &path), Vec::new()).await;
        assert_eq!(status, StatusCode::OK, "{found}");
        found["chunks"].as_array().unwrap().clone()
    }
}

fn is_over(book: &Value) -> bool {
    ["ready", "failed"].contains(&book["state"].as_str().unwrap())
}

/// A guide with this number of chapters, each with a unique word.
fn guide(chapters: usize) -> String {
    (0..chapters).fold("# Guide\n".to_owned(), |mut guide, chapter| {
        let text = "The quick brown fox jumps over the lazy dog and rests a while. ".repeat(12);
        write!(
            guide,
            "\n## Chapter {chapter}\n\nThe word is marker{chapter}x. {text}\n"
        )
        .unwrap();
        guide
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn i6_ingestion_of_killed_worker_is_finished_by_another() {
    let mut library = Library::open().await;
    let chapters = 3_000;
    let path = library
        .send("text/markdown", guide(chapters).as_bytes())
        .await;
    let is_ingesting = |book: &Value| {
        let indexed = book["chunks_indexed"].as_i64().unwrap();
        book["state"] == "indexing" && indexed > 0 && book["progress"].as_f64().unwrap() < 0.9
    };
    library
        .becomes(&library.cluster.control, &path, is_ingesting)
        .await;
    library.cluster.control.kill();
    let other = library.another_control();
    let (_, left) = library.ask(&other, (Method::GET, &path), Vec::new()).await;
    assert_eq!(left["state"], "indexing", "it was killed too late: {left}");
    let before = left["chunks_indexed"].as_i64().unwrap();
    let book = library.becomes(&other, &path, is_over).await;
    assert_eq!(
        (&book["state"], &book["progress"]),
        (&json!("ready"), &json!(1.0)),
        "{book}"
    );
    let total = book["chunks_total"].as_i64().unwrap();
    assert!(before < total && total >= 3_000, "{book}");
    let counted = format!(
        "DO $$ BEGIN ASSERT (SELECT (count(*), min(number), max(number)) = ({total}, 0, {total} - 1)
         FROM skills_book_chunks); END $$"
    );
    library.cluster.database.execute(&counted).await.unwrap();
    for chapter in [0, chapters / 2, chapters - 1] {
        let found = library
            .search(&other, &path, &format!("marker{chapter}x"))
            .await;
        let heading = format!("Guide › Chapter {chapter}");
        assert_eq!(found[0]["heading"], heading, "{found:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn i15_hostile_document_fails_without_effect_on_others() {
    let library = Library::open().await;
    let control = &library.cluster.control;
    let hostile: [(&str, Vec<u8>, &str); 5] = [
        ("text/plain", b"fine\nbr\xFFken".to_vec(), "invalid_utf8"),
        (
            "application/pdf",
            b"%PDF-1.4 and nothing else".to_vec(),
            "unreadable",
        ),
        ("application/pdf", endless(), "too_expensive"),
        ("application/pdf", bomb(), "too_expensive"),
        ("application/pdf", pdf(b"BT ET", "", "null"), "no_text"),
    ];
    let mut sent = Vec::new();
    for (mime_type, document, kind) in hostile {
        sent.push((library.send(mime_type, &document).await, kind));
    }
    for (path, kind) in sent {
        let book = library.becomes(control, &path, is_over).await;
        assert_eq!(
            (&book["state"], &book["error"]["kind"]),
            (&json!("failed"), &json!(kind)),
            "{book}"
        );
        assert!(!book["error"]["detail"].as_str().unwrap().is_empty());
    }
    let path = library
        .send("text/plain", "更换电池之前先关机。".as_bytes())
        .await;
    let book = library.becomes(control, &path, is_over).await;
    assert_eq!(book["state"], "ready", "{book}");
    assert_eq!(library.search(control, &path, "电池").await.len(), 1);
}

/// Waits until a stream of notifications contains this text.
async fn wait_for_notification(stream: &mut reqwest::Response, wanted: &str) {
    let mut received = String::new();
    let hearing = async {
        while !received.contains(wanted) {
            let chunk = stream.chunk().await.unwrap().unwrap();
            received.push_str(&String::from_utf8_lossy(&chunk));
        }
    };
    let received_in_time = tokio::time::timeout(INGESTION_TIMEOUT, hearing)
        .await
        .is_ok();
    assert!(received_in_time, "{wanted} is not in {received}");
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_are_notified_of_books_and_npcs() {
    let library = Library::open().await;
    let cluster = &library.cluster;
    let request = cluster
        .http
        .get(cluster.url("/mcp"))
        .bearer_auth(&cluster.org.key);
    let request = request.header("accept", "text/event-stream").send();
    let mut stream = request.await.unwrap();
    assert_eq!(stream.status(), StatusCode::OK);
    let path = library.send("text/plain", b"Replace the battery.").await;
    let uri = path.replace("/v1/", "switchboard://");
    wait_for_notification(&mut stream, &uri).await;
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": {"uri": format!("{uri}/chunks/0")}});
    let read = cluster
        .http
        .post(cluster.url("/mcp"))
        .bearer_auth(&cluster.org.key);
    let read = read.header("accept", "application/json, text/event-stream");
    let read = read.header("mcp-protocol-version", "2025-11-25");
    let read: Value = read
        .json(&message)
        .send()
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    let text = read["result"]["contents"][0]["text"].as_str().unwrap();
    assert!(text.contains("Replace the battery."), "{read}");
    let control = &cluster.control;
    library
        .ask(control, (Method::DELETE, &path), Vec::new())
        .await;
    wait_for_notification(&mut stream, &uri).await;

    let npc = json!({"overrides": {"name": "Bello"}})
        .to_string()
        .into_bytes();
    let (status, npc) = library.ask(control, (Method::POST, "/v1/npcs"), npc).await;
    assert_eq!(status, StatusCode::CREATED, "{npc}");
    wait_for_notification(&mut stream, "prompts/list_changed").await;
    let path = format!("/v1/npcs/{}", npc["id"].as_str().unwrap());
    for (change, expected) in [
        (Method::PATCH, StatusCode::OK),
        (Method::DELETE, StatusCode::NO_CONTENT),
    ] {
        let shown = cluster
            .http
            .get(format!("{}{path}", control.address("http_url")));
        let shown = shown.bearer_auth(&cluster.org.key).send().await.unwrap();
        let request = cluster
            .http
            .request(change, shown.url().clone())
            .bearer_auth(&cluster.org.key);
        let request = request.header("if-match", &shown.headers()["etag"]);
        let request = request.header("content-type", "application/merge-patch+json");
        let changed = request
            .body(r#"{"overrides":{"name":"Rex"}}"#)
            .send()
            .await
            .unwrap();
        assert_eq!(changed.status(), expected);
        wait_for_notification(&mut stream, "prompts/list_changed").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn book_is_managed_by_command_line() {
    let library = Library::open().await;
    let folder = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_switchboard"))
            .arg("skills")
            .args(arguments)
            .env(
                "SWITCHBOARD_URL",
                library.cluster.control.address("http_url"),
            )
            .env("SWITCHBOARD_API_KEY", &library.cluster.org.key)
            .output()
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        (
            output.status.code(),
            text(&output.stdout),
            text(&output.stderr),
        )
    };
    let write = |name: &str, text: &[u8]| {
        let file = folder.path().join(name);
        std::fs::write(&file, text).unwrap();
        file
    };
    let shown = |file: &Path| file.to_str().unwrap().to_owned();
    let guide = write("guide.md", guide(20).as_bytes());
    let (code, out, err) = run(&["upload", &shown(&guide)]);
    assert_eq!(code, Some(0), "{err}");
    let book: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (&book["state"], &book["name"]),
        (&json!("ready"), &json!("guide.md"))
    );
    let id = book["id"].as_str().unwrap();
    let (code, listed, _) = run(&["list"]);
    let line = format!("{id}\tready\t100\tguide.md\n");
    assert_eq!((code, listed), (Some(0), line));
    assert_eq!(run(&["list", "--json"]).1, out);
    let (code, out, _) = run(&["search", id, "what is marker7x?"]);
    assert_eq!(
        (code, out.contains("Guide › Chapter 7")),
        (Some(0), true),
        "{out}"
    );
    let (code, out, _) = run(&["show", id]);
    assert_eq!(
        (code, out.contains("\"progress\":1.0")),
        (Some(0), true),
        "{out}"
    );
    let broken = write("broken.txt", b"a\xFF");
    let (code, _, err) = run(&["upload", &shown(&broken)]);
    assert_eq!(
        (code, err.contains("byte 2 (line 1)")),
        (Some(1), true),
        "{err}"
    );
    assert_eq!(run(&["upload", &shown(&write("a.docx", b"x"))]).0, Some(64));
    assert_eq!(run(&["delete", id]).0, Some(0));
    assert_eq!(run(&["show", id]).0, Some(1));
}

/// A PDF of one page with this content, compressed with these filters, and one more object.
fn pdf(content: &[u8], filters: &str, object: &str) -> Vec<u8> {
    let mut stream = format!("<</Length {}{filters}>>stream\n", content.len()).into_bytes();
    stream.extend(content);
    stream.extend(b"\nendstream");
    let resources = "/Resources<</XObject<</X 5 0 R>>>>";
    let page =
        format!("<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]{resources}/Contents 4 0 R>>");
    let objects: [&[u8]; 5] = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        page.as_bytes(),
        &stream,
        object.as_bytes(),
    ];
    let mut file = b"%PDF-1.4\n".to_vec();
    let mut table = "xref\n0 6\n0000000000 65535 f \n".to_owned();
    for (number, object) in (1..).zip(objects) {
        writeln!(table, "{:010} 00000 n ", file.len()).unwrap();
        file.extend(format!("{number} 0 obj\n").bytes());
        file.extend(object);
        file.extend(b"\nendobj\n");
    }
    let start = file.len();
    let end = format!("{table}trailer\n<</Size 6/Root 1 0 R>>\nstartxref\n{start}\n%%EOF\n");
    file.extend(end.bytes());
    file
}

/// A form that draws itself.
fn endless() -> Vec<u8> {
    let head = "<</Type/XObject/Subtype/Form/BBox[0 0 9 9]/Resources<</XObject<</X 5 0 R>>>>";
    let form = format!("{head}/Length 5>>stream\n/X Do\nendstream");
    pdf(b"/X Do", "", &form)
}

/// A few kilobytes that decompress to four gigabytes of spaces, compressed twice.
fn bomb() -> Vec<u8> {
    let digits = include_str!("skills/bomb.hex").trim().as_bytes();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    let packed: Vec<u8> = digits.chunks(2).map(byte).collect();
    pdf(&packed, "/Filter[/FlateDecode/FlateDecode]", "null")
}

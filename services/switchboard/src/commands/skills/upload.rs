//! One file on its way: hashed, sent in parts, watched until it can be searched.
//! Never: more of the file in memory than one part.

use std::{path::Path, time::Duration};

use anyhow::Context as _;
use http::Method;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::{
    fs::File,
    io::{AsyncReadExt as _, AsyncSeekExt as _},
};

use super::{SKILLS_BOOKS, Upload};
use crate::{
    api::Api,
    exit::{self, Failure},
};

/// How many bytes a part has.
const PART_BYTES: usize = 4 * 1024 * 1024;
/// Between two looks at how far it is.
const LOOK: Duration = Duration::from_millis(500);

/// What matters here of a skills book.
#[derive(Deserialize)]
struct Book {
    id: String,
    state: String,
    progress: f64,
    error: Option<Fault>,
    #[serde(flatten)]
    rest: serde_json::Map<String, Value>,
}

#[derive(Deserialize)]
struct Fault {
    detail: String,
}

pub(super) async fn run(upload: &Upload) -> Result<(), Failure> {
    let mime_type = match &upload.mime_type {
        Some(given) => given.as_str(),
        None => mime_type(&upload.file)?,
    };
    let api = upload.api.connect()?;
    let named = || format!("{} cannot be read", upload.file.display());
    let mut file = File::open(&upload.file).await.with_context(named)?;
    let size = file.metadata().await.with_context(named)?.len();
    let sha256 = hash(&mut file).await.with_context(named)?;
    let begun = json!({
        "name": name(upload), "mime_type": mime_type, "locale": upload.locale, "size_bytes": size, "sha256": sha256,
    });
    let begun = api.send(
        Method::POST,
        SKILLS_BOOKS.path,
        begun.to_string().into_bytes(),
    );
    let book: Book = begun.await.map_err(Failure::general)?;
    let place = SKILLS_BOOKS.at(&book.id);
    send(&api, &place, &mut file, size)
        .await
        .map_err(|failure| left(&book.id, failure))?;
    let finish = format!("{place}/finish");
    let finished = api.send(Method::POST, &finish, Vec::new());
    let book: Book = finished
        .await
        .map_err(|error| left(&book.id, Failure::general(error)))?;
    let book = if upload.no_wait {
        book
    } else {
        wait(&api, &place, book).await?
    };
    if let Some(fault) = book.error {
        return Err(Failure::general(format!(
            "{} cannot be read: {}",
            book.id, fault.detail
        )));
    }
    let mut printed = book.rest;
    for (field, value) in [
        ("id", json!(book.id)),
        ("state", json!(book.state)),
        ("progress", json!(book.progress)),
    ] {
        printed.insert(field.to_owned(), value);
    }
    exit::print(&Value::Object(printed).to_string())
}

/// A failure, and that a book was begun that will not go by itself.
fn left(id: &str, failure: Failure) -> Failure {
    exit::say(&format!(
        "switchboard: {id} was begun and is not whole; remove it with `switchboard skills delete {id}`"
    ));
    failure
}

async fn hash(file: &mut File) -> std::io::Result<String> {
    let mut hasher = Sha256::new();
    let mut part = Vec::with_capacity(PART_BYTES);
    while read_part(file, &mut part).await? {
        hasher.update(&part);
    }
    file.rewind().await?;
    Ok(hasher
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect())
}

/// Reads the next part; false at the end of the file.
async fn read_part(file: &mut File, part: &mut Vec<u8>) -> std::io::Result<bool> {
    part.clear();
    let most = u64::try_from(PART_BYTES).unwrap_or(u64::MAX);
    Ok(file.take(most).read_to_end(part).await? > 0)
}

async fn send(api: &Api, place: &str, file: &mut File, size: u64) -> Result<(), Failure> {
    let bar = bar(size, "sending  {bar:40} {bytes}/{total_bytes} {eta}");
    let mut part = Vec::with_capacity(PART_BYTES);
    let mut number = 0_u32;
    while read_part(file, &mut part)
        .await
        .context("the file cannot be read on")?
    {
        number = number.saturating_add(1);
        let path = format!("{place}/parts/{number}");
        let sent = api.send::<Value>(Method::PUT, &path, part.clone()).await;
        sent.map_err(Failure::general)?;
        bar.inc(u64::try_from(part.len()).unwrap_or_default());
    }
    bar.finish_and_clear();
    Ok(())
}

/// Waits until the book is ready, or is not going to be.
async fn wait(api: &Api, place: &str, mut book: Book) -> Result<Book, Failure> {
    let bar = bar(100, "{msg:8} {bar:40} {percent} %");
    while matches!(book.state.as_str(), "parsing" | "indexing") {
        bar.set_message(book.state.clone());
        // From 0 to 1, so nothing is lost.
        bar.set_position((book.progress * 100.0) as u64);
        tokio::time::sleep(LOOK).await;
        let shown = api.send(Method::GET, place, Vec::new()).await;
        book = shown.map_err(Failure::general)?;
    }
    bar.finish_and_clear();
    match book.state.as_str() {
        "cancelled" => Err(Failure::general(format!("{} was cancelled", book.id))),
        _ => Ok(book),
    }
}

/// Drawn on stderr, and only for a person.
fn bar(length: u64, template: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template);
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(length).with_style(style)
}

fn name(upload: &Upload) -> String {
    let given = upload.name.clone();
    given.unwrap_or_else(|| match upload.file.file_name() {
        Some(name) => name.to_string_lossy().chars().take(100).collect(),
        None => upload.file.display().to_string(),
    })
}

fn mime_type(file: &Path) -> Result<&'static str, Failure> {
    let extension = file.extension().and_then(|extension| extension.to_str());
    match extension.unwrap_or_default().to_ascii_lowercase().as_str() {
        "txt" | "text" => Ok("text/plain"),
        "md" | "markdown" => Ok("text/markdown"),
        "html" | "htm" => Ok("text/html"),
        "pdf" => Ok("application/pdf"),
        _ => Err(Failure::usage(format!(
            "what {} is cannot be told from its name: give --mime-type text/plain, text/markdown, text/html or application/pdf",
            file.display()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_is_told_from_the_name() {
        fn check(file: &str, expected: Option<&str>) {
            assert_eq!(mime_type(Path::new(file)).ok(), expected, "{file}");
        }
        check("a/b.MD", Some("text/markdown"));
        check("b.txt", Some("text/plain"));
        check("b.htm", Some("text/html"));
        check("b.pdf", Some("application/pdf"));
        check("b", None);
        check("b.docx", None);
    }
}

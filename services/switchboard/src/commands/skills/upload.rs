//! One file on its way: hashed, sent in parts, watched until it can be searched.
//! Never: more of the file in memory than one part.

use std::path::Path;

use anyhow::Context as _;
use http::Method;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json, value::RawValue};
use sha2::{Digest, Sha256};
use tokio::{
    fs::File,
    io::{AsyncReadExt as _, AsyncSeekExt as _},
};

use super::{SKILLS_BOOKS, Upload};
use crate::{
    api::{Api, ApiError},
    collection::{Making, Settling, Standing, print_document},
    exit::{self, Failure},
};

/// How many bytes a part has.
const PART_BYTES: usize = 4 * 1024 * 1024;
/// The state in which parts are taken.
const TAKES_PARTS: &str = "uploading";
/// The states that a book leaves by itself once all of it is sent.
const PASSING: &[&str] = &["parsing", "indexing"];

pub(super) async fn run(upload: &Upload) -> Result<(), Failure> {
    let mime_type = match &upload.mime_type {
        Some(given) => given.as_str(),
        None => mime_type(&upload.file)?,
    };
    let making = upload.create.begin()?;
    let named = || format!("{} cannot be read", upload.file.display());
    let mut file = File::open(&upload.file).await.with_context(named)?;
    let size = file.metadata().await.with_context(named)?.len();
    let sha256 = hash(&mut file).await.with_context(named)?;
    let begun = json!({
        "name": name(upload), "mime_type": mime_type, "locale": upload.locale, "size_bytes": size, "sha256": sha256,
    });
    let begun = begun.to_string().into_bytes();
    let begun: Box<RawValue> = making.made(SKILLS_BOOKS.path, begun).await?;
    let id = Standing::of(&begun)?.id;
    let place = SKILLS_BOOKS.at(&id);
    // Who repeats is told what was begun then; it may have come further.
    let book = making.api.get::<Box<RawValue>>(&place).await;
    let book = book.map_err(|error| unseen(&making, &id, error))?;
    let book = if Standing::of(&book)?.state == TAKES_PARTS {
        let sent = send(&making.api, &place, &mut file, size).await;
        sent.map_err(|failure| left(&making, &id, failure))?;
        finish(&making, &id).await?
    } else {
        book
    };
    if upload.no_wait {
        return print_document(&book);
    }
    print_document(&wait(&making.api, book).await?)
}

async fn finish(making: &Making, id: &str) -> Result<Box<RawValue>, Failure> {
    let path = format!("{}/finish", SKILLS_BOOKS.at(id));
    let finished = making.api.send(Method::POST, &path, Vec::new()).await;
    finished.map_err(|error| {
        if error.is_refusal() {
            left(making, id, Failure::general(error))
        } else {
            unseen(making, id, error)
        }
    })
}

/// A failure, and that a book was begun that will not go on by itself.
fn left(making: &Making, id: &str, failure: Failure) -> Failure {
    exit::say(&format!(
        "switchboard: {id} was begun and is not whole; go on with --idempotency-key {}, or remove it with `switchboard skills delete {id}`",
        making.key
    ));
    failure
}

/// No answer that says how far a book is, which may be whole.
fn unseen(making: &Making, id: &str, error: ApiError) -> Failure {
    Failure::general(format!(
        "{id} was begun and may be whole; look with `switchboard skills show {id}`, or go on with --idempotency-key {}: {error}",
        making.key
    ))
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

/// Waits until a book is ready, or is not going to be.
async fn wait(api: &Api, book: Box<RawValue>) -> Result<Box<RawValue>, Failure> {
    let bar = bar(100, "{msg:8} {bar:40} {percent} %");
    let settling = Settling {
        api,
        of: &SKILLS_BOOKS,
        passing: PASSING,
    };
    let drawn = |book: &Standing| {
        bar.set_message(book.state.clone());
        // From 0 to 1, so nothing is lost.
        bar.set_position((book.progress * 100.0) as u64);
    };
    let book = settling.settled(book, drawn).await?;
    bar.finish_and_clear();
    let Standing { id, state, .. } = Standing::of(&book)?;
    if state == "cancelled" {
        return Err(Failure::general(format!("{id} was cancelled")));
    }
    Ok(book)
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

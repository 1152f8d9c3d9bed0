//! Upload of a skills book: hashes the file, sends it in parts, and waits for the indexing. One
//! part is in memory at a time.

use std::path::Path;

use anyhow::Context as _;
use http::Method;
use serde_json::{Value, json, value::RawValue};
use sha2::{Digest, Sha256};
use tokio::{
    fs::File,
    io::{AsyncReadExt as _, AsyncSeekExt as _},
};

use super::Upload;
use crate::{
    api::{Api, ApiError},
    exit::{self, Failure},
    progress,
    resources::{JobStatus, JobWatch, KeyedApi, table::SKILLS},
};

/// Size of a part.
const PART_BYTES: usize = 4 * 1024 * 1024;
/// State in which parts are accepted.
const UPLOADING: &str = "uploading";
/// States that a book leaves by itself once all parts are sent.
const TRANSIENT_STATES: &[&str] = &["parsing", "indexing"];

pub(super) async fn run(upload: &Upload) -> Result<(), Failure> {
    let mime_type = match &upload.mime_type {
        Some(mime_type) => mime_type.as_str(),
        None => mime_type(&upload.file)?,
    };
    let creation = upload.create.begin()?;
    let unreadable = || format!("cannot read {}", upload.file.display());
    let mut file = File::open(&upload.file).await.with_context(unreadable)?;
    let size = file.metadata().await.with_context(unreadable)?.len();
    let sha256 = hash(&mut file).await.with_context(unreadable)?;
    let book = json!({
        "name": name(upload), "mime_type": mime_type, "locale": upload.locale, "size_bytes": size, "sha256": sha256,
    });
    let book = book.to_string().into_bytes();
    let book: Box<RawValue> = creation.create(SKILLS.path, book).await?;
    let id = JobStatus::parse(&book)?.id;
    let path = SKILLS.element_path(&id);
    // A repeated request returns the book as it was created; its state may have advanced.
    let book = creation.api.get::<Box<RawValue>>(&path).await;
    let book = book.map_err(|error| unknown_state(&creation, &id, error))?;
    let book = if JobStatus::parse(&book)?.state == UPLOADING {
        let sent = send(&creation.api, &path, &mut file, size).await;
        sent.map_err(|failure| incomplete(&creation, &id, failure))?;
        finish(&creation, &id).await?
    } else {
        book
    };
    if upload.no_wait {
        return upload.create.format.print(&book);
    }
    upload
        .create
        .format
        .print(&wait(&creation.api, book).await?)
}

async fn finish(creation: &KeyedApi, id: &str) -> Result<Box<RawValue>, Failure> {
    let path = format!("{}/finish", SKILLS.element_path(id));
    let finished = creation.api.send(Method::POST, &path, Vec::new()).await;
    finished.map_err(|error| {
        if error.is_refusal() {
            incomplete(creation, id, Failure::general(error))
        } else {
            unknown_state(creation, id, error)
        }
    })
}

/// Reports a book whose upload is incomplete.
fn incomplete(creation: &KeyedApi, id: &str, failure: Failure) -> Failure {
    exit::print_stderr(&format!(
        "switchboard: {id} is incomplete; resume with --idempotency-key {}, or delete it with `switchboard skills delete {id}`",
        creation.key
    ));
    failure
}

/// Reports a book whose upload may be complete.
fn unknown_state(creation: &KeyedApi, id: &str, error: ApiError) -> Failure {
    Failure::general(format!(
        "{id} may be complete; check it with `switchboard skills show {id}`, or resume with --idempotency-key {}: {error}",
        creation.key
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
    let max_bytes = u64::try_from(PART_BYTES).unwrap_or(u64::MAX);
    Ok(file.take(max_bytes).read_to_end(part).await? > 0)
}

async fn send(api: &Api, path: &str, file: &mut File, size: u64) -> Result<(), Failure> {
    let bar = progress::sending(size);
    let mut part = Vec::with_capacity(PART_BYTES);
    let mut number = 0_u32;
    while read_part(file, &mut part)
        .await
        .context("cannot read the file")?
    {
        number = number.saturating_add(1);
        let path = format!("{path}/parts/{number}");
        let sent = api.send::<Value>(Method::PUT, &path, part.clone()).await;
        sent.map_err(Failure::general)?;
        bar.inc(u64::try_from(part.len()).unwrap_or_default());
    }
    bar.finish_and_clear();
    Ok(())
}

/// Waits until a book is indexed or has failed.
async fn wait(api: &Api, book: Box<RawValue>) -> Result<Box<RawValue>, Failure> {
    let bar = progress::bar(100, "{msg:8} {bar:40} {percent} %");
    let watch = JobWatch {
        api,
        resource: &SKILLS,
        transient_states: TRANSIENT_STATES,
    };
    let draw = |book: &JobStatus| {
        bar.set_message(book.state.clone());
        // The value is at most 100.
        bar.set_position((book.progress * 100.0) as u64);
    };
    let book = watch.wait(book, draw).await?;
    bar.finish_and_clear();
    let JobStatus { id, state, .. } = JobStatus::parse(&book)?;
    if state == "cancelled" {
        return Err(Failure::general(format!("{id} was cancelled")));
    }
    Ok(book)
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
            "cannot infer the type of {} from its name: use --mime-type text/plain, text/markdown, text/html or application/pdf",
            file.display()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mime_type_follows_the_extension() {
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

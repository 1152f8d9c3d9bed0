//! Skills books as documents: how they are shown, and how one begins.
//! Never: a kind of document that nothing here can read.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use switchboard_protocol::id::{OrgId, SkillsBookId};
use switchboard_runtime::problem::Problem;
use switchboard_store::{BookFault, BookState, FoundChunk, NewSkillsBook, Owner, SkillsBook};
use utoipa::ToSchema;

use crate::{
    document::{self, invalid},
    ingestion::Format,
    limits::{
        Limit::{Hex, Line, Locale, Number},
        Rule, rule,
    },
};

/// The largest skills book, in bytes.
const LARGEST_BYTES: f64 = 64.0 * 1024.0 * 1024.0;

/// The limits; docs/settings.md repeats them.
pub(crate) const RULES: &[Rule] = &[
    rule("/name", Line(100)),
    rule("/locale", Locale),
    rule("/size_bytes", Number(1.0, LARGEST_BYTES)),
    rule("/sha256", Hex(64)),
];

/// A skills book as people begin one.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = NewSkillsBook)]
pub(crate) struct Begun {
    /// What people call it.
    #[schema(example = "Manual")]
    name: String,
    /// How it is read.
    mime_type: Format,
    /// The language that it is in.
    #[schema(example = "en")]
    #[serde(default = "english")]
    locale: String,
    /// How many bytes it will have.
    #[schema(example = 4711)]
    size_bytes: i64,
    /// Of all its bytes, in hexadecimal digits.
    #[schema(example = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")]
    sha256: String,
}

fn english() -> String {
    "en".to_owned()
}

/// A skills book as it is shown.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SkillsBook)]
pub(crate) struct ShownBook {
    /// Its id.
    id: SkillsBookId,
    /// Whose it is; null when it is public.
    org_id: Option<OrgId>,
    /// What people call it.
    #[schema(example = "Manual")]
    name: String,
    /// How it is read.
    #[schema(value_type = Format)]
    mime_type: String,
    /// The language that it is in.
    #[schema(example = "en")]
    locale: String,
    /// How many bytes it has, as declared.
    #[schema(example = 4711)]
    size_bytes: i64,
    /// Of all its bytes, as declared.
    #[schema(example = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")]
    sha256: String,
    /// How many bytes its parts have; none when it was given up.
    #[schema(minimum = 0, maximum = 67_108_864, example = 4711)]
    bytes_received: i64,
    /// How far it is.
    state: BookState,
    /// How much of it can be found.
    #[schema(minimum = 0, maximum = 1, example = 0.5)]
    progress: f64,
    /// How many chunks it has; null until it is parsed.
    #[schema(minimum = 1, example = 42)]
    chunks_total: Option<i32>,
    /// How many of them can be found.
    #[schema(minimum = 0, example = 21)]
    chunks_indexed: i32,
    /// Why it failed.
    error: Option<BookFault>,
    /// When it was declared.
    #[schema(example = "2026-01-02T03:04:05Z")]
    created_at: DateTime<Utc>,
    /// When it got further last.
    #[schema(example = "2026-01-02T03:04:05Z")]
    updated_at: DateTime<Utc>,
}

/// A chunk as it is shown to whoever tries a search.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = FoundChunk)]
pub(crate) struct ShownChunk {
    /// Which chunk of the skills book, from 0.
    #[schema(minimum = 0, example = 7)]
    chunk: i32,
    /// How well it fits, compared with others of the same answer.
    #[schema(minimum = 0, maximum = 1, example = 0.31)]
    score: f64,
    /// The headings above it, outermost first.
    #[schema(max_length = 1000, example = "Manual › Care")]
    heading: Option<String>,
    /// The page of a PDF on which it begins.
    #[schema(minimum = 1, example = 3)]
    page: Option<i32>,
    /// What it says.
    #[schema(max_length = 1000, example = "Replace the battery once a year.")]
    text: String,
}

impl From<SkillsBook> for ShownBook {
    fn from(book: SkillsBook) -> Self {
        Self {
            progress: progress(&book),
            id: book.id,
            org_id: match book.owner {
                Owner::Org(org) => Some(org),
                Owner::Installation => None,
            },
            name: book.name,
            mime_type: book.mime_type,
            locale: book.locale,
            size_bytes: book.size_bytes,
            sha256: book.sha256,
            bytes_received: book.bytes_received,
            state: book.state,
            chunks_total: book.chunks_total,
            chunks_indexed: book.chunks_indexed,
            error: book.fault,
            created_at: book.created_at,
            updated_at: book.updated_at,
        }
    }
}

fn progress(book: &SkillsBook) -> f64 {
    match book.chunks_total {
        Some(total) if total > 0 => f64::from(book.chunks_indexed) / f64::from(total),
        _ => 0.0,
    }
}

impl From<FoundChunk> for ShownChunk {
    fn from(found: FoundChunk) -> Self {
        Self {
            chunk: found.number,
            score: found.score,
            heading: found.heading,
            page: found.page,
            text: found.text,
        }
    }
}

/// The book that somebody begins with this document.
pub(super) fn read(document: &Value, id: SkillsBookId) -> Result<NewSkillsBook, Problem> {
    let begun: Begun = document::read(document, "", RULES)?;
    let sha256 = sha256(&begun.sha256)
        .ok_or_else(|| invalid("/sha256", "`/sha256` must be 64 hexadecimal digits."))?;
    Ok(NewSkillsBook {
        id,
        name: begun.name,
        mime_type: begun.mime_type.as_str(),
        locale: begun.locale,
        size_bytes: begun.size_bytes,
        sha256,
    })
}

/// The bytes that digits stand for which the rules have let through.
fn sha256(digits: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    for (byte, pair) in bytes.iter_mut().zip(digits.as_bytes().chunks(2)) {
        let pair = std::str::from_utf8(pair).ok()?;
        *byte = u8::from_str_radix(pair, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_does_not_fit_is_pointed_at() {
        fn check(change: (&str, Value), pointer: Option<&str>) {
            let mut document = json!({
                "name": "Manual", "mime_type": "text/markdown", "size_bytes": 10, "sha256": "aF".repeat(32),
            });
            document[change.0] = change.1;
            let refused = read(&document, SkillsBookId::from_uuid(uuid::Uuid::nil())).err();
            let place = refused
                .as_ref()
                .and_then(|problem| problem.extra.get("pointer"));
            assert_eq!(place, pointer.map(Value::from).as_ref(), "{document}");
        }
        check(("name", json!("Handbuch")), None);
        check(("mime_type", json!("application/pdf")), None);
        check(("size_bytes", json!(64 * 1024 * 1024)), None);
        check(("name", json!(" ")), Some("/name"));
        check(("locale", json!("zh-Hans-CN")), None);
        check(("locale", json!("Chinese?")), Some("/locale"));
        check(("locale", json!("")), Some("/locale"));
        check(("mime_type", json!("image/png")), Some("/mime_type"));
        check(("size_bytes", json!(0)), Some("/size_bytes"));
        check(
            ("size_bytes", json!(64 * 1024 * 1024 + 1)),
            Some("/size_bytes"),
        );
        check(("size_bytes", json!("1")), Some("/size_bytes"));
        check(("sha256", json!("+f".repeat(32))), Some("/sha256"));
        check(("sha256", json!("é".repeat(32))), Some("/sha256"));
        check(("sha256", json!("")), Some("/sha256"));
        check(("state", json!("ready")), Some("/state"));
    }
}

//! Skills books as documents: how they are shown, and how one begins.
//! Never: a kind of document that nothing here can read.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use switchboard_protocol::id::{OrgId, SkillsBookId};
use switchboard_runtime::problem::Problem;
use switchboard_store::{BookFault, BookState, FoundChunk, NewSkillsBook, Owner, SkillsBook};

use crate::{
    document::{self, invalid},
    ingestion::Format,
    limits::{
        Limit::{Line, Locale, Number},
        Rule, rule,
    },
};

/// The largest skills book, in bytes.
const LARGEST_BYTES: f64 = 64.0 * 1024.0 * 1024.0;

/// The limits; docs/settings.md repeats them.
const RULES: &[Rule] = &[
    rule("/name", Line(100)),
    rule("/locale", Locale),
    rule("/size_bytes", Number(1.0, LARGEST_BYTES)),
];

/// A skills book as people begin one.
#[derive(Debug, Serialize, Deserialize)]
struct Begun {
    name: String,
    mime_type: Format,
    #[serde(default = "english")]
    locale: String,
    size_bytes: i64,
    sha256: String,
}

fn english() -> String {
    "en".to_owned()
}

/// A skills book as it is shown.
#[derive(Debug, Serialize)]
pub(crate) struct ShownBook {
    id: SkillsBookId,
    /// Null when it is public.
    org_id: Option<OrgId>,
    name: String,
    mime_type: String,
    locale: String,
    size_bytes: i64,
    sha256: String,
    bytes_received: i64,
    state: BookState,
    /// How much of it can be found, 0 to 1.
    progress: f64,
    chunks_total: Option<i32>,
    chunks_indexed: i32,
    /// Why it failed.
    error: Option<BookFault>,
    created_at: DateTime<Utc>,
    updated_at: DateTime<Utc>,
}

/// A chunk as it is shown to whoever tries a search.
#[derive(Debug, Serialize)]
pub(crate) struct ShownChunk {
    chunk: i32,
    score: f64,
    heading: Option<String>,
    page: Option<i32>,
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
    let sha256 = sha256(&begun.sha256).ok_or_else(|| {
        invalid(
            "/sha256",
            "`/sha256` must be the SHA-256 of the whole, as 64 hexadecimal digits.",
        )
    })?;
    Ok(NewSkillsBook {
        id,
        name: begun.name,
        mime_type: begun.mime_type.as_str(),
        locale: begun.locale,
        size_bytes: begun.size_bytes,
        sha256,
    })
}

fn sha256(digits: &str) -> Option<[u8; 32]> {
    if digits.len() != 64 {
        return None;
    }
    let mut bytes = [0; 32];
    for (byte, pair) in bytes.iter_mut().zip(digits.as_bytes().chunks(2)) {
        let pair = std::str::from_utf8(pair).ok()?;
        *byte = u8::from_str_radix(pair, 16).ok()?;
    }
    // The parser also takes a sign.
    (!digits.contains('+')).then_some(bytes)
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

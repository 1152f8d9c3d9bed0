//! Request and response schemas of skills books.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use switchboard_protocol::id::{OrgId, SkillsBookId};
use switchboard_runtime::problem::Problem;
use switchboard_store::{BookFault, BookState, ChunkMatch, NewSkillsBook, Owner, SkillsBook};
use utoipa::ToSchema;

use crate::{
    http::{
        documents::{self, invalid},
        limits::{
            Limit::{Hex, Line, Locale, Number},
            Rule, rule,
        },
    },
    workers::ingestion::Format,
};

/// The maximum size of a skills book in bytes.
const MAX_BYTES: f64 = 64.0 * 1024.0 * 1024.0;

/// The limits, documented in docs/settings.md.
pub(crate) const RULES: &[Rule] = &[
    rule("/name", Line(100)),
    rule("/locale", Locale),
    rule("/size_bytes", Number(1.0, MAX_BYTES)),
    rule("/sha256", Hex(64)),
];

/// A skills book to create.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = NewSkillsBook)]
pub(crate) struct SkillsBookDocument {
    /// Display name.
    #[schema(example = "Manual")]
    name: String,
    /// Media type of the document.
    mime_type: Format,
    /// Language of the document.
    #[schema(example = "en")]
    #[serde(default = "english")]
    locale: String,
    /// Size of the document in bytes.
    #[schema(example = 4711)]
    size_bytes: i64,
    /// SHA-256 of the document in hexadecimal digits.
    #[schema(example = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")]
    sha256: String,
}

fn english() -> String {
    "en".to_owned()
}

/// A skills book.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SkillsBook)]
pub(crate) struct SkillsBookView {
    /// Unique identifier.
    id: SkillsBookId,
    /// The organisation that owns it; null if it is public.
    org_id: Option<OrgId>,
    /// Display name.
    #[schema(example = "Manual")]
    name: String,
    /// Media type of the document.
    #[schema(value_type = Format)]
    mime_type: String,
    /// Language of the document.
    #[schema(example = "en")]
    locale: String,
    /// Declared size of the document in bytes.
    #[schema(example = 4711)]
    size_bytes: i64,
    /// Declared SHA-256 of the document in hexadecimal digits.
    #[schema(example = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")]
    sha256: String,
    /// Total size of the uploaded parts in bytes; 0 after it was cancelled.
    #[schema(minimum = 0, maximum = 67_108_864, example = 4711)]
    bytes_received: i64,
    /// State of the upload and ingestion.
    state: BookState,
    /// Share of the chunks that can be found by searches.
    #[schema(minimum = 0, maximum = 1, example = 0.5)]
    progress: f64,
    /// Number of chunks; null until the document is parsed.
    #[schema(minimum = 1, example = 42)]
    chunks_total: Option<i32>,
    /// Number of chunks that can be found by searches.
    #[schema(minimum = 0, example = 21)]
    chunks_indexed: i32,
    /// Reason of the failure; null if there is none.
    error: Option<BookFault>,
    /// Time of creation (RFC 3339).
    #[schema(example = "2026-01-02T03:04:05Z")]
    created_at: DateTime<Utc>,
    /// Time of the last change (RFC 3339).
    #[schema(example = "2026-01-02T03:04:05Z")]
    updated_at: DateTime<Utc>,
}

/// A chunk that matches a search.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ChunkMatch)]
pub(crate) struct ChunkView {
    /// Index of the chunk in the skills book, starting at 0.
    #[schema(minimum = 0, example = 7)]
    chunk: i32,
    /// How well the chunk matches; comparable within one response.
    #[schema(minimum = 0, maximum = 1, example = 0.31)]
    score: f64,
    /// Headings above the chunk, outermost first.
    #[schema(max_length = 1000, example = "Manual › Care")]
    heading: Option<String>,
    /// Page of a PDF on which the chunk begins.
    #[schema(minimum = 1, example = 3)]
    page: Option<i32>,
    /// Text of the chunk.
    #[schema(max_length = 1000, example = "Replace the battery once a year.")]
    text: String,
}

impl From<SkillsBook> for SkillsBookView {
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

impl From<ChunkMatch> for ChunkView {
    fn from(found: ChunkMatch) -> Self {
        Self {
            chunk: found.number,
            score: found.score,
            heading: found.heading,
            page: found.page,
            text: found.text,
        }
    }
}

/// Parses a skills book to create.
pub(super) fn parse_new(document: &Value, id: SkillsBookId) -> Result<NewSkillsBook, Problem> {
    let new: SkillsBookDocument = documents::parse(document, "", RULES)?;
    let sha256 = sha256(&new.sha256)
        .ok_or_else(|| invalid("/sha256", "`/sha256` must be 64 hexadecimal digits."))?;
    Ok(NewSkillsBook {
        id,
        name: new.name,
        mime_type: new.mime_type.as_str(),
        locale: new.locale,
        size_bytes: new.size_bytes,
        sha256,
    })
}

/// Decodes hexadecimal digits; the rules have checked their number.
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
    fn invalid_book_is_rejected_with_its_pointer() {
        fn check(change: (&str, Value), pointer: Option<&str>) {
            let mut document = json!({
                "name": "Manual", "mime_type": "text/markdown", "size_bytes": 10, "sha256": "aF".repeat(32),
            });
            document[change.0] = change.1;
            let refused = parse_new(&document, SkillsBookId::from_uuid(uuid::Uuid::nil())).err();
            let place = refused.as_ref().and_then(Problem::pointer);
            assert_eq!(place, pointer, "{document}");
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

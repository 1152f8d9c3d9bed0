//! Why something is not done with a skills book, in words that say what would be right.
//! Never: a decision; those are the store's.

use http::StatusCode;
use switchboard_runtime::problem::Problem;
use switchboard_store::BookState;

use super::asked::LAST_PART;

pub(super) fn part_number(sent: &str) -> Problem {
    let sent: String = sent.chars().take(32).collect();
    Problem::new(
        StatusCode::BAD_REQUEST,
        "invalid_part_number",
        "Invalid part number",
        format!("Parts are numbered from 1 to {LAST_PART}; `{sent}` is no such number."),
    )
}

pub(super) fn empty_part() -> Problem {
    Problem::new(
        StatusCode::BAD_REQUEST,
        "empty_body",
        "Empty body",
        "A part has one byte at least, and nothing was sent.",
    )
}

pub(super) fn takes_no_parts(state: BookState) -> Problem {
    let detail = format!(
        "The skills book is {}; it takes parts only while it is uploading.",
        state.as_str()
    );
    conflict(
        "skills_book_not_uploading",
        "Skills book not uploading",
        detail,
    )
    .with("state", state)
}

pub(super) fn larger_than_declared(declared: i64, would_be: i64) -> Problem {
    let detail = format!(
        "With this part there would be {would_be} bytes, and the skills book was declared to have {declared}; \
         the part was not stored."
    );
    conflict("larger_than_declared", "Larger than declared", detail)
        .with("declared_bytes", declared)
        .with("would_be_bytes", would_be)
}

pub(super) fn over(state: BookState, what: &str) -> Problem {
    let detail = format!(
        "The skills book is {}; it cannot be {what}.",
        state.as_str()
    );
    conflict("skills_book_over", "Skills book over", detail).with("state", state)
}

pub(super) fn parts_missing(parts: &[i32], count: usize) -> Problem {
    let named: Vec<_> = parts.iter().map(i32::to_string).collect();
    let more = match count.saturating_sub(parts.len()) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let detail = format!(
        "Parts are missing: {}{more}. Send them, then finish again.",
        named.join(", ")
    );
    conflict("parts_missing", "Parts missing", detail).with("missing_parts", parts)
}

pub(super) fn wrong_size(declared: i64, sent: i64) -> Problem {
    let detail = format!(
        "The parts have {sent} bytes together, and the skills book was declared to have {declared}. \
         Send what is missing, then finish again."
    );
    conflict("size_mismatch", "Size mismatch", detail)
        .with("declared_bytes", declared)
        .with("sent_bytes", sent)
}

pub(super) fn wrong_hash(sent: &str) -> Problem {
    Problem::new(
        StatusCode::UNPROCESSABLE_ENTITY,
        "sha256_mismatch",
        "SHA-256 mismatch",
        "The parts together have another SHA-256 than was declared. Send the parts that are wrong again, then finish again.",
    )
    .with("sent_sha256", sent)
}

pub(super) fn changed() -> Problem {
    conflict(
        "parts_changed",
        "Parts changed",
        "A part was written while the parts were checked. Finish again when all of them are there.",
    )
}

pub(super) fn in_use() -> Problem {
    conflict(
        "skills_book_in_use",
        "Skills book in use",
        "A template or an NPC names this skills book; take it out of its `skills_book_ids` first.",
    )
}

fn conflict(slug: &'static str, title: &'static str, detail: impl Into<String>) -> Problem {
    Problem::new(StatusCode::CONFLICT, slug, title, detail)
}

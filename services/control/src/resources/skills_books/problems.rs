//! Problems of skills book requests.

use switchboard_runtime::problem::{Problem, ProblemKind};
use switchboard_store::BookState;

use super::query::MAX_PART_NUMBER;

pub(super) fn part_number(sent: &str) -> Problem {
    let sent: String = sent.chars().take(32).collect();
    Problem::new(
        ProblemKind::InvalidPartNumber,
        format!("Parts are numbered from 1 to {MAX_PART_NUMBER}; `{sent}` is not such a number."),
    )
}

pub(super) fn empty_part() -> Problem {
    Problem::new(
        ProblemKind::EmptyBody,
        "A part must have at least one byte.",
    )
}

pub(super) fn not_uploading(state: BookState) -> Problem {
    let detail = format!(
        "The skills book is {}; it accepts parts only while it is uploading.",
        state.as_str()
    );
    Problem::new(ProblemKind::SkillsBookNotUploading, detail).with("state", state)
}

pub(super) fn larger_than_declared(declared: i64, would_be: i64) -> Problem {
    let detail = format!(
        "With this part there would be {would_be} bytes, but the skills book declares {declared}. \
         The part was not stored."
    );
    Problem::new(ProblemKind::LargerThanDeclared, detail)
        .with("declared_bytes", declared)
        .with("would_be_bytes", would_be)
}

pub(super) fn finished(state: BookState, action: &str) -> Problem {
    let detail = format!(
        "The skills book is {}; it cannot be {action}.",
        state.as_str()
    );
    Problem::new(ProblemKind::SkillsBookOver, detail).with("state", state)
}

pub(super) fn parts_missing(parts: &[i32], count: usize) -> Problem {
    let numbers: Vec<_> = parts.iter().map(i32::to_string).collect();
    let more = match count.saturating_sub(parts.len()) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let detail = format!(
        "Parts are missing: {}{more}. Upload them, then finish again.",
        numbers.join(", ")
    );
    Problem::new(ProblemKind::PartsMissing, detail).with("missing_parts", parts)
}

pub(super) fn wrong_size(declared: i64, sent: i64) -> Problem {
    let detail = format!(
        "The parts have {sent} bytes in total, but the skills book declares {declared}. \
         Upload the missing parts, then finish again."
    );
    Problem::new(ProblemKind::SizeMismatch, detail)
        .with("declared_bytes", declared)
        .with("sent_bytes", sent)
}

pub(super) fn wrong_hash(sent: &str) -> Problem {
    Problem::new(
        ProblemKind::Sha256Mismatch,
        "The SHA-256 of the parts is not the declared one. Upload the wrong parts again, then finish again.",
    )
    .with("sent_sha256", sent)
}

pub(super) fn changed() -> Problem {
    Problem::new(
        ProblemKind::PartsChanged,
        "A part was uploaded while the parts were checked. Finish again when all of them are uploaded.",
    )
}

pub(super) fn in_use() -> Problem {
    Problem::new(
        ProblemKind::SkillsBookInUse,
        "A template or an NPC uses this skills book. Remove it from its `skills_book_ids` first.",
    )
}

//! The URIs of skills books: of the contents, of a chunk, and of a search.
//!
//! Invariant: each part of a book has exactly one URI.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;
use rmcp::ErrorData;
use switchboard_protocol::id::SkillsBookId;
use switchboard_store::ReadyBook;

/// The limit of the REST API, in characters.
const MAX_QUESTION_CHARS: usize = 1_000;

/// The part of a book that a URI names.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BookPart<'a> {
    Contents,
    Chunk(i32),
    Search(Option<Cow<'a, str>>),
}

/// Validates the question of a search.
pub(super) fn parse_question(question: Option<Cow<'_, str>>) -> Result<String, ErrorData> {
    let question = question.unwrap_or_default();
    let question = question.trim();
    let fits = (1..=MAX_QUESTION_CHARS).contains(&question.chars().count());
    if fits && !question.contains('\0') {
        return Ok(question.to_owned());
    }
    let detail =
        format!("a search must have a question `?q=` of 1 to {MAX_QUESTION_CHARS} characters");
    Err(ErrorData::invalid_params(detail, None))
}

pub(super) fn chunk_uri(id: SkillsBookId, number: i32) -> String {
    format!("{}/chunks/{number}", ReadyBook::uri(id))
}

pub(super) fn parse(uri: &str) -> Option<(SkillsBookId, BookPart<'_>)> {
    let rest = uri.strip_prefix(ReadyBook::URI_PREFIX)?;
    let (id_text, part) = rest.split_once('/').unwrap_or((rest, ""));
    let id: SkillsBookId = id_text.parse().ok()?;
    if id.to_string() != id_text {
        return None;
    }
    let part = match part.split_once(['/', '?']) {
        None if part.is_empty() && !rest.ends_with('/') => BookPart::Contents,
        None if part == "search" => BookPart::Search(None),
        Some(("search", query)) if part.starts_with("search?") => BookPart::Search(question(query)),
        Some(("chunks", number_text)) if part.starts_with("chunks/") => {
            let number: i32 = number_text.parse().ok()?;
            if number.to_string() != number_text {
                return None;
            }
            BookPart::Chunk(number)
        }
        _ => return None,
    };
    Some((id, part))
}

/// `q` of a query. A `+` is a space, as in forms; a literal one is encoded as `%2B` (RFC 6570,
/// section 3.2.8).
fn question(query: &str) -> Option<Cow<'_, str>> {
    let mut pairs = query.split('&');
    let encoded = pairs.find_map(|pair| pair.strip_prefix("q="))?;
    let spaced = encoded.replace('+', " ");
    let decoded = percent_decode_str(&spaced).decode_utf8().ok()?;
    Some(Cow::Owned(decoded.into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn book_uri_is_parsed() {
        const ID: &str = "skb_01a1fdc1f2b67a3cbd0a7a5a2d2c6f41";
        fn check(suffix: &str, expected: Option<BookPart<'_>>) {
            let uri = format!("switchboard://skills-books/{ID}{suffix}");
            let found = parse(&uri);
            let expected = expected.map(|part| (ID.parse().unwrap(), part));
            assert_eq!(found, expected, "{uri}");
        }
        let search = |question: &'static str| Some(BookPart::Search(Some(question.into())));
        check("", Some(BookPart::Contents));
        check("/", None);
        check("/chunks/0", Some(BookPart::Chunk(0)));
        check("/chunks/17", Some(BookPart::Chunk(17)));
        for wrong in ["", "x", "+1", "01", "1/", "1?", "99999999999"] {
            check(&format!("/chunks/{wrong}"), None);
        }
        check("/search", Some(BookPart::Search(None)));
        check("/search?", Some(BookPart::Search(None)));
        check("/search?p=1", Some(BookPart::Search(None)));
        check("/search?q=a+b%20c%2B%E7%94%B5", search("a b c+电"));
        check("/search?p=1&q=a b", search("a b"));
        check("/search?q=%FF", Some(BookPart::Search(None)));
        check("/search/q", None);
        check("/other", None);
        assert_eq!(
            parse(&format!("switchboard://skills-books/{}", ID.to_uppercase())),
            None
        );
        assert_eq!(parse("switchboard://memories/x"), None);
    }

    #[test]
    fn question_length_is_limited() {
        fn check(question: &str, fits: bool) {
            let parsed = parse_question(Some(question.into()));
            assert_eq!(parsed.is_ok(), fits, "{question:.20}");
        }
        check(" a ", true);
        check("", false);
        check("  ", false);
        check("a\0", false);
        check(&"电".repeat(MAX_QUESTION_CHARS), true);
        check(&"a".repeat(MAX_QUESTION_CHARS + 1), false);
    }
}

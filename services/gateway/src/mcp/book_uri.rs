//! The URIs of skills books: of what is in one, of a chunk, and of a search.
//! Never: two URIs for one thing, or a look into a book.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;
use rmcp::ErrorData;
use switchboard_protocol::id::SkillsBookId;
use switchboard_store::ReadyBook;

/// The longest question, in characters; that of the API.
const LONGEST_QUESTION: usize = 1_000;

/// What a URI of a book leads to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Place<'a> {
    Contents,
    Chunk(i32),
    Search(Option<Cow<'a, str>>),
}

/// The question, if it is one that can be asked.
pub(super) fn asked(question: Option<Cow<'_, str>>) -> Result<String, ErrorData> {
    let question = question.unwrap_or_default();
    let question = question.trim();
    let fits = (1..=LONGEST_QUESTION).contains(&question.chars().count());
    if fits && !question.contains('\0') {
        return Ok(question.to_owned());
    }
    let detail = format!("a search has a question, `?q=`, of 1 to {LONGEST_QUESTION} characters");
    Err(ErrorData::invalid_params(detail, None))
}

pub(super) fn uri_of_chunk(id: SkillsBookId, number: i32) -> String {
    format!("{}/chunks/{number}", ReadyBook::uri_of(id))
}

/// Reads the URI of a book, of which each has one.
pub(super) fn parse(uri: &str) -> Option<(SkillsBookId, Place<'_>)> {
    let rest = uri.strip_prefix(ReadyBook::URIS)?;
    let (written, place) = rest.split_once('/').unwrap_or((rest, ""));
    let id: SkillsBookId = written.parse().ok()?;
    if id.to_string() != written {
        return None;
    }
    let place = match place.split_once(['/', '?']) {
        None if place.is_empty() && !rest.ends_with('/') => Place::Contents,
        None if place == "search" => Place::Search(None),
        Some(("search", query)) if place.starts_with("search?") => Place::Search(question(query)),
        Some(("chunks", written)) if place.starts_with("chunks/") => {
            let number: i32 = written.parse().ok()?;
            if number.to_string() != written {
                return None;
            }
            Place::Chunk(number)
        }
        _ => return None,
    };
    Some((id, place))
}

/// `q` of a query. A `+` that means itself comes as `%2B` (RFC 6570, section 3.2.8), so it is a space as in forms.
fn question(query: &str) -> Option<Cow<'_, str>> {
    let mut pairs = query.split('&');
    let written = pairs.find_map(|pair| pair.strip_prefix("q="))?;
    let spaced = written.replace('+', " ");
    let decoded = percent_decode_str(&spaced).decode_utf8().ok()?;
    Some(Cow::Owned(decoded.into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_of_books_are_read() {
        const ID: &str = "skb_01a1fdc1f2b67a3cbd0a7a5a2d2c6f41";
        fn check(place: &str, expected: Option<Place<'_>>) {
            let uri = format!("switchboard://skills-books/{ID}{place}");
            let found = parse(&uri);
            let expected = expected.map(|place| (ID.parse().unwrap(), place));
            assert_eq!(found, expected, "{uri}");
        }
        let search = |question: &'static str| Some(Place::Search(Some(question.into())));
        check("", Some(Place::Contents));
        check("/", None);
        check("/chunks/0", Some(Place::Chunk(0)));
        check("/chunks/17", Some(Place::Chunk(17)));
        for wrong in ["", "x", "+1", "01", "1/", "1?", "99999999999"] {
            check(&format!("/chunks/{wrong}"), None);
        }
        check("/search", Some(Place::Search(None)));
        check("/search?", Some(Place::Search(None)));
        check("/search?p=1", Some(Place::Search(None)));
        check("/search?q=a+b%20c%2B%E7%94%B5", search("a b c+电"));
        check("/search?p=1&q=a b", search("a b"));
        check("/search?q=%FF", Some(Place::Search(None)));
        check("/search/q", None);
        check("/other", None);
        assert_eq!(
            parse(&format!("switchboard://skills-books/{}", ID.to_uppercase())),
            None
        );
        assert_eq!(parse("switchboard://memories/x"), None);
    }

    #[test]
    fn a_question_has_a_length() {
        fn check(question: &str, fits: bool) {
            assert_eq!(asked(Some(question.into())).is_ok(), fits, "{question:.20}");
        }
        check(" a ", true);
        check("", false);
        check("  ", false);
        check("a\0", false);
        check(&"电".repeat(LONGEST_QUESTION), true);
        check(&"a".repeat(LONGEST_QUESTION + 1), false);
    }
}

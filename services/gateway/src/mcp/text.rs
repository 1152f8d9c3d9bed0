//! Text that a device supplied, made fit to be read by a model.
//! Never: a character that hides from people what a model reads, or a text without a bound.

use std::borrow::Cow;

use serde_json::{Map, Value};

/// What a cut text ends with.
const ELLIPSIS: &str = "…";

/// The text without control, bidirectional-override and zero-width characters; line breaks and tabs stay.
pub(super) fn clean(text: &str) -> Cow<'_, str> {
    if text.chars().any(is_hidden) {
        Cow::Owned(text.chars().filter(|c| !is_hidden(*c)).collect())
    } else {
        Cow::Borrowed(text)
    }
}

/// The same with at most `limit` bytes, cut between two characters.
pub(super) fn clean_to(text: &str, limit: usize) -> String {
    let mut cleaned = clean(text).into_owned();
    if cleaned.len() > limit {
        let room = limit.saturating_sub(ELLIPSIS.len());
        cleaned.truncate(cleaned.floor_char_boundary(room));
        cleaned.push_str(ELLIPSIS);
    }
    cleaned
}

/// Cleans every string and every key of a value. Its depth is bounded by the parser that made it.
pub(super) fn clean_value(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(match clean(&text) {
            Cow::Borrowed(_) => text,
            Cow::Owned(cleaned) => cleaned,
        }),
        Value::Array(items) => Value::Array(items.into_iter().map(clean_value).collect()),
        Value::Object(members) => Value::Object(
            members
                .into_iter()
                .map(|(key, value)| (clean(&key).into_owned(), clean_value(value)))
                .collect(),
        ),
        other => other,
    }
}

/// Cleans what a schema says in words, and nothing that decides what matches it.
pub(super) fn clean_schema(schema: &mut Map<String, Value>) {
    for (keyword, value) in schema.iter_mut() {
        match (keyword.as_str(), value) {
            ("title" | "description" | "$comment", Value::String(words)) => {
                if let Cow::Owned(cleaned) = clean(words) {
                    *words = cleaned;
                }
            }
            // Data, not schemas: a changed character would be another value.
            ("enum" | "const" | "default" | "examples", _) => {}
            (_, Value::Object(inner)) => clean_schema(inner),
            (_, Value::Array(items)) => {
                let schemas = items.iter_mut().filter_map(Value::as_object_mut);
                schemas.for_each(clean_schema);
            }
            _ => {}
        }
    }
}

const fn is_hidden(c: char) -> bool {
    match c {
        '\n' | '\t' | '\r' => false,
        // Controls; soft hyphen and Arabic letter mark; zero-width and direction marks; line and paragraph
        // separators and overrides; invisible operators and isolates; byte-order mark; annotations; tags.
        '\u{0}'..='\u{1f}'
        | '\u{7f}'..='\u{9f}'
        | '\u{ad}'
        | '\u{61c}'
        | '\u{180e}'
        | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{feff}'
        | '\u{fff9}'..='\u{fffb}'
        | '\u{e0000}'..='\u{e007f}' => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_hides_is_taken_out() {
        fn check(text: &str, expected: &str) {
            assert_eq!(clean(text), expected, "{text:?}");
        }
        check("plain\n\ttext", "plain\n\ttext");
        check("现在几点？", "现在几点？");
        check("a\u{200b}b\u{202e}c\u{1b}[31m", "abc[31m");
        check("\u{feff}ignore\u{e0041}", "ignore");
        check("x\0y\u{9b}", "xy");
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        fn check(text: &str, limit: usize, expected: &str) {
            let cut = clean_to(text, limit);
            assert_eq!(cut, expected);
            assert!(cut.len() <= limit.max(ELLIPSIS.len()));
        }
        check("abc", 3, "abc");
        check("abcdef", 5, "ab…");
        check("现在几点", 10, "现在…");
    }

    #[test]
    fn a_schema_keeps_its_meaning() {
        let mut schema = json!({
            "description": "a\u{200b}b",
            "properties": {"description": {"title": "t\u{202e}", "enum": ["x\u{200b}"]}},
            "anyOf": [{"description": "\u{feff}c", "pattern": "\u{200b}"}],
        });
        clean_schema(schema.as_object_mut().unwrap());
        let expected = json!({
            "description": "ab",
            "properties": {"description": {"title": "t", "enum": ["x\u{200b}"]}},
            "anyOf": [{"description": "c", "pattern": "\u{200b}"}],
        });
        assert_eq!(schema, expected);
    }
}

//! Hidden characters in texts of devices: removes them for models, and makes them visible for
//! people.

use std::{borrow::Cow, fmt::Write as _, mem};

use icu_properties::{
    CodePointSetData, CodePointSetDataBorrowed,
    props::{DefaultIgnorableCodePoint, Emoji},
};
use serde_json::{Map, Value};

/// Maximum bytes that wait for the rest of an emoji.
const MAX_HELD_BYTES: usize = 64;
/// The end of a truncated text.
const ELLIPSIS: &str = "…";
/// Characters without a visible form, by Unicode.
const IGNORABLE: CodePointSetDataBorrowed<'static> =
    CodePointSetData::new::<DefaultIgnorableCodePoint>();
const EMOJI: CodePointSetDataBorrowed<'static> = CodePointSetData::new::<Emoji>();
const TEXT_STYLE: char = '\u{fe0e}';
const EMOJI_STYLE: char = '\u{fe0f}';
const JOINER: char = '\u{200d}';

/// The text without invisible characters: controls, direction marks, zero-width characters, tags,
/// fillers, variation selectors. Line breaks and tabs stay, and the joiners within an emoji.
#[must_use]
pub fn clean(text: &str) -> Cow<'_, str> {
    // Most texts are plain.
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        return Cow::Borrowed(text);
    }
    replace(text, hidden(text), |_, _| {})
}

/// The text with an escape such as `\u{1b}` in place of each hidden character, for a terminal.
/// Line breaks and tabs stay; a carriage return alone, which overwrites the line, does not.
#[must_use]
pub fn escape(text: &str) -> Cow<'_, str> {
    escape_after(None, text)
}

/// The same for a text that continues another one, which ends with `before`.
#[must_use]
pub fn escape_after(before: Option<char>, text: &str) -> Cow<'_, str> {
    let steers = |c, next| is_ignorable(c) || (c == '\r' && next != Some('\n'));
    replace(text, select(before, text, steers), |escaped, c| {
        // Writing to a `String` cannot fail.
        let _ = write!(escaped, "\\u{{{:x}}}", u32::from(c));
    })
}

/// Valid JSON with an escape such as `\u001b` in place of each hidden character: the same value.
#[must_use]
pub fn escape_json(json: &str) -> Cow<'_, str> {
    replace(json, hidden(json), |escaped, c| {
        for unit in c.encode_utf16(&mut [0; 2]) {
            let _ = write!(escaped, "\\u{unit:04x}");
        }
    })
}

/// The text with something else in place of the characters at these places.
fn replace<'a>(
    text: &'a str,
    characters: impl Iterator<Item = (usize, char)>,
    mut with: impl FnMut(&mut String, char),
) -> Cow<'a, str> {
    let mut replaced = String::new();
    let mut from = 0;
    for (at, c) in characters {
        replaced.push_str(text.get(from..at).unwrap_or_default());
        with(&mut replaced, c);
        from = at.saturating_add(c.len_utf8());
    }
    if from == 0 {
        return Cow::Borrowed(text);
    }
    replaced.push_str(text.get(from..).unwrap_or_default());
    Cow::Owned(replaced)
}

/// Whether the text has characters that [`clean`] removes.
#[must_use]
pub fn has_hidden(text: &str) -> bool {
    hidden(text).next().is_some()
}

/// The hidden characters and their places.
fn hidden(text: &str) -> impl Iterator<Item = (usize, char)> {
    select(None, text, |c, _| is_ignorable(c))
}

/// The characters that match by themselves and the next one, except those that belong to an emoji,
/// and their places. `before` is the character in front of the text.
fn select(
    mut before: Option<char>,
    text: &str,
    matches: impl Fn(char, Option<char>) -> bool,
) -> impl Iterator<Item = (usize, char)> {
    text.char_indices().filter(move |(at, c)| {
        let last = before.replace(*c);
        let rest = text.get(at.saturating_add(c.len_utf8())..);
        let next = rest.and_then(|rest| rest.chars().next());
        matches(*c, next) && !belongs_to_emoji(last, *c, next)
    })
}

/// The cleaned text with at most `limit` bytes, truncated between two characters.
#[must_use]
pub fn clean_to(text: &str, limit: usize) -> String {
    let mut cleaned = clean(text).into_owned();
    if cleaned.len() > limit {
        let room = limit.saturating_sub(ELLIPSIS.len());
        cleaned.truncate(cleaned.floor_char_boundary(room));
        cleaned.push_str(ELLIPSIS);
    }
    cleaned
}

/// Cleans a text that arrives in pieces.
#[derive(Debug, Default)]
pub struct StreamCleaner {
    /// The last character that was returned.
    last: Option<char>,
    /// Invisible characters at the end, which may join an emoji with the next piece.
    held: String,
}

impl StreamCleaner {
    /// The cleaned text up to here, except invisible characters at its end.
    pub fn push(&mut self, piece: &str) -> String {
        let mut text = mem::take(&mut self.held);
        text.push_str(piece);
        let max = text.len().saturating_sub(MAX_HELD_BYTES);
        let visible = text.trim_end_matches(is_ignorable).len();
        self.held = text.split_off(visible.max(text.ceil_char_boundary(max)));
        self.clean(&text)
    }

    /// The rest, at the end of the text.
    pub fn finish(&mut self) -> String {
        let text = mem::take(&mut self.held);
        self.clean(&text)
    }

    fn clean(&mut self, text: &str) -> String {
        let before = self.last.map(String::from).unwrap_or_default();
        let whole = format!("{before}{text}");
        let cleaned = clean(&whole);
        let cleaned = cleaned.strip_prefix(&before).unwrap_or(&cleaned);
        self.last = cleaned.chars().next_back().or(self.last);
        cleaned.to_owned()
    }
}

/// Cleans all strings and keys of a value. Its depth is bounded by the parser.
#[must_use]
pub fn clean_value(mut value: Value) -> Value {
    clean_in_place(&mut value);
    value
}

fn clean_in_place(value: &mut Value) {
    match value {
        Value::String(text) => {
            if let Cow::Owned(cleaned) = clean(text) {
                *text = cleaned;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(clean_in_place),
        Value::Object(members) => {
            members.values_mut().for_each(clean_in_place);
            if members.keys().any(|key| has_hidden(key)) {
                let all = std::mem::take(members).into_iter();
                *members = all
                    .map(|(key, value)| (clean(&key).into_owned(), value))
                    .collect();
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Cleans the texts of a schema, but nothing that affects validation.
pub fn clean_schema(schema: &mut Map<String, Value>) {
    for (keyword, value) in schema.iter_mut() {
        match (keyword.as_str(), value) {
            ("title" | "description" | "$comment" | "default" | "examples", words)
                if !matches!(words, Value::Object(_) | Value::Bool(_)) =>
            {
                clean_in_place(words);
            }
            // Values to compare with must not change.
            ("enum" | "const", _) => {}
            (_, Value::Object(inner)) => clean_schema(inner),
            (_, Value::Array(items)) => {
                let schemas = items.iter_mut().filter_map(Value::as_object_mut);
                schemas.for_each(clean_schema);
            }
            _ => {}
        }
    }
}

/// Whether a value has hidden characters, in a key or in a string.
#[must_use]
pub fn has_hidden_text(value: &Value) -> bool {
    match value {
        Value::String(text) => has_hidden(text),
        Value::Array(items) => items.iter().any(has_hidden_text),
        Value::Object(members) => has_hidden_members(members),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Whether an object has hidden characters in its members.
#[must_use]
pub fn has_hidden_members(members: &Map<String, Value>) -> bool {
    members
        .iter()
        .any(|(name, value)| has_hidden(name) || has_hidden_text(value))
}

/// Whether the character is invisible by itself.
fn is_ignorable(c: char) -> bool {
    match c {
        '\n' | '\t' | '\r' => false,
        '\u{0}'..='\u{7f}' => c.is_ascii_control(),
        // Line and paragraph separators; interlinear annotations.
        '\u{80}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{fff9}'..='\u{fffb}' => true,
        _ => IGNORABLE.contains(c),
    }
}

/// Whether the character belongs to the emoji before it, or joins it with the next.
fn belongs_to_emoji(before: Option<char>, c: char, next: Option<char>) -> bool {
    let follows = |c| EMOJI.contains(c);
    match c {
        TEXT_STYLE | EMOJI_STYLE => before.is_some_and(follows),
        JOINER => {
            before.is_some_and(|c| c == EMOJI_STYLE || follows(c)) && next.is_some_and(follows)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn hidden_characters_are_removed() {
        fn check(text: &str, expected: &str) {
            assert_eq!(clean(text), expected, "{text:?}");
        }
        check("plain\n\ttext", "plain\n\ttext");
        check("现在几点？", "现在几点？");
        check("a\u{200b}b\u{202e}c\u{1b}[31m", "abc[31m");
        check("\u{feff}ignore\u{e0041}", "ignore");
        check("x\0y\u{9b}", "xy");
        check(
            "a\u{fe01}b\u{e0101}c\u{3164}\u{115f}\u{ffa0}d\u{34f}",
            "abcd",
        );
        check("❤\u{fe0f}\u{fe0f}\u{fe0e}x\u{fe0f}", "❤\u{fe0f}x");
        check("👨\u{200d}👩\u{200d}👧", "👨\u{200d}👩\u{200d}👧");
        check(
            "❤\u{fe0f}\u{200d}🔥a\u{200d}b👨\u{200d}",
            "❤\u{fe0f}\u{200d}🔥ab👨",
        );
    }

    #[test]
    fn hidden_characters_are_escaped_for_a_terminal() {
        fn check(text: &str, expected: &str) {
            assert_eq!(escape(text), expected, "{text:?}");
        }
        check("plain\n\ttext\r\n现在几点？", "plain\n\ttext\r\n现在几点？");
        check(
            "\u{1b}]0;x\u{7}\u{9b}2J\u{7f}",
            "\\u{1b}]0;x\\u{7}\\u{9b}2J\\u{7f}",
        );
        check("a\u{202e}b\u{2066}c", "a\\u{202e}b\\u{2066}c");
        check("secret\rpublic", "secret\\u{d}public");
        check("❤\u{fe0f}\u{e0041}", "❤\u{fe0f}\\u{e0041}");
        assert_eq!(escape_after(Some('❤'), "\u{fe0f}."), "\u{fe0f}.");
        assert_eq!(escape_after(Some('a'), "\u{fe0f}."), "\\u{fe0f}.");
    }

    #[test]
    fn escaped_json_has_the_same_value() {
        let value =
            json!({"a\u{202e}": ["\u{1b}[2J", "\u{9b}31m\u{7f}", "x\u{e0041}", "❤\u{fe0f}"]});
        let text = format!("{value:#}");
        assert!(has_hidden(&text));
        let escaped = escape_json(&text);
        assert!(!has_hidden(&escaped), "{escaped}");
        assert!(escaped.contains("\\u009b31m\\u007f") && escaped.contains("\\udb40\\udc41"));
        assert_eq!(serde_json::from_str::<Value>(&escaped).unwrap(), value);
    }

    #[test]
    fn pieces_are_cleaned_like_the_whole_text() {
        fn check(text: &str) {
            let characters: Vec<char> = text.chars().collect();
            for size in 1..=characters.len() {
                let mut cleaner = StreamCleaner::default();
                let pieces = characters.chunks(size).map(String::from_iter);
                let mut cleaned: String = pieces.map(|piece| cleaner.push(&piece)).collect();
                cleaned.push_str(&cleaner.finish());
                assert_eq!(cleaned, clean(text), "{text:?} by {size}");
            }
        }
        check("Good ❤\u{fe0f} morning 👨\u{200d}👩\u{200d}👧!");
        check("a\u{200b}b\u{202e}c 现在\u{200d}是");
        check("👍🏽 1\u{fe0f}\u{20e3}");
        let mut cleaner = StreamCleaner::default();
        assert_eq!(cleaner.push("Hel"), "Hel");
        assert_eq!(cleaner.push("lo ❤"), "lo ❤");
        assert_eq!(cleaner.push("\u{fe0f}"), "");
        assert_eq!(cleaner.push("."), "\u{fe0f}.");
    }

    #[test]
    fn long_text_is_truncated_between_characters() {
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
    fn schema_keeps_its_meaning() {
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

//! Why a value does not fit, in words for the caller instead of those of the parser.

#[cfg(test)]
mod tests;

use std::fmt::Write as _;

use serde_path_to_error::{Path, Segment};

use super::Problem;

/// Maximum characters of a reason: it may quote the body.
const MAX_REASON_CHARS: usize = 200;

/// The pointer (RFC 6901) to a member of the value at `pointer`.
#[must_use]
pub fn child_pointer(pointer: &str, name: &str) -> String {
    format!("{pointer}/{}", name.replace('~', "~0").replace('/', "~1"))
}

/// The problem of a body in which the value at `path` does not fit. `base` is the pointer to the value
/// that was parsed, empty for the whole body.
#[must_use]
pub fn mismatch(base: &str, path: &Path, error: &serde_json::Error) -> Problem {
    let mut pointer = path.iter().fold(base.to_owned(), |mut pointer, segment| {
        match segment {
            Segment::Map { key } => pointer = child_pointer(&pointer, key),
            Segment::Seq { index } => {
                // Writing to a String cannot fail.
                let _ = write!(pointer, "/{index}");
            }
            Segment::Enum { .. } | Segment::Unknown => {}
        }
        pointer
    });
    let message = error.to_string();
    // The pointer is the place.
    let message = message.split(" at line ").next().unwrap_or_default();
    let message: String = message.chars().take(MAX_REASON_CHARS).collect();
    if let Some(name) = quoted_after(&message, "missing field ") {
        pointer = child_pointer(&pointer, name);
    }
    let subject = match pointer.as_str() {
        "" => "The body".to_owned(),
        _ => format!("`{pointer}`"),
    };
    Problem::invalid_body(pointer, format!("{subject} {}.", reason(&message)))
}

/// What is wrong with a value, without its subject: `is required`. Understands the messages that
/// [`serde::de::Error`] defines, and passes those of our own types on.
pub(super) fn reason(message: &str) -> String {
    if message.starts_with("missing field ") {
        return "is required".to_owned();
    }
    if let Some(name) = quoted_after(message, "duplicate field ") {
        return format!("has the member `{name}` twice");
    }
    if message.starts_with("unknown field ") {
        return match message.split_once(", expected ") {
            Some((_, names)) => format!("is not known; expected {names}"),
            None => "is not known; nothing is expected here".to_owned(),
        };
    }
    if message.starts_with("data did not match any variant") {
        return "has none of the forms that are accepted here".to_owned();
    }
    let sent = ["invalid type: ", "invalid value: "]
        .iter()
        .find_map(|prefix| message.strip_prefix(prefix));
    if let Some((sent, expected)) = sent.and_then(|text| text.rsplit_once(", expected ")) {
        return format!(
            "must be {}, and is {}",
            type_name(expected),
            sent_value(sent)
        );
    }
    if let Some(variant) = quoted_after(message, "unknown variant ")
        && let Some((_, names)) = message.split_once(", expected ")
    {
        return format!("must be {names}, and is `{variant}`");
    }
    if let Some((length, expected)) = message
        .strip_prefix("invalid length ")
        .and_then(|text| text.split_once(", expected "))
    {
        return format!("must be {}, and has {length} elements", type_name(expected));
    }
    format!("is invalid: {message}")
}

/// The text in backquotes after the prefix.
pub(super) fn quoted_after<'a>(message: &'a str, prefix: &str) -> Option<&'a str> {
    let quoted = message.strip_prefix(prefix)?.strip_prefix('`')?;
    quoted.split('`').next()
}

/// A type as serde names it, in the terms of JSON.
fn type_name(expected: &str) -> &str {
    match expected {
        "u8" => "an integer from 0 to 255",
        "u16" => "an integer from 0 to 65535",
        "u32" => "an integer from 0 to 4294967295",
        "u64" | "usize" | "u128" => "an integer of at least 0",
        "i8" => "an integer from -128 to 127",
        "i16" => "an integer from -32768 to 32767",
        "i32" => "an integer from -2147483648 to 2147483647",
        "i64" | "isize" | "i128" => "an integer",
        "f32" | "f64" => "a number",
        "a boolean" => "true or false",
        "string" | "a borrowed string" | "string or map" => "a string",
        "a sequence" => "an array",
        "a map" => "an object",
        "unit" => "null",
        other if other.starts_with("struct ") => "an object",
        other if other.starts_with("tuple ") || other.starts_with("a tuple ") => "an array",
        other if other.starts_with("internally tagged enum ") => "an object",
        other if other.starts_with("adjacently tagged enum ") => "an object",
        other => other,
    }
}

/// A value as serde names it, in the terms of JSON.
fn sent_value(sent: &str) -> String {
    let kinds = [
        ("integer ", "the number "),
        ("floating point ", "the number "),
        ("boolean ", ""),
        ("string ", "the string "),
    ];
    for (kind, name) in kinds {
        if let Some(value) = sent.strip_prefix(kind) {
            return format!("{name}{value}");
        }
    }
    match sent {
        "map" => "an object",
        "sequence" => "an array",
        other => other,
    }
    .to_owned()
}

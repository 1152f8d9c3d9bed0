//! Memories and pictures as resources of the Model Context Protocol.

use std::collections::BTreeMap;

use crate::{placeholders, uri_template::UriValues};

/// The maximum size of a memory's text after substitution, in bytes.
const MAX_SUBSTITUTED_BYTES: usize = 1024 * 1024;

/// A resource, or a resource template, as an entry of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedResource {
    /// Its URI; with expressions if it is a resource template.
    pub uri: String,
    /// The id of the memory or picture.
    pub name: String,
    /// The title for display: a picture's name, the beginning of a memory.
    pub title: String,
    /// A memory's kind and subject.
    pub description: Option<String>,
    /// Its media type.
    pub mime_type: String,
    /// Its size in bytes, if that is known without reading it.
    pub size_bytes: Option<i64>,
}

/// Replaces the text's placeholders by the values of the URI's expressions. In a JSON document a
/// value is escaped, so that it cannot leave the string that contains it.
///
/// The text is returned unchanged if the result would exceed 1 MiB.
#[must_use]
pub fn substitute_uri_values(text: String, mime_type: &str, values: &UriValues) -> String {
    if values.is_empty() {
        return text;
    }
    let is_json = mime_type == "application/json";
    let encode = |value: &String| {
        if is_json {
            json_escaped(value)
        } else {
            value.clone()
        }
    };
    let values: BTreeMap<_, _> = values
        .iter()
        .map(|(name, value)| (name.as_str(), encode(value)))
        .collect();
    let value = |name: &str| values.get(name).map(String::as_str);
    placeholders::substitute(&text, MAX_SUBSTITUTED_BYTES, value).unwrap_or(text)
}

fn json_escaped(value: &str) -> String {
    let quoted = serde_json::Value::from(value).to_string();
    let inner = quoted
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'));
    inner.unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uri_values_replace_placeholders() {
        fn check(text: &str, mime_type: &str, id: &str, expected: &str) {
            let values = UriValues::from([("id".to_owned(), id.to_owned())]);
            let substituted = substitute_uri_values(text.to_owned(), mime_type, &values);
            assert_eq!(substituted, expected);
        }
        check("it is {{id}}", "text/plain", "7", "it is 7");
        check(
            "{{id}} {{other}}",
            "text/plain",
            "{{id}}",
            "{{id}} {{other}}",
        );
        check(
            "{\"a\":\"{{id}}\"}",
            "application/json",
            "x\",\"b\":\"y",
            "{\"a\":\"x\\\",\\\"b\\\":\\\"y\"}",
        );
        check("{\"a\":\"{{id}}\"}", "text/plain", "\"", "{\"a\":\"\"\"}");
        let unchanged = substitute_uri_values("{{id}}".to_owned(), "text/plain", &UriValues::new());
        assert_eq!(unchanged, "{{id}}");
    }
}

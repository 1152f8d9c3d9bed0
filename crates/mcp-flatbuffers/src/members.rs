//! The members of a JSON object as text. Their values are not parsed, so numbers keep every digit.

use std::{collections::HashSet, fmt};

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The members of an object in their order.
///
/// Invariant: no two members have the same name.
#[derive(Debug)]
pub(crate) struct Members<'a>(Vec<(String, &'a RawValue)>);

/// Why a text is not an object with unique members.
#[derive(Debug)]
pub(crate) enum ObjectError {
    /// Not an object.
    NotAnObject,
    /// Two members have this name.
    Duplicate(String),
    /// Invalid JSON.
    Malformed(String),
}

/// Builds the text of an object.
#[derive(Debug)]
pub(crate) struct ObjectBuilder(String);

impl<'a> Members<'a> {
    /// Parses the text of an object.
    pub(crate) fn parse(text: &'a str) -> Result<Self, ObjectError> {
        if !is_object(text) {
            return Err(ObjectError::NotAnObject);
        }
        let members: Self = serde_json::from_str(text)
            .map_err(|error| ObjectError::Malformed(error.to_string()))?;
        let mut seen = HashSet::with_capacity(members.0.len());
        let duplicate = members.0.iter().find(|(name, _)| !seen.insert(name));
        match duplicate {
            Some((name, _)) => Err(ObjectError::Duplicate(name.clone())),
            None => Ok(members),
        }
    }

    /// Removes a member.
    pub(crate) fn take(&mut self, name: &str) -> Option<&'a str> {
        let index = self.0.iter().position(|(other, _)| other == name)?;
        Some(self.0.remove(index).1.get())
    }

    pub(crate) fn get(&self, name: &str) -> Option<&'a str> {
        let (_, value) = self.0.iter().find(|(other, _)| other == name)?;
        Some(value.get())
    }

    /// Iterates over the remaining names and values.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &'a str)> {
        self.0
            .iter()
            .map(|(name, value)| (name.as_str(), value.get()))
    }

    /// The remaining members as an object, if there are any.
    pub(crate) fn rest(&self) -> Option<String> {
        let mut object = ObjectBuilder::new();
        for (name, value) in self.iter() {
            object.member(name, &compact(value));
        }
        (!self.0.is_empty()).then(|| object.finish())
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;

        impl<'de> Visitor<'de> for Reader {
            type Value = Vec<(String, &'de RawValue)>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(members)
            }
        }

        deserializer.deserialize_map(Reader).map(Self)
    }
}

impl ObjectBuilder {
    pub(crate) fn new() -> Self {
        Self("{".to_owned())
    }

    /// Appends a member whose value is JSON text.
    pub(crate) fn member(&mut self, name: &str, value: &str) {
        if self.0.len() > 1 {
            self.0.push(',');
        }
        self.0.push_str(&quoted(name));
        self.0.push(':');
        self.0.push_str(value);
    }

    pub(crate) fn finish(mut self) -> String {
        self.0.push('}');
        self.0
    }
}

pub(crate) fn is_object(text: &str) -> bool {
    text.trim_start().starts_with('{')
}

/// A string as JSON.
pub(crate) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// The content of a JSON string, if it is one and its escapes are Unicode text.
pub(crate) fn unquoted(text: &str) -> Option<String> {
    serde_json::from_str(text).ok()
}

/// JSON text without whitespace between its tokens, so that it fits on one line.
pub(crate) fn compact(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let (mut quoted, mut escaped) = (false, false);
    for character in text.chars() {
        if quoted {
            quoted = escaped || character != '"';
            escaped = !escaped && character == '\\';
        } else if matches!(character, ' ' | '\t' | '\r' | '\n') {
            continue;
        } else {
            quoted = character == '"';
        }
        out.push(character);
    }
    out
}

/// Validates JSON text and puts it on one line.
pub(crate) fn checked(text: &str) -> Result<String, String> {
    match serde_json::from_str::<&RawValue>(text) {
        Ok(raw) => Ok(compact(raw.get())),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compact_keeps_whitespace_in_strings() {
        fn check(text: &str, expect: &str) {
            assert_eq!(compact(text), expect);
        }
        check(" { \"a b\" : [ 1 ,\n2 ] }\r\n", "{\"a b\":[1,2]}");
        check(r#"["\" \\" , " \\\" "]"#, r#"["\" \\"," \\\" "]"#);
        check("1e400", "1e400");
    }

    #[test]
    fn duplicate_member_is_refused() {
        fn check(text: &str, expect: &str) {
            let found = match Members::parse(text) {
                Ok(members) => members.rest().unwrap_or_default(),
                Err(error) => format!("{error:?}"),
            };
            assert!(found.starts_with(expect), "{text}: {found}");
        }
        check(r#"{"a":1, "b":[ 2 ]}"#, r#"{"a":1,"b":[2]}"#);
        check(r#"{"a":1,"\u0061":2}"#, "Duplicate(\"a\")");
        check("[1]", "NotAnObject");
        check("{", "Malformed");
        check(
            r#"{"a":18446744073709551616}"#,
            r#"{"a":18446744073709551616}"#,
        );
    }
}

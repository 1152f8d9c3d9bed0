//! JSON text taken apart and put together without reading its values: numbers keep every digit.
//! Never: a value in memory, or an object of which one of two equal names would be lost.

use std::{collections::HashSet, fmt};

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The members of an object in their order; no two have one name.
#[derive(Debug)]
pub(super) struct Members<'a>(Vec<(String, &'a RawValue)>);

/// Why some text is not the members of an object.
#[derive(Debug)]
pub(super) enum Unfit {
    /// It is something else.
    NoObject,
    /// Two members have this name.
    Twice(String),
    /// It is no JSON.
    Malformed(String),
}

/// The text of an object that is being written.
#[derive(Debug)]
pub(super) struct Object(String);

impl<'a> Members<'a> {
    /// Reads the text of an object.
    pub(super) fn parse(text: &'a str) -> Result<Self, Unfit> {
        if !is_object(text) {
            return Err(Unfit::NoObject);
        }
        let members: Self =
            serde_json::from_str(text).map_err(|error| Unfit::Malformed(error.to_string()))?;
        let mut seen = HashSet::with_capacity(members.0.len());
        let twice = members.0.iter().find(|(name, _)| !seen.insert(name));
        match twice {
            Some((name, _)) => Err(Unfit::Twice(name.clone())),
            None => Ok(members),
        }
    }

    /// Takes a member out.
    pub(super) fn take(&mut self, name: &str) -> Option<&'a str> {
        let index = self.0.iter().position(|(other, _)| other == name)?;
        Some(self.0.remove(index).1.get())
    }

    pub(super) fn get(&self, name: &str) -> Option<&'a str> {
        let (_, value) = self.0.iter().find(|(other, _)| other == name)?;
        Some(value.get())
    }

    /// The names and texts that were not taken.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &'a str)> {
        self.0
            .iter()
            .map(|(name, value)| (name.as_str(), value.get()))
    }

    /// What was not taken as an object, if there is any.
    pub(super) fn rest(&self) -> Option<String> {
        let mut object = Object::new();
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

impl Object {
    pub(super) fn new() -> Self {
        Self("{".to_owned())
    }

    /// Appends a member whose value is JSON text.
    pub(super) fn member(&mut self, name: &str, value: &str) {
        if self.0.len() > 1 {
            self.0.push(',');
        }
        self.0.push_str(&quoted(name));
        self.0.push(':');
        self.0.push_str(value);
    }

    pub(super) fn finish(mut self) -> String {
        self.0.push('}');
        self.0
    }
}

pub(super) fn is_object(text: &str) -> bool {
    text.trim_start().starts_with('{')
}

/// A string as JSON.
pub(super) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// What a JSON string says, if it is one and its escapes are Unicode text.
pub(super) fn unquoted(text: &str) -> Option<String> {
    serde_json::from_str(text).ok()
}

/// JSON text without the whitespace between its tokens, so that it stands on one line.
pub(super) fn compact(text: &str) -> String {
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

/// JSON text from elsewhere, on one line; what is wrong with it if it is none.
pub(super) fn checked(text: &str) -> Result<String, String> {
    match serde_json::from_str::<&RawValue>(text) {
        Ok(raw) => Ok(compact(raw.get())),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whitespace_goes_outside_of_strings_only() {
        fn check(text: &str, expect: &str) {
            assert_eq!(compact(text), expect);
        }
        check(" { \"a b\" : [ 1 ,\n2 ] }\r\n", "{\"a b\":[1,2]}");
        check(r#"["\" \\" , " \\\" "]"#, r#"["\" \\"," \\\" "]"#);
        check("1e400", "1e400");
    }

    #[test]
    fn a_name_that_stands_twice_is_found() {
        fn check(text: &str, expect: &str) {
            let found = match Members::parse(text) {
                Ok(members) => members.rest().unwrap_or_default(),
                Err(unfit) => format!("{unfit:?}"),
            };
            assert!(found.starts_with(expect), "{text}: {found}");
        }
        check(r#"{"a":1, "b":[ 2 ]}"#, r#"{"a":1,"b":[2]}"#);
        check(r#"{"a":1,"\u0061":2}"#, "Twice(\"a\")");
        check("[1]", "NoObject");
        check("{", "Malformed");
        check(
            r#"{"a":18446744073709551616}"#,
            r#"{"a":18446744073709551616}"#,
        );
    }
}

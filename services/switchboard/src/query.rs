//! Query strings as the command line writes them.
//! Never: a character that means something else there than in the value.

use std::fmt::Write as _;

/// A text as a value of the query string.
pub(crate) fn encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |mut encoded, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(byte.into());
        } else {
            // Writing to a String does not fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
        encoded
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_survives_the_query_string() {
        assert_eq!(encoded("a&b=ü c"), "a%26b%3D%C3%BC%20c");
    }
}

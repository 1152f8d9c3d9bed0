//! Encoding of query strings.

use std::fmt::Write as _;

/// Percent-encodes a value of a query string.
pub(crate) fn percent_encode(text: &str) -> String {
    text.bytes().fold(String::new(), |mut encoded, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(byte.into());
        } else {
            // Writing to a `String` cannot fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
        encoded
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_value_is_percent_encoded() {
        assert_eq!(percent_encode("a&b=ü c"), "a%26b%3D%C3%BC%20c");
    }
}

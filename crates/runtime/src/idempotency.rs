//! Parsing of `Idempotency-Key` and marking of replayed responses. Each service stores the keys it
//! has seen.

use axum::{
    http::{HeaderMap, HeaderName, HeaderValue},
    response::Response,
};

use crate::problem::{Problem, ProblemKind};

const REQUEST_HEADER: HeaderName = HeaderName::from_static("idempotency-key");
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");
/// Maximum length of a key.
const MAX_KEY_BYTES: usize = 255;

/// Returns the idempotency key of a request, if present.
///
/// # Errors
/// A 400 problem unless it is exactly one key of 1 to 255 visible ASCII characters.
pub fn key(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    let mut values = headers.get_all(REQUEST_HEADER).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    let text = value.to_str().ok().filter(|text| {
        (1..=MAX_KEY_BYTES).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_graphic())
    });
    match (text, values.next()) {
        (Some(text), None) => Ok(Some(text)),
        _ => Err(Problem::new(
            ProblemKind::InvalidIdempotencyKey,
            format!(
                "Idempotency-Key must be sent once, as 1 to {MAX_KEY_BYTES} visible ASCII characters."
            ),
        )),
    }
}

/// Adds the header that marks a response as the stored response to an earlier request.
#[must_use]
pub fn mark_replayed(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(REPLAYED, HeaderValue::from_static("true"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_is_validated() {
        fn check(values: &[&str], valid: bool) {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(REQUEST_HEADER, HeaderValue::from_str(value).unwrap());
            }
            assert_eq!(key(&headers).is_ok(), valid, "{values:?}");
        }
        check(&[], true);
        check(&["6f1c-\"a\""], true);
        check(&[&"k".repeat(255)], true);
        check(&[""], false);
        check(&[&"k".repeat(256)], false);
        check(&["two words"], false);
        check(&["a", "a"], false);
    }
}

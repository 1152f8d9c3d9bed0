//! `Idempotency-Key` as every service reads it, and how the answer to an earlier request is told from a new one.
//! Never: what a key is kept under; each service has its own record.

use axum::{
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode},
    response::Response,
};

use crate::problem::Problem;

const REQUEST_HEADER: HeaderName = HeaderName::from_static("idempotency-key");
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");
/// The longest key, in bytes.
const KEY_BYTES: usize = 255;

/// The request's key, if it has one.
///
/// # Errors
/// A 400 problem when it is not one key of 1 to 255 visible ASCII characters.
pub fn key(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    let mut values = headers.get_all(REQUEST_HEADER).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    let text = value.to_str().ok().filter(|text| {
        (1..=KEY_BYTES).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
    });
    match (text, values.next()) {
        (Some(text), None) => Ok(Some(text)),
        _ => Err(Problem::new(
            StatusCode::BAD_REQUEST,
            "invalid_idempotency_key",
            "Invalid idempotency key",
            format!(
                "Idempotency-Key must be given once, as 1 to {KEY_BYTES} visible ASCII characters."
            ),
        )),
    }
}

/// Says that this is the answer to an earlier request.
#[must_use]
pub fn replayed(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(REPLAYED, HeaderValue::from_static("true"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_checked() {
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

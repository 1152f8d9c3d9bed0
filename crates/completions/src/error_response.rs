//! Error responses of providers: status, requested pause, and message.
//! Invariant: a logged message is short, on one line and without the key.

use std::time::Duration;

use chrono::{DateTime, Utc};
use http::{HeaderMap, StatusCode, header};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;
use switchboard_runtime::outbound;

use crate::failure::{DEFAULT_BACKOFF, Failure, Recovery, RejectCause};

/// Minimum cooldown.
const MIN_BACKOFF: Duration = Duration::from_millis(250);
/// Maximum cooldown, whatever the provider requests.
const MAX_BACKOFF: Duration = Duration::from_secs(300);
/// Characters of a message in a log.
const MAX_QUOTED_CHARS: usize = 200;

/// The error message of a provider.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ErrorMessage {
    pub message: String,
    /// Whether it names the parameter `temperature`.
    pub names_temperature: bool,
}

impl ErrorMessage {
    /// The message in a response body. Providers use several fields.
    pub(crate) fn from_body(body: &[u8]) -> Self {
        let json = serde_json::from_slice::<Value>(body).ok();
        let json = json.as_ref().map(|body| body.get(0).unwrap_or(body));
        let text = |place: &str| json.and_then(|body| body.pointer(place)?.as_str());
        let places = ["/error/message", "/error", "/message", "/detail"];
        let message = places
            .into_iter()
            .find_map(text)
            .map_or_else(|| String::from_utf8_lossy(body).into_owned(), str::to_owned);
        let parameter = ["/error/param", "/param"].into_iter().find_map(text);
        Self::new(message, parameter)
    }

    /// A message, and the parameter that it concerns, if stated.
    pub(crate) fn new(message: String, parameter: Option<&str>) -> Self {
        let is_no_name = |c: char| !c.is_alphanumeric() && c != '_';
        let mut names = parameter.into_iter().chain(message.split(is_no_name));
        Self {
            names_temperature: names.any(|name| name == "temperature"),
            message,
        }
    }

    /// The message in a form that may be logged.
    pub(crate) fn redacted(self, key: Option<&SecretString>) -> Self {
        Self {
            message: redact(&self.message, key),
            ..self
        }
    }
}

/// The failure that an error response means. An error within a reply may have no status.
pub(crate) fn failure(
    status: Option<StatusCode>,
    headers: &HeaderMap,
    error: &ErrorMessage,
) -> Failure {
    let message = &error.message;
    let reason = status.map_or_else(
        || format!("error: {message}"),
        |status| format!("status {status}: {message}"),
    );
    let retry_after = retry_after(headers);
    match status {
        Some(StatusCode::TOO_MANY_REQUESTS) => Failure::Busy {
            after: retry_after.unwrap_or(DEFAULT_BACKOFF),
        },
        Some(status) if is_rejection(status) => Failure::Rejected {
            reason,
            cause: reject_cause(status, error),
        },
        _ => Failure::Unavailable {
            reason,
            recovery: retry_after.map_or(Recovery::Default, Recovery::RetryAfter),
        },
    }
}

fn is_rejection(status: StatusCode) -> bool {
    (status.is_client_error() && status != StatusCode::REQUEST_TIMEOUT) || status.is_redirection()
}

fn reject_cause(status: StatusCode, error: &ErrorMessage) -> RejectCause {
    match status {
        StatusCode::BAD_REQUEST if error.names_temperature => RejectCause::Temperature,
        StatusCode::UNAUTHORIZED => RejectCause::Caller,
        StatusCode::FORBIDDEN | StatusCode::NOT_FOUND => RejectCause::Model,
        _ => RejectCause::Request,
    }
}

/// The requested pause, in seconds or until a date.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    let after = match value.parse::<f64>() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).ok()?,
        Err(_) => {
            let until = DateTime::parse_from_rfc2822(value).ok()?;
            let left = until.signed_duration_since(Utc::now());
            left.to_std().unwrap_or(Duration::ZERO)
        }
    };
    Some(after.clamp(MIN_BACKOFF, MAX_BACKOFF))
}

/// A message in a form that may be logged.
pub(crate) fn redact(message: &str, key: Option<&SecretString>) -> String {
    let key = key.map_or("", |key| key.expose_secret());
    let message = outbound::redact(message, key);
    let words = message.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut clean = String::with_capacity(words.len().min(MAX_QUOTED_CHARS));
    for character in words.chars().take(MAX_QUOTED_CHARS) {
        if "\"'\\".contains(character) {
            clean.push(character);
        } else {
            clean.extend(character.escape_debug());
        }
    }
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(retry_after: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::RETRY_AFTER, retry_after.parse().unwrap());
        headers
    }

    #[test]
    fn retry_after_is_parsed_and_bounded() {
        fn check(value: &str, expected: Option<u64>) {
            let expected = expected.map(Duration::from_millis);
            assert_eq!(retry_after(&headers(value)), expected, "{value:?}");
        }
        check("7", Some(7_000));
        check("1.5", Some(1_500));
        check("0", Some(250));
        check("99999", Some(300_000));
        check("Fri, 31 Dec 1999 23:59:59 GMT", Some(250));
        check("Tue, 31 Dec 2199 23:59:59 GMT", Some(300_000));
        check("-1", None);
        check("soon", None);
        assert_eq!(retry_after(&HeaderMap::new()), None);
        let soon = Utc::now() + Duration::from_secs(60);
        let date = soon.format("%a, %d %b %Y %H:%M:%S GMT").to_string();
        let found = retry_after(&headers(&date)).unwrap();
        assert!(found > Duration::from_secs(30) && found <= Duration::from_secs(60));
    }

    #[test]
    fn status_determines_the_failure() {
        let found = |status: u16, headers: &HeaderMap, message: &str| {
            let status = StatusCode::from_u16(status).unwrap();
            failure(
                Some(status),
                headers,
                &ErrorMessage::new(message.to_owned(), None),
            )
        };
        let none = HeaderMap::new();
        let after = Duration::from_secs;
        assert_eq!(found(429, &none, "no"), Failure::Busy { after: after(5) });
        let busy = found(429, &headers("9"), "no");
        assert_eq!(busy, Failure::Busy { after: after(9) });
        for status in [500, 529, 408] {
            let Failure::Unavailable { recovery, .. } = found(status, &none, "no") else {
                panic!("{status}");
            };
            assert_eq!(recovery, Recovery::Default, "{status}");
        }
        let Failure::Unavailable { recovery, .. } = found(503, &headers("9"), "no") else {
            panic!("503");
        };
        assert_eq!(recovery, Recovery::RetryAfter(after(9)));
        let refusals = [
            (400, "no", RejectCause::Request),
            (400, "`temperature` must be 1", RejectCause::Temperature),
            (422, "`temperature` must be 1", RejectCause::Request),
            (401, "no", RejectCause::Caller),
            (403, "no", RejectCause::Model),
            (404, "no", RejectCause::Model),
            (413, "no", RejectCause::Request),
            (302, "no", RejectCause::Request),
        ];
        for (status, message, expected) in refusals {
            let Failure::Rejected { cause, .. } = found(status, &none, message) else {
                panic!("{status}");
            };
            assert_eq!(cause, expected, "{status} {message}");
        }
    }

    #[test]
    fn temperature_is_detected_in_messages() {
        fn check(body: &str, expected: bool) {
            let error = ErrorMessage::from_body(body.as_bytes());
            assert_eq!(error.names_temperature, expected, "{body}");
        }
        // OpenAI's message.
        check(
            r#"{"error":{"message":"Unsupported value: 'temperature' does not support 0.7 with this model. Only the default (1) value is supported.","type":"invalid_request_error","param":"temperature","code":"unsupported_value"}}"#,
            true,
        );
        check(r#"{"error":{"message":"no","param":"temperature"}}"#, true);
        check(r#"{"message":"no","param":"temperature"}"#, true);
        check(
            r#"{"error":{"message":"temperature: too hot","param":null}}"#,
            true,
        );
        check("temperature", true);
        check(r#"{"error":{"message":"no","param":"messages"}}"#, false);
        check(
            r#"{"error":{"message":"the schema of set_temperature"}}"#,
            false,
        );
        check("temperatures", false);
    }

    #[test]
    fn message_is_extracted_and_redacted() {
        fn check(body: &str, expected: &str) {
            let key = SecretString::from("sk-1\n");
            let found = ErrorMessage::from_body(body.as_bytes()).redacted(Some(&key));
            assert_eq!(found.message, expected);
        }
        check(
            r#"{"error":{"message":"wrong key sk-1, \"x\"","type":"a"}}"#,
            r#"wrong key (the key), "x""#,
        );
        check(
            r#"[{"error":{"message":"no\nsuch  model"}}]"#,
            "no such model",
        );
        check(r#"{"error":"no"}"#, "no");
        check(r#"{"message":"no"}"#, "no");
        check(r#"{"detail":"no"}"#, "no");
        check(r#"{"detail":[7]}"#, r#"{"detail":[7]}"#);
        check("<b>sk-1\u{1b}</b>", "<b>(the key)\\u{1b}</b>");
        check("", "");
        check(&"x".repeat(1_000), &"x".repeat(200));
    }
}

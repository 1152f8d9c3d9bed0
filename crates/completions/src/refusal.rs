//! What an answer means that is no reply: a status, how long to wait, a message, and what it is about.
//! Never: a provider's message as it came; it is short, on one line and without the key.

use std::time::Duration;

use chrono::{DateTime, Utc};
use http::{HeaderMap, StatusCode, header};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;

use crate::failure::{About, Failure, REST, Recovery};

/// The shortest that one is left alone.
const SHORTEST_REST: Duration = Duration::from_millis(250);
/// The longest that one is left alone, whatever it says.
const LONGEST_REST: Duration = Duration::from_secs(300);
/// How much of a message is repeated, in characters.
const QUOTED: usize = 200;

/// What a provider says in place of a reply.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Said {
    pub message: String,
    /// Whether it names the temperature that was asked for.
    pub names_temperature: bool,
}

impl Said {
    /// What stands in an answer's body, wherever a provider puts it.
    pub(crate) fn in_body(body: &[u8]) -> Self {
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

    /// This message, about this parameter if it says so.
    pub(crate) fn new(message: String, parameter: Option<&str>) -> Self {
        let is_no_name = |c: char| !c.is_alphanumeric() && c != '_';
        let mut names = parameter.into_iter().chain(message.split(is_no_name));
        Self {
            names_temperature: names.any(|name| name == "temperature"),
            message,
        }
    }

    /// The same, as it may be repeated.
    pub(crate) fn cleaned(self, key: Option<&SecretString>) -> Self {
        Self {
            message: clean(&self.message, key),
            ..self
        }
    }
}

/// What follows from this status; none is a failure without one.
pub(crate) fn failure(status: Option<StatusCode>, headers: &HeaderMap, said: &Said) -> Failure {
    let message = &said.message;
    let reason = status.map_or_else(
        || format!("it says: {message}"),
        |status| format!("it answers {status}: {message}"),
    );
    let rest = rest(headers);
    match status {
        Some(StatusCode::TOO_MANY_REQUESTS) => Failure::Busy {
            after: rest.unwrap_or(REST),
        },
        Some(status) if is_about_the_request(status) => Failure::Refused {
            reason,
            about: about(status, said),
        },
        _ => Failure::Unavailable {
            reason,
            rest: rest.map_or(Recovery::Short, Recovery::Wanted),
        },
    }
}

fn is_about_the_request(status: StatusCode) -> bool {
    (status.is_client_error() && status != StatusCode::REQUEST_TIMEOUT) || status.is_redirection()
}

fn about(status: StatusCode, said: &Said) -> About {
    match status {
        StatusCode::BAD_REQUEST if said.names_temperature => About::Temperature,
        StatusCode::UNAUTHORIZED => About::Caller,
        StatusCode::FORBIDDEN | StatusCode::NOT_FOUND => About::Model,
        _ => About::Request,
    }
}

/// How long to wait, in seconds or until a date.
fn rest(headers: &HeaderMap) -> Option<Duration> {
    let said = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    let after = match said.parse::<f64>() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).ok()?,
        Err(_) => {
            let until = DateTime::parse_from_rfc2822(said).ok()?;
            let left = until.signed_duration_since(Utc::now());
            left.to_std().unwrap_or(Duration::ZERO)
        }
    };
    Some(after.clamp(SHORTEST_REST, LONGEST_REST))
}

/// A message that may be logged.
pub(crate) fn clean(message: &str, key: Option<&SecretString>) -> String {
    let key = key.map(|key| key.expose_secret().trim());
    let message = match key {
        Some(key) if !key.is_empty() => message.replace(key, "(the key)"),
        _ => message.to_owned(),
    };
    let words = message.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut clean = String::with_capacity(words.len().min(QUOTED));
    for character in words.chars().take(QUOTED) {
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
    fn one_is_left_alone_for_as_long_as_it_says() {
        fn check(said: &str, expected: Option<u64>) {
            let expected = expected.map(Duration::from_millis);
            assert_eq!(rest(&headers(said)), expected, "{said:?}");
        }
        check("7", Some(7_000));
        check("1.5", Some(1_500));
        check("0", Some(250));
        check("99999", Some(300_000));
        check("Fri, 31 Dec 1999 23:59:59 GMT", Some(250));
        check("Tue, 31 Dec 2199 23:59:59 GMT", Some(300_000));
        check("-1", None);
        check("soon", None);
        assert_eq!(rest(&HeaderMap::new()), None);
        let soon = Utc::now() + Duration::from_secs(60);
        let date = soon.format("%a, %d %b %Y %H:%M:%S GMT").to_string();
        let found = rest(&headers(&date)).unwrap();
        assert!(found > Duration::from_secs(30) && found <= Duration::from_secs(60));
    }

    #[test]
    fn a_status_says_whose_fault_it_is() {
        let found = |status: u16, headers: &HeaderMap, message: &str| {
            let status = StatusCode::from_u16(status).unwrap();
            failure(Some(status), headers, &Said::new(message.to_owned(), None))
        };
        let none = HeaderMap::new();
        let after = Duration::from_secs;
        assert_eq!(found(429, &none, "no"), Failure::Busy { after: after(5) });
        let busy = found(429, &headers("9"), "no");
        assert_eq!(busy, Failure::Busy { after: after(9) });
        for status in [500, 529, 408] {
            let Failure::Unavailable { rest, .. } = found(status, &none, "no") else {
                panic!("{status}");
            };
            assert_eq!(rest, Recovery::Short, "{status}");
        }
        let Failure::Unavailable { rest, .. } = found(503, &headers("9"), "no") else {
            panic!("503");
        };
        assert_eq!(rest, Recovery::Wanted(after(9)));
        let refusals = [
            (400, "no", About::Request),
            (400, "`temperature` must be 1", About::Temperature),
            (422, "`temperature` must be 1", About::Request),
            (401, "no", About::Caller),
            (403, "no", About::Model),
            (404, "no", About::Model),
            (413, "no", About::Request),
            (302, "no", About::Request),
        ];
        for (status, message, expected) in refusals {
            let Failure::Refused { about, .. } = found(status, &none, message) else {
                panic!("{status}");
            };
            assert_eq!(about, expected, "{status} {message}");
        }
    }

    #[test]
    fn a_temperature_is_named_as_a_parameter_or_in_words() {
        fn check(body: &str, expected: bool) {
            let said = Said::in_body(body.as_bytes());
            assert_eq!(said.names_temperature, expected, "{body}");
        }
        // As the largest of them says it.
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
    fn a_message_is_found_and_cleaned() {
        fn check(body: &str, expected: &str) {
            let key = SecretString::from("sk-1\n");
            let found = Said::in_body(body.as_bytes()).cleaned(Some(&key));
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

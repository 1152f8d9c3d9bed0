//! What a caller asks for.
//! Never: the params taken apart; they go to the device as they came.

use std::time::Duration;

use axum::http::StatusCode;
use bytes::Bytes;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use switchboard_runtime::problem::Problem;
use utoipa::ToSchema;

use super::mode::{Mode, ModeName};

const DEFAULT_TIMEOUT_MS: u64 = 30_000;
pub(crate) const LONGEST_TIMEOUT_MS: u64 = 300_000;
/// Longer than any service can be called.
pub(crate) const SERVICE_NAME_BYTES: usize = 256;

/// The body of the request.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = NewCall)]
#[serde(deny_unknown_fields)]
pub(crate) struct CallBody {
    /// Which service of the device; 256 bytes at most.
    #[schema(value_type = String, min_length = 1, example = "get_current_time")]
    service: Box<str>,
    /// What the service takes, held against the schema that the device registered; `{}` when not given.
    #[schema(value_type = Object, required = false)]
    #[serde(default, deserialize_with = "present")]
    params: Option<Box<RawValue>>,
    /// What the device asked for in its last result.
    #[schema(value_type = Object, required = false)]
    #[serde(default, deserialize_with = "present")]
    input: Option<Box<RawValue>>,
    /// How many milliseconds it may take.
    #[schema(example = 30000)]
    #[serde(default = "default_timeout_ms")]
    timeout_ms: u64,
    /// Whether the caller waits for it, and whether it waits for its device.
    #[serde(default)]
    mode: ModeName,
    /// The last moment in which a `queued` call may be sent, within 30 days; after 24 hours when not given.
    #[schema(value_type = String, format = DateTime, required = false, example = "2030-01-31T12:00:00Z")]
    #[serde(default, deserialize_with = "present")]
    expires_at: Option<Box<str>>,
    /// The same as `expires_at`, in milliseconds from now on; only one of them is given.
    #[schema(value_type = u64, required = false, example = 3_600_000)]
    #[serde(default, deserialize_with = "present")]
    expires_in_ms: Option<u64>,
}

/// A body that was found good.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) request: CallRequest,
    pub(super) mode: Mode,
}

/// A body that was found good.
#[derive(Debug)]
pub(crate) struct CallRequest {
    pub(crate) service: Box<str>,
    /// A JSON object.
    pub(crate) params: Bytes,
    /// What the device asked for in its last result, a JSON object; empty when it asked for nothing.
    pub(crate) input: Bytes,
    pub(crate) timeout: Duration,
}

impl TryFrom<CallBody> for Asked {
    type Error = Problem;

    fn try_from(body: CallBody) -> Result<Self, Problem> {
        let mode = Mode::read(body.mode, body.expires_at.as_deref(), body.expires_in_ms)?;
        if !(1..=SERVICE_NAME_BYTES).contains(&body.service.len()) {
            let detail = format!("`service` must be 1 to {SERVICE_NAME_BYTES} bytes long.");
            return Err(invalid("service", detail));
        }
        if !(1..=LONGEST_TIMEOUT_MS).contains(&body.timeout_ms) {
            let detail = format!("`timeout_ms` must be from 1 to {LONGEST_TIMEOUT_MS}.");
            return Err(invalid("timeout_ms", detail));
        }
        let params = object("params", body.params)?;
        let input = object("input", body.input)?;
        let request = CallRequest {
            service: body.service,
            params: params.unwrap_or(Bytes::from_static(b"{}")),
            input: input.unwrap_or_default(),
            timeout: Duration::from_millis(body.timeout_ms),
        };
        Ok(Self { request, mode })
    }
}

const fn default_timeout_ms() -> u64 {
    DEFAULT_TIMEOUT_MS
}

/// Sees a `null` where serde's own way would take it for an absent field.
fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    source: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(source).map(Some)
}

fn object(field: &str, raw: Option<Box<RawValue>>) -> Result<Option<Bytes>, Problem> {
    match raw {
        None => Ok(None),
        Some(raw) if raw.get().starts_with('{') => {
            Ok(Some(Bytes::from(Box::<str>::from(raw).into_boxed_bytes())))
        }
        Some(_) => Err(invalid(field, format!("`{field}` must be an object."))),
    }
}

impl CallRequest {
    /// What it would take in a frame, without the frame.
    pub(crate) fn bytes(&self) -> usize {
        self.params.len() + self.input.len()
    }
}

pub(super) fn invalid(field: &str, detail: String) -> Problem {
    Problem::new(
        StatusCode::UNPROCESSABLE_ENTITY,
        "invalid_body",
        "Invalid body",
        detail,
    )
    .with("field", field)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<CallRequest, String> {
        let body: CallBody = serde_json::from_str(json).map_err(|error| error.to_string())?;
        let asked = Asked::try_from(body).map_err(|problem| problem.detail)?;
        Ok(asked.request)
    }

    #[test]
    fn good_requests_are_taken_as_they_are() {
        fn check(json: &str, params: &str, timeout_ms: u64) {
            let request = read(json).unwrap();
            assert_eq!(request.params, params.as_bytes(), "{json}");
            assert_eq!(request.timeout, Duration::from_millis(timeout_ms), "{json}");
        }
        check(r#"{"service":"wave"}"#, "{}", 30_000);
        check(
            r#"{"service":"说话","params": { "a" : 1.0 } ,"timeout_ms":1}"#,
            r#"{ "a" : 1.0 }"#,
            1,
        );
        check(r#"{"service":"wave","timeout_ms":300000}"#, "{}", 300_000);
    }

    #[test]
    fn others_are_refused_by_field() {
        fn check(json: &str, part: &str) {
            let refused = read(json).unwrap_err();
            assert!(refused.contains(part), "{json}: {refused}");
        }
        check(r#"{}"#, "service");
        check(r#"{"service":""}"#, "`service`");
        check(
            r#"{"service":"wave","params":null}"#,
            "`params` must be an object",
        );
        check(
            r#"{"service":"wave","params":[]}"#,
            "`params` must be an object",
        );
        check(r#"{"service":"wave","timeout_ms":0}"#, "`timeout_ms`");
        check(r#"{"service":"wave","timeout_ms":300001}"#, "`timeout_ms`");
        check(r#"{"service":"wave","timeout_ms":"1"}"#, "expected u64");
        check(r#"{"service":"wave","mode":"later"}"#, "unknown variant");
        check(
            r#"{"service":"wave","mode":"async","expires_in_ms":1}"#,
            "`expires_in_ms` is for queued calls",
        );
        check(
            r#"{"service":"wave","expires_at":"2100-01-01T00:00:00Z"}"#,
            "`expires_at` is for queued calls",
        );
        check(
            r#"{"service":"wave","mode":"queued","expires_at":null}"#,
            "null",
        );
        check(r#"{"service":"wave","parms":{}}"#, "unknown field");
        check(r#"{"service":"wave","service":"wave"}"#, "duplicate field");
    }
}

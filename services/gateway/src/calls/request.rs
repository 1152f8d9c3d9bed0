//! The request body of a call.
//!
//! The params are passed to the device as the caller sent them.

use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use switchboard_runtime::problem::Problem;
use utoipa::ToSchema;

use super::mode::{Mode, ModeName};

const DEFAULT_TIMEOUT_MS: u64 = 30_000;
pub(crate) const MAX_TIMEOUT_MS: u64 = 300_000;
/// More than the name of any registered service.
pub(crate) const MAX_SERVICE_BYTES: usize = 256;

/// The request body of a call.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = NewCall)]
#[serde(deny_unknown_fields)]
pub(crate) struct CallBody {
    /// Name of the service; at most 256 bytes.
    #[schema(value_type = String, min_length = 1, example = "get_current_time")]
    service: Box<str>,
    /// Arguments of the service, validated against the schema that the device registered. By
    /// default `{}`.
    #[schema(value_type = Object, required = false)]
    #[serde(default, deserialize_with = "present")]
    params: Option<Box<RawValue>>,
    /// The input that the device required in its previous result.
    #[schema(value_type = Object, required = false)]
    #[serde(default, deserialize_with = "present")]
    input: Option<Box<RawValue>>,
    /// How long the call may take, in milliseconds.
    #[schema(example = 30000)]
    #[serde(default = "default_timeout_ms")]
    timeout_ms: u64,
    /// Whether the caller waits for the call, and whether the call waits for its device.
    #[serde(default)]
    mode: ModeName,
    /// Time until which a `queued` call may be sent (RFC 3339); at most 30 days from now. By
    /// default 24 hours from now.
    #[schema(value_type = String, format = DateTime, required = false, example = "2030-01-31T12:00:00Z")]
    #[serde(default, deserialize_with = "present")]
    expires_at: Option<Box<str>>,
    /// Alternative to `expires_at`: milliseconds from now.
    #[schema(value_type = u64, required = false, example = 3_600_000)]
    #[serde(default, deserialize_with = "present")]
    expires_in_ms: Option<u64>,
}

/// A validated call.
#[derive(Debug)]
pub(crate) struct CallRequest {
    pub(crate) service: Box<str>,
    /// A JSON object.
    pub(crate) params: Bytes,
    /// The input that the device required in its previous result, a JSON object. Empty if the
    /// device required none.
    pub(crate) input: Bytes,
    pub(crate) timeout: Duration,
}

impl CallBody {
    /// A synchronous call.
    pub(super) fn sync(service: Box<str>, params: Option<Box<RawValue>>, timeout_ms: u64) -> Self {
        Self {
            service,
            params,
            input: None,
            timeout_ms,
            mode: ModeName::default(),
            expires_at: None,
            expires_in_ms: None,
        }
    }

    /// Validates the body. An error names the invalid member.
    pub(super) fn parse(self) -> Result<(CallRequest, Mode), Problem> {
        let mode = Mode::new(self.mode, self.expires_at.as_deref(), self.expires_in_ms)?;
        if !(1..=MAX_SERVICE_BYTES).contains(&self.service.len()) {
            let detail = format!("`service` must be 1 to {MAX_SERVICE_BYTES} bytes long.");
            return Err(invalid("service", detail));
        }
        if !(1..=MAX_TIMEOUT_MS).contains(&self.timeout_ms) {
            let detail = format!("`timeout_ms` must be from 1 to {MAX_TIMEOUT_MS}.");
            return Err(invalid("timeout_ms", detail));
        }
        let params = object("params", self.params)?;
        let input = object("input", self.input)?;
        let request = CallRequest {
            service: self.service,
            params: params.unwrap_or(Bytes::from_static(b"{}")),
            input: input.unwrap_or_default(),
            timeout: Duration::from_millis(self.timeout_ms),
        };
        Ok((request, mode))
    }
}

pub(crate) const fn default_timeout_ms() -> u64 {
    DEFAULT_TIMEOUT_MS
}

/// Reports `null` as an invalid value, where serde would treat it as an absent field.
pub(super) fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    source: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(source).map(Some)
}

fn object(member: &str, raw: Option<Box<RawValue>>) -> Result<Option<Bytes>, Problem> {
    match raw {
        None => Ok(None),
        Some(raw) if raw.get().starts_with('{') => {
            Ok(Some(Bytes::from(Box::<str>::from(raw).into_boxed_bytes())))
        }
        Some(_) => Err(invalid(member, format!("`{member}` must be an object."))),
    }
}

impl CallRequest {
    /// Bytes of the payload of the frame to the device.
    pub(crate) fn bytes(&self) -> usize {
        self.params.len() + self.input.len()
    }
}

/// The problem of a member of the body.
pub(super) fn invalid(member: &str, detail: String) -> Problem {
    Problem::invalid_body(format!("/{member}"), detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<CallRequest, String> {
        let body: CallBody = serde_json::from_str(json).map_err(|error| error.to_string())?;
        let (request, _) = body.parse().map_err(|problem| problem.detail)?;
        Ok(request)
    }

    #[test]
    fn valid_body_is_passed_on_unchanged() {
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
    fn invalid_field_is_named() {
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

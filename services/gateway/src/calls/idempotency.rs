//! `Idempotency-Key`: whoever repeats a request gets the first one's outcome, not a second execution.
//! Never: a call made while it is unsure whether the first one was.

use std::time::Duration;

use axum::{
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use sha2::{Digest, Sha256};
use switchboard_identity::{Caller, Credential};
use switchboard_protocol::{id::DeviceKey, outcome::Delivered};
use switchboard_runtime::problem::{Problem, internal};

use super::{
    Attempt, perform,
    record::{Record, Standing, hex},
    request::CallRequest,
};
use crate::{Gateway, bus_unavailable};

const REQUEST_HEADER: HeaderName = HeaderName::from_static("idempotency-key");
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");
/// The longest key, in bytes.
const KEY_BYTES: usize = 255;
/// How long a call is remembered.
const REMEMBERED: Duration = Duration::from_secs(24 * 3600);

/// What the caller calls this call.
#[derive(Debug)]
pub(super) struct Key<'a>(&'a str);

/// A key as one caller uses it, hashed: others can neither guess nor meet it.
#[derive(Debug)]
pub(super) struct ScopedKey(String);

impl<'a> Key<'a> {
    /// The request's key, if it has one.
    pub(super) fn find(headers: &'a HeaderMap) -> Result<Option<Self>, Problem> {
        let mut values = headers.get_all(REQUEST_HEADER).iter();
        let Some(value) = values.next() else {
            return Ok(None);
        };
        let text = value.to_str().ok().filter(|text| {
            (1..=KEY_BYTES).contains(&text.len())
                && text.bytes().all(|byte| byte.is_ascii_graphic())
        });
        match (text, values.next()) {
            (Some(text), None) => Ok(Some(Self(text))),
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

    /// The key within what is the caller's own: a token's subject, which outlives the token, or an API key.
    pub(super) fn scoped_to(&self, caller: &Caller) -> ScopedKey {
        let owner = match &caller.credential {
            Credential::ApiKey(id) => id.to_string(),
            Credential::AccessToken { subject, .. } => subject.to_string(),
        };
        let hash = Sha256::new()
            .chain_update(owner)
            .chain_update([0])
            .chain_update(self.0);
        ScopedKey(hex(&hash.finalize()))
    }
}

impl ScopedKey {
    fn record_name(&self, device: &DeviceKey) -> String {
        format!("idem:{}:{}:{}", device.org, device.device, self.0)
    }
}

/// Makes the call unless one with this key was made before; then answers what is known of that one.
pub(super) async fn once(
    gateway: &Gateway,
    attempt: Attempt,
    key: &ScopedKey,
) -> Result<Response, Problem> {
    let name = key.record_name(&attempt.device);
    let record = Record::begun(&attempt);
    let bytes = record.to_bytes().map_err(|error| unwritable(&error))?;
    let existing = gateway.bus.reserve(&name, bytes, REMEMBERED).await;
    if let Some(existing) = existing.map_err(|error| bus_unavailable(&error))? {
        return repeat(&existing, &attempt.request);
    }
    let settled = match perform(gateway, attempt).await {
        Ok(settled) => settled,
        Err(problem) => {
            forget(gateway, &name).await;
            return Err(problem);
        }
    };
    if settled.delivered == Delivered::No {
        forget(gateway, &name).await;
    } else {
        let done = record
            .over(&settled.reply)
            .and_then(|record| record.to_bytes());
        remember(gateway, &name, done.map_err(|error| unwritable(&error))?).await;
    }
    Ok(settled.reply.into_response())
}

/// Answers a request whose key was used before.
fn repeat(existing: &[u8], request: &CallRequest) -> Result<Response, Problem> {
    let record: Record = serde_json::from_slice(existing).map_err(|error| unwritable(&error))?;
    let call_id = record.call_id;
    match record.standing(request) {
        Standing::Reused => Err(Problem::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "idempotency_key_reused",
            "Idempotency key reused",
            "This Idempotency-Key was used for another request to this device; a new call needs a new key.",
        )),
        Standing::UnderWay => Err(Problem::new(
            StatusCode::CONFLICT,
            "call_in_progress",
            "Call in progress",
            "The call with this Idempotency-Key is under way; repeat the request for its outcome.",
        )
        .with("call_id", call_id)
        .header(header::RETRY_AFTER, 1)),
        Standing::Over(reply) => {
            let mut response = reply.into_response();
            response
                .headers_mut()
                .insert(REPLAYED, HeaderValue::from_static("true"));
            Ok(response)
        }
    }
}

/// A call that never reached its device may be made again under its key.
async fn forget(gateway: &Gateway, name: &str) {
    if let Err(error) = gateway.bus.remove(name).await {
        tracing::warn!(%error, "an idempotency record of an undelivered call was not removed; its key stays taken");
    }
}

/// Without the outcome on record a repetition is told `lost`, which is what is then known.
async fn remember(gateway: &Gateway, name: &str, record: Bytes) {
    if let Err(error) = gateway.bus.put(name, record, REMEMBERED).await {
        tracing::warn!(%error, "a call's outcome was not put on record; repetitions will be told it is lost");
    }
}

fn unwritable(error: &serde_json::Error) -> Problem {
    tracing::error!(%error, "an idempotency record could not be read or written");
    internal()
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
            assert_eq!(Key::find(&headers).is_ok(), valid, "{values:?}");
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

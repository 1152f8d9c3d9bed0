//! A kept call as callers see it.
//! Never: more than is known; until a call has ended nothing is said of its outcome.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::value::RawValue;
use switchboard_protocol::{
    id::{CallId, DeviceId},
    outcome::{Delivered, Outcome, Violation},
};
use switchboard_store::{CallState, KeptCall};

use super::{ending, reply::milliseconds};

/// A kept call, with its end once it has one.
#[derive(Debug, Serialize)]
pub(super) struct ShownCall<'a> {
    call_id: CallId,
    device_id: &'a DeviceId,
    service: &'a str,
    mode: &'static str,
    state: &'static str,
    created_at: DateTime<Utc>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<DateTime<Utc>>,
    /// Whether the device may have acted so far.
    delivered: Delivered,
    #[serde(flatten)]
    end: Option<ShownEnd<'a>>,
}

#[derive(Debug, Serialize)]
struct ShownEnd<'a> {
    outcome: Outcome,
    ended_at: Option<DateTime<Utc>>,
    elapsed_ms: f64,
    /// The device's own bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    errors: Vec<Violation>,
}

impl<'a> From<&'a KeptCall> for ShownCall<'a> {
    fn from(call: &'a KeptCall) -> Self {
        let delivered = match (&call.end, call.state) {
            (Some(end), _) => end.delivered,
            (None, CallState::Queued) => Delivered::No,
            (None, _) => Delivered::Unknown,
        };
        Self {
            call_id: call.id,
            device_id: &call.device,
            service: &call.service,
            mode: call.mode.as_str(),
            state: call.state.as_str(),
            created_at: call.created_at,
            expires_at: call.expires_at,
            delivered,
            end: ShownEnd::of(call),
        }
    }
}

impl<'a> ShownEnd<'a> {
    fn of(call: &'a KeptCall) -> Option<Self> {
        let end = call.end.as_ref()?;
        let elapsed = call.ended_at.map(|ended| ended - call.created_at);
        let elapsed = elapsed.and_then(|elapsed| elapsed.to_std().ok());
        let has_result = matches!(end.outcome, Outcome::Succeeded | Outcome::Failed);
        let (result, refusal) = match (end.answer.is_empty(), has_result) {
            // In lists.
            (true, _) => (None, None),
            (false, true) => (serde_json::from_slice(&end.answer).ok(), None),
            (false, false) => (None, Some(ending::refusal(end))),
        };
        let (detail, errors) = refusal.map_or((None, Vec::new()), |refusal| {
            (Some(refusal.detail), refusal.errors)
        });
        Some(Self {
            outcome: end.outcome,
            ended_at: call.ended_at,
            elapsed_ms: milliseconds(elapsed.unwrap_or(Duration::ZERO)),
            result,
            detail,
            errors,
        })
    }
}

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
use switchboard_store::{CallMode, CallState, KeptCall};
use utoipa::ToSchema;

use super::{ending, reply::milliseconds};

/// A call that nobody waits for, with its end once it has one.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = KeptCall)]
pub(crate) struct ShownCall<'a> {
    /// Which call it is: `/v1/calls/{call_id}` tells what becomes of it.
    call_id: CallId,
    /// Whom it is for.
    #[schema(value_type = DeviceId)]
    device_id: &'a DeviceId,
    /// Which service of the device.
    #[schema(max_length = 256, example = "get_current_time")]
    service: &'a str,
    /// Whether it waits for its device.
    #[schema(value_type = CallMode)]
    mode: &'static str,
    /// How far it is.
    #[schema(value_type = CallState)]
    state: &'static str,
    /// When it was asked for.
    #[schema(example = "2026-01-02T03:04:05Z")]
    created_at: DateTime<Utc>,
    /// The last moment in which it may be sent, when it is `queued`.
    #[schema(value_type = String, format = DateTime, required = false, example = "2026-01-03T03:04:05Z")]
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<DateTime<Utc>>,
    /// Whether the device may have acted so far.
    delivered: Delivered,
    #[serde(flatten)]
    end: ShownEnd<'a>,
}

/// How a call ended; nothing until then.
#[derive(Debug, Default, Serialize, ToSchema)]
#[schema(as = KeptCallEnd)]
pub(crate) struct ShownEnd<'a> {
    /// How it ended.
    #[schema(value_type = Outcome, required = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<Outcome>,
    /// When it ended.
    #[schema(value_type = String, format = DateTime, required = false, example = "2026-01-02T03:04:06Z")]
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_at: Option<DateTime<Utc>>,
    /// How many milliseconds after it was asked for.
    #[schema(value_type = f64, required = false, minimum = 0, example = 12.345)]
    #[serde(skip_serializing_if = "Option::is_none")]
    elapsed_ms: Option<f64>,
    /// The device's own words, byte by byte, when it answered; not in lists.
    #[schema(value_type = Object, required = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'a RawValue>,
    /// Why there is no result; not in lists.
    #[schema(value_type = String, required = false, max_length = 65_535, example = "The device is not connected.")]
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
    /// Where the params do not match the schema, when it was `invalid`.
    #[schema(required = false, max_items = 16)]
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
            end: ShownEnd::of(call).unwrap_or_default(),
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
            outcome: Some(end.outcome),
            ended_at: call.ended_at,
            elapsed_ms: Some(milliseconds(elapsed.unwrap_or(Duration::ZERO))),
            result,
            detail,
            errors,
        })
    }
}

//! Asynchronous and queued calls as callers see them.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::value::RawValue;
use switchboard_protocol::{
    id::{CallId, DeviceId},
    outcome::{Delivered, Outcome, Violation},
};
use switchboard_store::{CallMode, CallState, StoredCall};
use utoipa::ToSchema;

use super::{milliseconds, queue::completion};

/// An asynchronous or queued call, with its outcome once it has ended.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = StoredCall)]
pub(crate) struct CallView<'a> {
    /// ID of the call; its URL is `/v1/calls/{call_id}`.
    call_id: CallId,
    /// The device that is called.
    #[schema(value_type = DeviceId)]
    device_id: &'a DeviceId,
    /// The service that is called.
    #[schema(max_length = 256, example = "get_current_time")]
    service: &'a str,
    /// Whether the call is sent at once or queued until its device is connected.
    #[schema(value_type = CallMode)]
    mode: &'static str,
    /// Current state of the call.
    #[schema(value_type = CallState)]
    state: &'static str,
    /// Time of creation (RFC 3339).
    #[schema(example = "2026-01-02T03:04:05Z")]
    created_at: DateTime<Utc>,
    /// Time until which a `queued` call may be sent (RFC 3339).
    #[schema(value_type = String, format = DateTime, required = false, example = "2026-01-03T03:04:05Z")]
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<DateTime<Utc>>,
    /// Whether the device may have executed the call by now.
    delivered: Delivered,
    #[serde(flatten)]
    end: CallEndView<'a>,
}

/// The end of a call; without members until the call has ended.
#[derive(Debug, Default, Serialize, ToSchema)]
#[schema(as = StoredCallEnd)]
pub(crate) struct CallEndView<'a> {
    /// Outcome of the call.
    #[schema(value_type = Outcome, required = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<Outcome>,
    /// Time of the outcome (RFC 3339).
    #[schema(value_type = String, format = DateTime, required = false, example = "2026-01-02T03:04:06Z")]
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_at: Option<DateTime<Utc>>,
    /// Time from the creation of the call to its outcome, in milliseconds.
    #[schema(value_type = f64, required = false, minimum = 0, example = 12.345)]
    #[serde(skip_serializing_if = "Option::is_none")]
    elapsed_ms: Option<f64>,
    /// The device's result, byte for byte, if the device answered; omitted from lists.
    #[schema(value_type = Object, required = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'a RawValue>,
    /// False if the result's data does not match the output schema that the service declares, or
    /// could not be checked; otherwise absent.
    #[schema(value_type = bool, required = false, example = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    result_valid: Option<bool>,
    /// Why there is no result; omitted from lists.
    #[schema(value_type = String, required = false, max_length = 65_535, example = "The device is not connected.")]
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
    /// Where the params do not match the schema, if the outcome is `invalid`.
    #[schema(required = false, max_items = 16)]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    errors: Vec<Violation>,
}

impl<'a> From<&'a StoredCall> for CallView<'a> {
    fn from(call: &'a StoredCall) -> Self {
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
            end: CallEndView::from_call(call).unwrap_or_default(),
        }
    }
}

impl<'a> CallEndView<'a> {
    fn from_call(call: &'a StoredCall) -> Option<Self> {
        let end = call.end.as_ref()?;
        let elapsed = call.ended_at.map(|ended| ended - call.created_at);
        let elapsed = elapsed.and_then(|elapsed| elapsed.to_std().ok());
        let has_result = matches!(end.outcome, Outcome::Succeeded | Outcome::Failed);
        let (result, refusal) = match (end.answer.is_empty(), has_result) {
            // Lists do not read the answer.
            (true, _) => (None, None),
            (false, true) => (serde_json::from_slice(&end.answer).ok(), None),
            (false, false) => (None, Some(completion::refusal(end))),
        };
        let (detail, errors) = refusal.map_or((None, Vec::new()), |refusal| {
            (Some(refusal.detail), refusal.errors)
        });
        Some(Self {
            outcome: Some(end.outcome),
            ended_at: call.ended_at,
            elapsed_ms: Some(milliseconds(elapsed.unwrap_or(Duration::ZERO))),
            result,
            result_valid: (!end.result_valid).then_some(false),
            detail,
            errors,
        })
    }
}

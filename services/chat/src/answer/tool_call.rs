//! Calls of device services for an answer.

use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use switchboard_bus::{Answer, BusError, Call, LiveEvent};
use switchboard_protocol::{
    id::{CallId, DeviceKey, JournalEntryId, NpcId},
    outcome::{Delivered, Outcome, Violation},
    schema::Digest,
};
use switchboard_runtime::span;
use switchboard_store::{CallCaller, CallVia, EndedCall};
use switchboard_tools::text::{clean_to, clean_value};
use tokio::time::Instant;
use tracing::Instrument as _;
use uuid::Uuid;

use crate::{
    Chat,
    answer::{rendering::CallEnd, tools::Callable},
    usage::UsageOf,
};

/// Part of the answer's deadline reserved for the text after the call.
const RESPONSE_GRACE: Duration = Duration::from_millis(500);
/// Bytes of a result that a model receives. Protects its context.
const MAX_RESULT_BYTES: usize = 8 * 1024;
/// Outcome of calls that the bus did not accept, in the usage and in the journal.
const UNAVAILABLE: &str = "unavailable";
/// Follows a result whose data is not known to match.
const INVALID_DATA: &str =
    " [the data does not match the output schema of this tool, or could not be checked]";
const TRUNCATED: &str = "… [the rest is left out]";

/// One call of a service.
pub(crate) struct ServiceCall<'a> {
    pub(crate) callable: Callable<'a>,
    pub(crate) params: Map<String, Value>,
    /// The NPC that calls it.
    pub(crate) npc: Option<NpcId>,
    /// Deadline of the answer.
    pub(crate) deadline: Instant,
}

/// The result as the device sends it.
#[derive(Deserialize)]
struct DeviceResult {
    success: bool,
    #[serde(default)]
    data: Value,
    #[serde(default)]
    error: Value,
}

/// Calls the service and waits for the end of the call, at most until the answer's deadline.
/// Dropping the future cancels the call on the device.
pub(crate) async fn perform(chat: &Chat, call: ServiceCall<'_>) -> CallEnd {
    let ServiceCall {
        callable,
        params,
        npc,
        deadline,
    } = call;
    let left = deadline.saturating_duration_since(Instant::now());
    let Some(left) = left.checked_sub(RESPONSE_GRACE) else {
        return CallEnd::NoResult {
            outcome: Outcome::TimedOut,
            delivered: Delivered::No,
            detail: "There was no time left for the call.".to_owned(),
            parameters: Vec::new(),
        };
    };
    let registration = match approved_registration(chat, &callable).await {
        Ok(registration) => registration,
        Err(not_approved) => return not_approved,
    };
    let call = Call {
        device: callable.device.clone(),
        id: CallId::from_uuid(Uuid::now_v7()),
        service: callable.service.into(),
        params: Bytes::from(Value::Object(params).to_string()),
        input: Bytes::new(),
        registration,
        // A service cannot hold the turn longer than the operator allows.
        timeout: callable
            .timeout
            .unwrap_or(chat.call_timeout)
            .min(chat.call_timeout)
            .min(left),
        notifications: None,
        cancel_key: None,
    };
    let span = span!(
        "execute_tool",
        otel.name = format!("execute_tool {}", callable.service),
        gen_ai.operation.name = "execute_tool",
        gen_ai.tool.name = callable.service,
        gen_ai.tool.call.id = %call.id,
    );
    let mut open = OpenCall::begin(chat, &callable, npc, &call);
    match chat.bus.call(call).instrument(span).await {
        Ok(answer) => {
            open.end(&answer);
            call_end(&answer)
        }
        Err(error) => {
            (open.outcome, open.delivered) = (UNAVAILABLE, Delivered::No);
            not_accepted(&error)
        }
    }
}

/// The registration that must be in force for the call, where services need an approval. It is checked again, since an
/// answer may take minutes.
async fn approved_registration(
    chat: &Chat,
    callable: &Callable<'_>,
) -> Result<Option<Digest>, CallEnd> {
    let refuse = |outcome, detail: String| CallEnd::NoResult {
        outcome,
        delivered: Delivered::No,
        detail,
        parameters: Vec::new(),
    };
    match chat.approvals.of(callable.device.org).await {
        Ok(None) => Ok(None),
        Ok(Some(approved)) if approved.permit(callable.device, callable.digest) => {
            Ok(Some(callable.registration))
        }
        Ok(Some(_)) => Err(refuse(
            Outcome::UnknownService,
            format!(
                "The service {} of the device {} has no approval, or has changed since it was approved; a person \
                 approves it. Nothing was sent.",
                callable.service, callable.device.device
            ),
        )),
        Err(error) => {
            tracing::warn!(%error, "a call for a turn is not made");
            Err(refuse(
                Outcome::Overloaded,
                format!("{error}; nothing was sent."),
            ))
        }
    }
}

/// A call in flight, which enters the usage and the journal of its organisation when it is dropped.
/// Without an end it is cancelled.
struct OpenCall<'a> {
    chat: &'a Chat,
    id: CallId,
    device: &'a DeviceKey,
    service: &'a str,
    npc: Option<NpcId>,
    params: Bytes,
    started_at: Instant,
    outcome: &'static str,
    delivered: Delivered,
    /// Empty if the device sent none.
    result: Bytes,
}

impl<'a> OpenCall<'a> {
    fn begin(chat: &'a Chat, callable: &Callable<'a>, npc: Option<NpcId>, call: &Call) -> Self {
        Self {
            chat,
            id: call.id,
            device: callable.device,
            service: callable.service,
            npc,
            params: call.params.clone(),
            started_at: Instant::now(),
            outcome: Outcome::Cancelled.as_str(),
            delivered: Outcome::Cancelled.delivered(),
            result: Bytes::new(),
        }
    }

    fn end(&mut self, answer: &Answer) {
        self.outcome = answer.outcome.as_str();
        self.delivered = answer.delivered;
        if matches!(answer.outcome, Outcome::Succeeded | Outcome::Failed) {
            self.result = answer.body.clone();
        }
    }
}

impl Drop for OpenCall<'_> {
    fn drop(&mut self) {
        let (chat, elapsed) = (self.chat, self.started_at.elapsed());
        let of = UsageOf {
            org: self.device.org,
            device: Some(&self.device.device),
            npc: self.npc,
        };
        chat.usage
            .count_call((of, self.service), self.outcome, elapsed);
        let ended = EndedCall {
            id: JournalEntryId::from_uuid(Uuid::now_v7()),
            call: self.id,
            device: self.device,
            service: self.service,
            via: CallVia::Chat,
            caller: &self.npc.map_or(CallCaller::Assistant, CallCaller::Npc),
            outcome: self.outcome,
            delivered: self.delivered,
            elapsed,
            params: &self.params,
            result: &self.result,
        };
        chat.bus
            .record_live(self.device.org, || LiveEvent::CallEnded {
                device_id: self.device.device.clone(),
                service: self.service.to_owned(),
                outcome: self.outcome,
                delivered: self.delivered,
                elapsed_ms: elapsed.as_micros() as f64 / 1_000.0,
                call_id: Some(self.id),
                journal_id: Some(ended.id),
                via: ended.via.as_str(),
            });
        let keeps_params = chat.bus.journals_params(self.device.org);
        chat.journal.record(&ended, keeps_params);
    }
}

/// The result as JSON for a model, with notes in brackets.
pub(crate) fn as_json(end: &CallEnd) -> String {
    let data = match end {
        CallEnd::Succeeded { data, .. } => {
            json!({"success": true, "data": clean_value(data.clone())})
        }
        CallEnd::Failed(reason) => {
            let reason = reason.as_deref().unwrap_or("the device gave no reason");
            json!({"success": false, "error": clean_to(reason, MAX_RESULT_BYTES)})
        }
        CallEnd::NoResult {
            outcome,
            delivered,
            detail,
            parameters: _,
        } => {
            let may_be_done = *delivered != Delivered::No;
            json!({
                "success": false, "outcome": outcome, "may_have_been_done": may_be_done,
                "error": clean_to(detail, MAX_RESULT_BYTES),
            })
        }
    };
    let mut text = data.to_string();
    if text.len() > MAX_RESULT_BYTES {
        text = format!("{}{TRUNCATED}", clean_to(&text, MAX_RESULT_BYTES));
    }
    if matches!(end, CallEnd::Succeeded { is_valid, .. } if !is_valid) {
        text.push_str(INVALID_DATA);
    }
    text
}

fn call_end(answer: &Answer) -> CallEnd {
    if let Some(refusal) = answer.refusal() {
        let errors: Vec<String> = refusal
            .errors
            .iter()
            .map(|error| format!("{} {}", error.pointer.trim_start_matches('/'), error.detail))
            .collect();
        let detail = if errors.is_empty() {
            refusal.detail
        } else {
            errors.join("; ")
        };
        return CallEnd::NoResult {
            outcome: answer.outcome,
            delivered: answer.delivered,
            detail,
            parameters: names(&refusal.errors),
        };
    }
    match serde_json::from_slice::<DeviceResult>(&answer.body) {
        Ok(DeviceResult {
            success: true,
            data,
            ..
        }) => CallEnd::Succeeded {
            data,
            is_valid: answer.result_valid,
        },
        Ok(DeviceResult {
            error: Value::String(reason),
            ..
        }) => CallEnd::Failed(Some(reason)),
        // The parser's reason for a result that cannot be read is not the device's.
        Ok(DeviceResult {
            error: Value::Null, ..
        })
        | Err(_) => CallEnd::Failed(None),
        Ok(DeviceResult { error, .. }) => CallEnd::Failed(Some(error.to_string())),
    }
}

fn not_accepted(error: &BusError) -> CallEnd {
    tracing::warn!(%error, "the bus did not accept a call for a turn");
    CallEnd::NoResult {
        outcome: Outcome::Offline,
        delivered: Delivered::No,
        detail: error.to_string(),
        parameters: Vec::new(),
    }
}

/// The parameters that violations are in, each once.
fn names(violations: &[Violation]) -> Vec<String> {
    let mut names = Vec::new();
    for violation in violations {
        let mut steps = violation.pointer.split('/').skip(1);
        if let Some(step) = steps.next() {
            let name = step.replace("~1", "/").replace("~0", "~");
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_named_once_without_what_is_inside() {
        fn check(pointers: &[&str], expected: &[&str]) {
            let violations = pointers.iter().map(|&pointer| Violation {
                pointer: pointer.to_owned(),
                detail: String::new(),
            });
            assert_eq!(names(&violations.collect::<Vec<_>>()), expected);
        }
        check(&["/speed", "/steps/0/at", "/steps/1"], &["speed", "steps"]);
        check(&["/a~1b~01"], &["a/b~1"]);
        check(&["", "/speed"], &["speed"]);
    }

    #[test]
    fn result_that_cannot_be_read_is_a_failure_without_a_reason() {
        for body in ["{", "[]", r#"{"success":"yes"}"#] {
            let answer = Answer::result(true, Bytes::from_static(body.as_bytes()));
            assert_eq!(call_end(&answer), CallEnd::Failed(None), "{body}");
        }
        let body = br#"{"success":false,"error":"no signal"}"#;
        let answer = Answer::result(false, Bytes::from_static(body));
        let reason = Some("no signal".to_owned());
        assert_eq!(call_end(&answer), CallEnd::Failed(reason));
    }
}

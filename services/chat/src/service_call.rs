//! A service of a device, called for an answer.
//! Never: a call before the bus has noted that there is one, or words about a call that it did not end with.

use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use switchboard_bus::{Answer, BusError, Call};
use switchboard_protocol::{
    id::{CallId, DeviceKey, OrgId},
    outcome::{Delivered, Outcome},
};
use switchboard_runtime::span;
use switchboard_tools::text::{clean_to, clean_value};
use tokio::time::Instant;
use tracing::Instrument as _;
use uuid::Uuid;

use crate::{
    Chat,
    embedded::{Ability, Ending},
    usage::TurnUsage,
};

/// No call lasts longer, whatever a device says of its service.
const LONGEST: Duration = Duration::from_secs(300);
/// What is left of an answer's time for telling what came of the call.
const TELLING: Duration = Duration::from_millis(500);
/// What a model reads of a result. Protects its context.
const RESULT_BYTES: usize = 8 * 1024;
/// How a call that the bus did not take stands in the usage.
const UNAVAILABLE: &str = "unavailable";
const CUT: &str = "… [the rest is left out]";

/// One use of a service.
pub(crate) struct Use<'a> {
    pub(crate) device: &'a DeviceKey,
    pub(crate) ability: &'a Ability,
    pub(crate) params: Map<String, Value>,
    /// When the answer must be found.
    pub(crate) deadline: Instant,
}

/// The device's own result.
#[derive(Deserialize)]
struct DeviceResult {
    success: bool,
    #[serde(default)]
    data: Value,
    #[serde(default)]
    error: Value,
}

/// Calls it and waits for its end, as long as the answer has time. Dropping the future cancels the call on the device.
pub(crate) async fn perform(chat: &Chat, used: Use<'_>) -> Ending {
    let Use {
        device,
        ability,
        params,
        deadline,
    } = used;
    let left = deadline.saturating_duration_since(Instant::now());
    let Some(left) = left.checked_sub(TELLING) else {
        return Ending::Without {
            outcome: Outcome::TimedOut,
            delivered: Delivered::No,
            detail: "There was no time left for the call.".to_owned(),
        };
    };
    let call = Call {
        device: device.clone(),
        id: CallId::from_uuid(Uuid::now_v7()),
        service: ability.service.clone(),
        params: Bytes::from(Value::Object(params).to_string()),
        input: Bytes::new(),
        timeout: ability
            .timeout
            .unwrap_or(chat.call_timeout)
            .min(LONGEST)
            .min(left),
        notices: None,
        handle: None,
    };
    let span = span!(
        "execute_tool",
        otel.name = format!("execute_tool {}", ability.service),
        gen_ai.operation.name = "execute_tool",
        gen_ai.tool.name = &*ability.service,
        gen_ai.tool.call.id = %call.id,
    );
    let mut counted = Counted::begin(&chat.usage, device.org);
    match chat.bus.call(call).instrument(span).await {
        Ok(answer) => {
            counted.outcome = answer.outcome.as_str();
            ending(&answer)
        }
        Err(error) => {
            counted.outcome = UNAVAILABLE;
            not_sent(&error)
        }
    }
}

/// A call in its organisation's usage. Dropped before its end it was cancelled.
struct Counted<'a> {
    usage: &'a TurnUsage,
    org: OrgId,
    began: Instant,
    outcome: &'static str,
}

impl<'a> Counted<'a> {
    fn begin(usage: &'a TurnUsage, org: OrgId) -> Self {
        Self {
            usage,
            org,
            began: Instant::now(),
            outcome: Outcome::Cancelled.as_str(),
        }
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        let took = self.began.elapsed();
        self.usage.count_call(self.org, self.outcome, took);
    }
}

/// What a model reads of it.
pub(crate) fn as_data(ending: &Ending) -> String {
    let data = match ending {
        Ending::Done(data) => json!({"success": true, "data": clean_value(data.clone())}),
        Ending::Failed(why) => json!({"success": false, "error": clean_to(why, RESULT_BYTES)}),
        Ending::Without {
            outcome,
            delivered,
            detail,
        } => {
            let may_have_acted = *delivered != Delivered::No;
            json!({
                "success": false, "outcome": outcome, "may_have_been_done": may_have_acted,
                "error": clean_to(detail, RESULT_BYTES),
            })
        }
    };
    let text = data.to_string();
    if text.len() <= RESULT_BYTES {
        return text;
    }
    format!("{}{CUT}", clean_to(&text, RESULT_BYTES))
}

fn ending(answer: &Answer) -> Ending {
    if let Some(refusal) = answer.refusal() {
        let wrong: Vec<String> = refusal
            .errors
            .iter()
            .map(|error| format!("{} {}", error.pointer.trim_start_matches('/'), error.detail))
            .collect();
        let detail = if wrong.is_empty() {
            refusal.detail
        } else {
            wrong.join("; ")
        };
        return Ending::Without {
            outcome: answer.outcome,
            delivered: answer.delivered,
            detail,
        };
    }
    match serde_json::from_slice::<DeviceResult>(&answer.body) {
        Ok(DeviceResult {
            success: true,
            data,
            ..
        }) => Ending::Done(data),
        Ok(DeviceResult {
            error: Value::String(why),
            ..
        }) => Ending::Failed(why),
        Ok(DeviceResult {
            error: Value::Null, ..
        }) => Ending::Failed("the device does not say why".to_owned()),
        Ok(DeviceResult { error, .. }) => Ending::Failed(error.to_string()),
        Err(error) => Ending::Failed(error.to_string()),
    }
}

fn not_sent(error: &BusError) -> Ending {
    tracing::warn!(%error, "a call for a turn was not taken by the bus");
    Ending::Without {
        outcome: Outcome::Offline,
        delivered: Delivered::No,
        detail: error.to_string(),
    }
}

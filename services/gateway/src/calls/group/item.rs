//! One call of a group, and how it ended.

use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::value::RawValue;
use switchboard_bus::{Answer, Notification, NotificationKind};
use switchboard_identity::outside_key;
use switchboard_protocol::{
    id::{CallId, DeviceId},
    outcome::{Delivered, Outcome},
};
use switchboard_runtime::problem::{Problem, ProblemKind};
use switchboard_store::CallVia;
use tokio::sync::mpsc;
use utoipa::ToSchema;

use super::{Group, NOT_SENT};
use crate::{
    Gateway, admission, bus_unavailable,
    calls::{Attempt, notification::Progress, request::CallRequest, response::CallResponse},
    calls::{milliseconds, stream::QUEUE_LEN},
};

/// How the call of one device ended.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = GroupCallItem)]
pub(super) struct GroupItem {
    /// ID of the device.
    device_id: DeviceId,
    /// ID of the call; null if it was refused before it had one.
    call_id: Option<CallId>,
    /// The outcome; null if the call was refused before it was sent: `problem` says why.
    outcome: Option<Outcome>,
    /// Whether the device may have executed the call.
    delivered: Delivered,
    /// Time from when the call was made to its outcome, in milliseconds.
    #[schema(minimum = 0, maximum = 301_000, example = 12.345)]
    elapsed_ms: f64,
    /// The device's result, byte for byte, if the outcome is `succeeded` or `failed`.
    #[schema(value_type = Object, required = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<Box<RawValue>>,
    /// False if the result does not match the output schema of the service; otherwise absent.
    #[schema(required = false, example = false)]
    #[serde(skip_serializing_if = "is_true")]
    result_valid: bool,
    /// The problem that the call alone would have had; or why there is no result.
    #[schema(value_type = Object, required = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<Box<RawValue>>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
const fn is_true(value: &bool) -> bool {
    *value
}

/// Where the progress of the calls of a group goes.
pub(super) struct Progresses(Option<mpsc::Sender<DeviceProgress>>);

/// A progress of one device.
#[derive(Debug, Serialize)]
pub(super) struct DeviceProgress {
    device_id: DeviceId,
    #[serde(flatten)]
    progress: Progress,
}

impl Progresses {
    /// Nobody reads it.
    pub(super) const fn none() -> Self {
        Self(None)
    }

    pub(super) const fn to(sender: mpsc::Sender<DeviceProgress>) -> Self {
        Self(Some(sender))
    }

    /// Passes it on unless its reader is slow.
    fn send(&self, device: &DeviceId, notification: &Notification) {
        if let Some(sender) = &self.0
            && notification.kind == NotificationKind::Progress
            && let Ok(progress) = serde_json::from_slice(&notification.data)
        {
            // A slow reader loses progress, and never an item.
            let _ = sender.try_send(DeviceProgress {
                device_id: device.clone(),
                progress,
            });
        }
    }
}

impl Group {
    /// Makes the call of one device. The first one was charged to its caller with the request.
    pub(super) async fn call(
        &self,
        gateway: &Gateway,
        at: usize,
        device: &DeviceId,
        progresses: &Progresses,
    ) -> GroupItem {
        let started = Instant::now();
        let refused = |problem: Problem, outcome: Option<Outcome>| GroupItem {
            outcome,
            ..GroupItem::refused(device, &problem)
        };
        if let Some(problem) = self.refusal(gateway) {
            return refused(problem, None);
        }
        if at > 0
            && let Err(limited) = gateway.rate_limits.admit_caller(&self.caller)
        {
            return refused(limited, Some(Outcome::Overloaded));
        }
        let attempt = Attempt::new(
            (&self.caller, CallVia::Rest),
            device.clone(),
            self.request(),
            started,
        );
        let attempt = match attempt {
            Ok(attempt) => attempt,
            Err(outside) => return refused(outside_key(&outside), None),
        };
        if let Err(limited) = gateway.rate_limits.admit_call(&attempt.device) {
            return refused(admission::rate_limited(limited), Some(Outcome::Overloaded));
        }
        let answer = match progresses.0 {
            None => attempt.perform(gateway, None).await,
            Some(_) => follow(gateway, &attempt, progresses).await,
        };
        match answer {
            Ok(answer) => GroupItem::ended(&attempt, &answer, started.elapsed()),
            Err(error) => refused(bus_unavailable(&error), None),
        }
    }

    fn request(&self) -> CallRequest {
        let call = &self.request.call;
        CallRequest {
            service: call.service.clone(),
            params: call.params.clone(),
            input: call.input.clone(),
            timeout: call.timeout,
        }
    }
}

/// Makes a call and passes on its progress.
async fn follow(
    gateway: &Gateway,
    attempt: &Attempt,
    progresses: &Progresses,
) -> Result<Answer, switchboard_bus::BusError> {
    let (sender, mut notifications) = mpsc::channel(QUEUE_LEN);
    let device = &attempt.device.device;
    let mut call = std::pin::pin!(attempt.perform(gateway, Some(sender)));
    let answer = loop {
        tokio::select! {
            biased;
            Some(notification) = notifications.recv() => progresses.send(device, &notification),
            answer = &mut call => break answer,
        }
    };
    while let Ok(notification) = notifications.try_recv() {
        progresses.send(device, &notification);
    }
    answer
}

impl GroupItem {
    fn ended(attempt: &Attempt, answer: &Answer, elapsed: Duration) -> Self {
        let is_result = matches!(answer.outcome, Outcome::Succeeded | Outcome::Failed);
        let problem = || CallResponse::new(attempt.id, answer, elapsed).body;
        let (result, problem) = match is_result {
            true => (serde_json::from_slice(&answer.body).ok(), None),
            false => (None, serde_json::from_slice(&problem()).ok()),
        };
        Self {
            device_id: attempt.device.device.clone(),
            call_id: Some(attempt.id),
            outcome: Some(answer.outcome),
            delivered: answer.delivered,
            elapsed_ms: milliseconds(elapsed),
            result,
            result_valid: answer.result_valid,
            problem,
        }
    }

    fn refused(device: &DeviceId, problem: &Problem) -> Self {
        Self {
            device_id: device.clone(),
            call_id: None,
            outcome: None,
            delivered: Delivered::No,
            elapsed_ms: 0.0,
            result: None,
            result_valid: true,
            problem: serde_json::from_slice(&problem.document()).ok(),
        }
    }

    /// The name under which the sums count it.
    pub(super) const fn outcome_name(&self) -> &'static str {
        match self.outcome {
            Some(outcome) => outcome.as_str(),
            None => NOT_SENT,
        }
    }

    /// What it takes in memory besides its fixed members.
    pub(super) fn bytes(&self) -> usize {
        let contents = [&self.result, &self.problem].into_iter().flatten();
        contents.map(|content| content.get().len()).sum()
    }

    /// The item with a problem that says that its content was left out.
    pub(super) fn without_content(self) -> Self {
        let detail = "The results of the group are larger than one response may be: this one was left out. The call has \
                      ended with its outcome.";
        let problem = Problem::new(ProblemKind::ResultLeftOut, detail);
        Self {
            result: None,
            problem: serde_json::from_slice(&problem.document()).ok(),
            ..self
        }
    }
}

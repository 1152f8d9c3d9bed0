//! One call on its way through the bus, whichever door it came in by.
//! Never: an HTTP response, or a second execution.

use std::time::{Duration, Instant};

use switchboard_bus::{Answer, BusError, Call, Handle, Notice};
use switchboard_protocol::{
    id::{CallId, DeviceKey},
    outcome::{Delivered, Outcome},
};
use tokio::sync::mpsc;
use uuid::Uuid;

use super::CallRequest;
use crate::Gateway;

/// How long an absent device is looked up; the answer must not be late because the record is away.
const LOOKUP_PATIENCE: Duration = Duration::from_millis(200);

/// A call that was asked for, before anything was sent.
pub(crate) struct Attempt {
    pub(crate) id: CallId,
    pub(crate) device: DeviceKey,
    pub(crate) request: CallRequest,
    pub(crate) started: Instant,
    /// What its caller can take it back by, with another request.
    pub(crate) handle: Option<Handle>,
}

impl Attempt {
    /// A call that begins now.
    pub(crate) fn begin(device: DeviceKey, request: CallRequest) -> Self {
        Self {
            id: CallId::from_uuid(Uuid::now_v7()),
            device,
            request,
            started: Instant::now(),
            handle: None,
        }
    }

    /// Until the one deadline that everything about the call is under.
    pub(super) fn time_left(&self) -> Duration {
        self.request.timeout.saturating_sub(self.started.elapsed())
    }

    /// Makes the call, and passes on what the device says meanwhile.
    ///
    /// # Errors
    /// When the bus did not take it: nothing was sent.
    pub(crate) async fn perform(
        &self,
        gateway: &Gateway,
        notices: Option<mpsc::Sender<Notice>>,
    ) -> Result<Answer, BusError> {
        let in_flight = gateway.metrics.begin(self.device.org);
        let answer = match self.send(gateway, notices).await {
            Ok(answer) => answer,
            Err(error) => {
                in_flight.refuse();
                return Err(error);
            }
        };
        let answer = self.tell_unknown_from_offline(gateway, answer).await;
        in_flight.settle(answer.outcome);
        Ok(answer)
    }

    /// The same as far as the bus goes: a device that is not there is offline, and nothing is counted.
    ///
    /// # Errors
    /// When the bus did not take it: nothing was sent.
    pub(super) async fn send(
        &self,
        gateway: &Gateway,
        notices: Option<mpsc::Sender<Notice>>,
    ) -> Result<Answer, BusError> {
        let sent = self.hand_over(gateway, notices).await;
        sent.or_else(|error| self.ended_by(&error).ok_or(error))
    }

    async fn hand_over(
        &self,
        gateway: &Gateway,
        notices: Option<mpsc::Sender<Notice>>,
    ) -> Result<Answer, BusError> {
        let timeout = self.time_left();
        if timeout.is_zero() {
            return Err(BusError::Timeout(self.request.timeout));
        }
        let call = Call {
            device: self.device.clone(),
            id: self.id,
            service: self.request.service.clone(),
            params: self.request.params.clone(),
            timeout,
            input: self.request.input.clone(),
            notices,
            handle: self.handle,
        };
        gateway.bus.call(call).await
    }

    /// The bus knows live devices only; whether an absent one exists at all is on record. While the record
    /// cannot be read, `offline` is what is known.
    async fn tell_unknown_from_offline(&self, gateway: &Gateway, answer: Answer) -> Answer {
        if answer.outcome != Outcome::Offline {
            return answer;
        }
        let device = &self.device;
        let lookup = gateway.store.device(device.org, &device.device);
        let patience = LOOKUP_PATIENCE.min(self.time_left());
        match tokio::time::timeout(patience, lookup).await {
            Ok(Ok(None)) => {
                let detail = format!("There is no device {} in this organisation.", device.device);
                Answer::ended(Outcome::UnknownDevice, detail)
            }
            Ok(Ok(Some(_))) => answer,
            Ok(Err(error)) => {
                tracing::warn!(
                    error = error.report(),
                    "an absent device could not be looked up; it is called offline"
                );
                answer
            }
            Err(_) => {
                tracing::warn!("an absent device was not looked up in time; it is called offline");
                answer
            }
        }
    }

    /// The outcome that a failure of the bus is; `None` when the bus did not take the call at all.
    fn ended_by(&self, error: &BusError) -> Option<Answer> {
        match error {
            BusError::Overloaded => Some(Answer::ended(
                Outcome::Overloaded,
                "Too much waits to be sent to the node that holds the device; try again later.",
            )),
            BusError::Timeout(_) if self.time_left().is_zero() => {
                let detail =
                    "The time was over before the call could be sent; the device never saw it.";
                Some(Answer::ended(Outcome::TimedOut, detail).with_delivered(Delivered::No))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use switchboard_protocol::id::OrgId;

    use super::*;

    #[test]
    fn what_the_bus_could_not_send_was_never_delivered() {
        fn check(error: &BusError, timeout: Duration, expected: Option<Outcome>) {
            let device = DeviceKey {
                org: OrgId::from_uuid(Uuid::from_u128(1)),
                device: "toy-1".parse().unwrap(),
            };
            let request = CallRequest {
                service: "wave".into(),
                params: bytes::Bytes::from_static(b"{}"),
                input: bytes::Bytes::new(),
                timeout,
            };
            let attempt = Attempt::begin(device, request);
            let answer = attempt.ended_by(error);
            let expected = expected.map(|outcome| (outcome, Delivered::No));
            let seen = answer.map(|answer| (answer.outcome, answer.delivered));
            assert_eq!(seen, expected, "{error}");
        }
        const PATIENT: Duration = Duration::from_secs(60);
        let late = BusError::Timeout(PATIENT);
        check(&BusError::Overloaded, PATIENT, Some(Outcome::Overloaded));
        check(&late, Duration::ZERO, Some(Outcome::TimedOut));
        // The bus gave up before the caller would: it is away.
        check(&late, PATIENT, None);
        check(&BusError::Unavailable, Duration::ZERO, None);
    }
}

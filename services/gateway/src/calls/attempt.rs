//! One call through the bus, for REST and MCP.

use std::time::{Duration, Instant};

use switchboard_bus::{Answer, BusError, Call, CancelKey, Notification};
use switchboard_identity::Caller;
use switchboard_protocol::{
    id::{CallId, DeviceId, DeviceKey},
    outcome::{Delivered, Outcome},
    schema::Digest,
    token::Outside,
};
use switchboard_store::CallVia;
use tokio::sync::mpsc;
use uuid::Uuid;

use super::{CallRequest, OpenCall, ended::CallOrigin};
use crate::Gateway;

/// Limits the lookup of an absent device, so that a slow database does not delay the answer.
const DEVICE_LOOKUP_TIMEOUT: Duration = Duration::from_millis(200);

/// A call that was requested, before anything is sent.
pub(crate) struct Attempt {
    pub(crate) id: CallId,
    pub(crate) device: DeviceKey,
    pub(crate) request: CallRequest,
    pub(crate) started: Instant,
    /// Lets the caller cancel the call with another request.
    pub(crate) cancel_key: Option<CancelKey>,
    /// Of a synchronous call, for the journal.
    pub(crate) origin: Option<CallOrigin>,
    /// The registration that was checked for this call, if one was.
    pub(crate) registration: Option<Digest>,
}

impl Attempt {
    /// A call whose time started when the head of its request was complete. Every call of a caller is
    /// made of it.
    ///
    /// # Errors
    /// What restricts the credential to other devices or services.
    pub(crate) fn new(
        (caller, via): (&Caller, CallVia),
        device: DeviceId,
        request: CallRequest,
        started: Instant,
    ) -> Result<Self, Outside<'_>> {
        caller.check_call(&device, &request.service)?;
        Ok(Self {
            id: CallId::from_uuid(Uuid::now_v7()),
            device: DeviceKey {
                org: caller.org,
                device,
            },
            request,
            started,
            cancel_key: None,
            origin: Some(CallOrigin::new(caller, via)),
            registration: None,
        })
    }

    /// Time until the deadline of the call, which covers all of its steps.
    pub(super) fn time_left(&self) -> Duration {
        self.request.timeout.saturating_sub(self.started.elapsed())
    }

    /// Makes the call, counts it and records it in the journal, and forwards the device's notifications while it runs.
    ///
    /// # Errors
    /// If the bus did not accept the call. Nothing was sent.
    pub(crate) async fn perform(
        &self,
        gateway: &Gateway,
        notifications: Option<mpsc::Sender<Notification>>,
    ) -> Result<Answer, BusError> {
        let open = OpenCall::begin(gateway, self);
        let answer = match self.send(gateway, notifications).await {
            Ok(answer) => answer,
            Err(error) => {
                open.unavailable();
                return Err(error);
            }
        };
        let answer = match answer.outcome {
            // Boxed: the future is large, and that of every call contains it.
            Outcome::Offline => Box::pin(self.resolve_unknown_device(gateway, answer)).await,
            _ => answer,
        };
        open.complete(&answer);
        Ok(answer)
    }

    /// Sends the call over the bus and waits for the answer. Does not count the call, and does
    /// not look up absent devices: they are `offline`.
    ///
    /// # Errors
    /// If the bus did not accept the call. Nothing was sent.
    pub(super) async fn send(
        &self,
        gateway: &Gateway,
        notifications: Option<mpsc::Sender<Notification>>,
    ) -> Result<Answer, BusError> {
        let timeout = self.time_left();
        let sent = if timeout.is_zero() {
            Err(BusError::Timeout(self.request.timeout))
        } else {
            let call = Call {
                device: self.device.clone(),
                id: self.id,
                service: self.request.service.clone(),
                params: self.request.params.clone(),
                timeout,
                input: self.request.input.clone(),
                registration: self.registration,
                notifications,
                cancel_key: self.cancel_key,
            };
            gateway.bus.call(call).await
        };
        sent.or_else(|error| self.answer_for(&error).ok_or(error))
    }

    /// Turns `offline` into `unknown_device` if the database has no such device: the bus knows
    /// connected devices only. If the database is unavailable, the answer stays `offline`.
    async fn resolve_unknown_device(&self, gateway: &Gateway, answer: Answer) -> Answer {
        let device = &self.device;
        let lookup = gateway.store.device(device.org, &device.device);
        let timeout = DEVICE_LOOKUP_TIMEOUT.min(self.time_left());
        match tokio::time::timeout(timeout, lookup).await {
            Ok(Ok(None)) => {
                let detail = format!("There is no device {} in this organisation.", device.device);
                Answer::ended(Outcome::UnknownDevice, detail)
            }
            Ok(Ok(Some(_))) => answer,
            Ok(Err(error)) => {
                tracing::warn!(
                    error = error.report(),
                    "lookup of an absent device failed; its call ends as offline"
                );
                answer
            }
            Err(_) => {
                tracing::warn!("lookup of an absent device timed out; its call ends as offline");
                answer
            }
        }
    }

    /// The outcome that a bus error stands for, or `None` if the bus did not accept the call.
    fn answer_for(&self, error: &BusError) -> Option<Answer> {
        match error {
            BusError::Overloaded => Some(Answer::ended(
                Outcome::Overloaded,
                "The queue to the device's owner node is full; try again later.",
            )),
            BusError::Timeout(_) if self.time_left().is_zero() => {
                let detail =
                    "The timeout passed before the call was sent; the device did not receive it.";
                Some(Answer::ended(Outcome::TimedOut, detail).with_delivered(Delivered::No))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use switchboard_identity::Credential;
    use switchboard_protocol::{
        id::{ApiKeyId, OrgId},
        token::Scopes,
    };

    use super::*;

    #[test]
    fn unsent_call_is_not_delivered() {
        fn check(error: &BusError, timeout: Duration, expected: Option<Outcome>) {
            let caller = Caller {
                org: OrgId::from_uuid(Uuid::from_u128(1)),
                scopes: Scopes::default(),
                restrictions: None,
                labelled: None,
                credential: Credential::ApiKey(ApiKeyId::from_uuid(Uuid::from_u128(2))),
            };
            let device = "toy-1".parse().unwrap();
            let request = CallRequest {
                service: "wave".into(),
                params: bytes::Bytes::from_static(b"{}"),
                input: bytes::Bytes::new(),
                timeout,
            };
            let attempt =
                Attempt::new((&caller, CallVia::Rest), device, request, Instant::now()).unwrap();
            let answer = attempt.answer_for(error);
            let expected = expected.map(|outcome| (outcome, Delivered::No));
            let seen = answer.map(|answer| (answer.outcome, answer.delivered));
            assert_eq!(seen, expected, "{error}");
        }
        const TIMEOUT: Duration = Duration::from_secs(60);
        let late = BusError::Timeout(TIMEOUT);
        check(&BusError::Overloaded, TIMEOUT, Some(Outcome::Overloaded));
        check(&late, Duration::ZERO, Some(Outcome::TimedOut));
        // The bus timed out before the call's deadline: it is unavailable.
        check(&late, TIMEOUT, None);
        check(&BusError::Unavailable, Duration::ZERO, None);
    }
}

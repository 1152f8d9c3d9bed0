//! The end of a call: it is counted, and a synchronous call enters the journal.
//!
//! Invariant: each call in flight ends here exactly once, whatever its caller does.

use switchboard_bus::{Answer, LiveEvent};
use switchboard_identity::{Caller, Credential};
use switchboard_protocol::{
    id::{DeviceKey, JournalEntryId},
    outcome::{Delivered, Outcome},
};
use switchboard_store::{CallCaller, CallVia, EndedCall};
use uuid::Uuid;

use super::{Attempt, milliseconds};
use crate::{Gateway, metrics::InFlightCall};

/// Where a synchronous call comes from.
#[derive(Debug, Clone)]
pub(crate) struct CallOrigin {
    via: CallVia,
    caller: CallCaller,
}

impl CallOrigin {
    pub(super) fn new(caller: &Caller, via: CallVia) -> Self {
        let caller = match &caller.credential {
            Credential::ApiKey(id) => CallCaller::Key(*id),
            Credential::AccessToken { id, subject } => CallCaller::Token {
                id: *id,
                subject: subject.clone(),
            },
        };
        Self { via, caller }
    }
}

/// A call in flight. If dropped without an end, its caller disconnected: it is cancelled.
pub(crate) struct OpenCall<'a> {
    gateway: &'a Gateway,
    attempt: &'a Attempt,
    /// `None` after the end.
    in_flight: Option<InFlightCall<'a>>,
}

impl<'a> OpenCall<'a> {
    pub(crate) fn begin(gateway: &'a Gateway, attempt: &'a Attempt) -> Self {
        let metrics = &gateway.metrics;
        Self {
            gateway,
            attempt,
            in_flight: Some(metrics.begin_call(&attempt.device, &attempt.request.service)),
        }
    }

    pub(crate) fn complete(mut self, answer: &Answer) {
        let outcome = answer.outcome;
        let result: &[u8] = match outcome {
            Outcome::Succeeded | Outcome::Failed => &answer.body,
            _ => &[],
        };
        self.end(outcome.as_str(), answer.delivered, result);
        if let Some(in_flight) = self.in_flight.take() {
            in_flight.complete(outcome);
        }
    }

    /// Nothing was sent: the bus, or the database, did not accept the call.
    pub(crate) fn unavailable(mut self) {
        self.end("unavailable", Delivered::No, &[]);
        if let Some(in_flight) = self.in_flight.take() {
            in_flight.unavailable();
        }
    }

    /// The params exceed the limit.
    pub(crate) fn too_large(mut self) {
        self.end(Outcome::Overloaded.as_str(), Delivered::No, &[]);
        if let Some(in_flight) = self.in_flight.take() {
            in_flight.too_large();
        }
    }

    /// Enters the journal, before the call is no longer in flight: while the process drains, the journal is written until
    /// none is. Asynchronous and queued calls have no origin: they are stored themselves.
    fn end(&self, outcome: &'static str, delivered: Delivered, result: &[u8]) {
        let origin = self.attempt.origin.as_ref();
        let entry = origin.map(|origin| (origin, JournalEntryId::from_uuid(Uuid::now_v7())));
        let id = entry.map(|(_, id)| id);
        self.attempt
            .record_end(self.gateway, (outcome, delivered), id);
        let Some((origin, id)) = entry else {
            return;
        };
        let ended = EndedCall {
            id,
            call: self.attempt.id,
            device: &self.attempt.device,
            service: &self.attempt.request.service,
            via: origin.via,
            caller: &origin.caller,
            outcome,
            delivered,
            elapsed: self.attempt.started.elapsed(),
            params: &self.attempt.request.params,
            result,
        };
        let keeps_params = self.gateway.bus.journals_params(ended.device.org);
        self.gateway.journal.record(&ended, keeps_params);
    }
}

impl Attempt {
    /// Shows the end of the call to those who watch the organisation.
    pub(super) fn record_end(
        &self,
        gateway: &Gateway,
        (outcome, delivered): (&'static str, Delivered),
        journal_id: Option<JournalEntryId>,
    ) {
        let DeviceKey { org, device } = &self.device;
        let via = self
            .origin
            .as_ref()
            .map_or(CallVia::Rest, |origin| origin.via);
        gateway.bus.record_live(*org, || LiveEvent::CallEnded {
            device_id: device.clone(),
            service: self.request.service.to_string(),
            outcome,
            delivered,
            elapsed_ms: milliseconds(self.started.elapsed()),
            call_id: Some(self.id),
            journal_id,
            via: via.as_str(),
        });
    }
}

impl Drop for OpenCall<'_> {
    fn drop(&mut self) {
        // It is counted as cancelled when it is dropped.
        if self.in_flight.is_some() {
            // A stored call that its gateway leaves is lost.
            let outcome = match self.attempt.origin {
                Some(_) => Outcome::Cancelled,
                None => Outcome::Lost,
            };
            self.end(outcome.as_str(), outcome.delivered(), &[]);
        }
    }
}

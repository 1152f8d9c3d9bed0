//! Calls on their way to the device: is there time, is there such a service, do the params fit it?
//! Never: a frame to the device for a call that is answered here.

use std::time::{Duration, Instant};

use serde_json::value::RawValue;
use switchboard_bus::Answer;
use switchboard_protocol::{
    frame::{self, Kind, Spelling, TaskId},
    id::CallId,
    message,
    outcome::{Delivered, Outcome, Refusal},
    schema::Registration,
};
use tokio::io::{AsyncRead, AsyncWrite};

use super::{Live, farewell, scratch};
use crate::link::{Command, Dispatch};

/// Commands are taken from the queue until this much waits for the socket, so that what the
/// socket does not take stays where it can still be withdrawn.
const BATCH_BYTES: usize = 64 * 1024;

/// A call that is answered without the device.
type Refused = (Outcome, Refusal);

impl<S: AsyncRead + AsyncWrite + Unpin> Live<'_, S> {
    /// Writes what the queue holds, as one batch.
    pub(super) fn send_commands(&mut self) {
        let registration = self.link.registration();
        while self.wire.unsent_bytes() < BATCH_BYTES {
            match self.link.next_command() {
                None => return,
                Some(Command::GoAway) => {
                    farewell::put_go_away(self.wire, "drain", self.edge.retry_after_ms());
                }
                Some(Command::Ping) => self.wire.put(Kind::Ping, TaskId::MCP, 0, &[]),
                Some(Command::Cancel(id)) => self.send_cancel(id),
                Some(Command::Call(call)) => self.send_call(registration.as_deref(), &call),
                Some(Command::Answer(step)) => self.send_answer(&step),
            }
        }
    }

    fn send_cancel(&mut self, id: CallId) {
        let (task, spelling) = self.addressing();
        let out = self.wire.out();
        scratch::with_payload(
            |payload| message::write_cancel(payload, id),
            |payload| frame::encode(out, Kind::Control, task, 0, spelling, payload),
        );
    }

    fn send_call(&mut self, registration: Option<&Registration>, call: &Dispatch) {
        let refused = match self.check(registration, call) {
            Ok((params, input)) => self.write(call, params, input).err(),
            Err(refused) => Some(refused),
        };
        let Some((outcome, refusal)) = refused else {
            self.edge.metrics.dispatched.inc();
            call.handling.note("sent");
            return;
        };
        // None: the caller has withdrawn it meanwhile and has its answer.
        if let Some(reply) = self.link.withdraw(call.id) {
            // Whatever the outcome, the device has not seen it.
            let answer = Answer::refused(outcome, &refusal).with_delivered(Delivered::No);
            self.edge.answer(&reply, answer);
        }
    }

    fn check<'a>(
        &self,
        registration: Option<&Registration>,
        call: &'a Dispatch,
    ) -> Result<(&'a RawValue, Option<&'a RawValue>), Refused> {
        let now = Instant::now();
        if call.deadline <= now {
            return Err(refusal(
                Outcome::TimedOut,
                "The deadline passed before the device saw it.",
            ));
        }
        let service = registration.and_then(|registration| registration.service(&call.service));
        let service = service.ok_or_else(|| {
            let name = &*call.service;
            refusal(
                Outcome::UnknownService,
                format!("The device has no service `{name}`."),
            )
        })?;
        let params: &RawValue = serde_json::from_slice(&call.params).map_err(|error| {
            refusal(
                Outcome::Invalid,
                format!("The params are not valid JSON: {error}."),
            )
        })?;
        let input = match &*call.input {
            [] => None,
            input => Some(serde_json::from_slice(input).map_err(|error| {
                let detail = format!("The input is not valid JSON: {error}.");
                refusal(Outcome::Invalid, detail)
            })?),
        };
        service.check(params).map_err(|errors| {
            let detail = format!("The params do not fit the service `{}`.", service.name);
            (Outcome::Invalid, Refusal { detail, errors })
        })?;
        if let Some(timeout_ms) = service.timeout_ms {
            let own = now + Duration::from_millis(u64::from(timeout_ms));
            self.link.shorten(call.id, own);
        }
        Ok((params, input))
    }

    /// Appends the frame, or nothing if it would be larger than the device agreed to.
    fn write(
        &mut self,
        call: &Dispatch,
        params: &RawValue,
        input: Option<&RawValue>,
    ) -> Result<(), Refused> {
        let (task, spelling) = self.addressing();
        let limit = self.edge.config.device_max_frame_bytes as usize;
        let out = self.wire.out();
        let before = out.len();
        let message = message::Call {
            call_id: call.id,
            method: &call.service,
            params,
            input,
        };
        scratch::with_payload(
            |payload| message.write(payload),
            |payload| frame::encode(out, Kind::Control, task, 0, spelling, payload),
        );
        if out.len() - before > limit {
            out.truncate(before);
            let detail = format!("The call is too large: a frame holds at most {limit} bytes.");
            return Err(refusal(Outcome::Overloaded, detail));
        }
        Ok(())
    }

    /// How the device spells its control frames; ours are spelt the same.
    fn addressing(&self) -> (TaskId, Spelling) {
        (self.session.control_task(), self.session.spelling())
    }

    /// Answers a message of the device (S 6.3): an error, or none for success.
    pub(super) fn send_result(&mut self, call_id: &str, error: Option<&str>) {
        let (task, spelling) = self.addressing();
        let out = self.wire.out();
        scratch::with_payload(
            |payload| message::write_result(payload, call_id, error),
            |payload| frame::encode(out, Kind::Control, task, 0, spelling, payload),
        );
    }
}

fn refusal(outcome: Outcome, detail: impl Into<String>) -> Refused {
    (
        outcome,
        Refusal {
            detail: detail.into(),
            errors: Vec::new(),
        },
    )
}

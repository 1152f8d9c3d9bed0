//! Calls on the connection: checks and writes them, and forwards the device's notifications about
//! them.

use std::{
    future::poll_fn,
    time::{Duration, Instant},
};

use bytes::Bytes;
use serde_json::value::RawValue;
use switchboard_bus::{Answer, Notification, NotificationKind};
use switchboard_protocol::{
    frame::{self, Kind, SeqFormat, TaskId},
    id::CallId,
    message,
    outcome::{Delivered, Outcome, Refusal, Violation},
    schema::{Deferred, Service},
};
use tokio::io::{AsyncRead, AsyncWrite};

use super::{Connection, buffers, close::put_goaway};
use crate::{
    handle::{Command, DropReason, NotificationRate, OutgoingCall},
    metrics::{Note, NotificationLimit},
    schemas::CompiledServices,
};

/// Commands are taken from the handle until this much waits for the socket. The rest stays in the
/// handle, where it can still be cancelled with certainty.
const MAX_BATCH_BYTES: usize = 64 * 1024;

/// Checks of this time are made before the other tasks of the worker run.
const MAX_SLICE: Duration = Duration::from_micros(500);

/// A call that is answered without the device.
type RefusedCall = (Outcome, Refusal);

/// Why no further command is written for the moment.
pub(super) enum Pause {
    /// The connection is entered in the directory first.
    Enter,
    /// Other tasks of this worker run first.
    Yield,
    /// What is left of the check of this call's params is made off the worker. Later calls wait, so
    /// that the device receives them in their order.
    Check(Box<OutgoingCall>, Deferred),
}

/// A call whose params are to be checked.
struct PreparedCall<'a> {
    service: &'a Service,
    params: &'a RawValue,
    input: Option<&'a RawValue>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<'_, S> {
    /// Writes the handle's commands as one batch.
    pub(super) fn send_commands(&mut self) -> Option<Pause> {
        let registration = self.handle.registration();
        let mut started = None;
        while self.io.unsent_bytes() < MAX_BATCH_BYTES {
            match self.handle.next_command()? {
                Command::Enter => return Some(Pause::Enter),
                Command::Goaway => {
                    put_goaway(self.io, "drain", self.edge.drain_retry_after_ms());
                }
                Command::Ping => self.io.put(Kind::Ping, TaskId::MCP, 0, &[]),
                Command::Cancel(id) => self.send_cancel(id),
                Command::Call(call) => {
                    if let Some(pause) = self.send_call(registration.as_deref(), call, &mut started)
                    {
                        return Some(pause);
                    }
                }
                Command::Reply(chunk) => self.send_reply(&chunk),
                Command::Voice(frame) => self.send_voice_frame(&frame),
            }
        }
        None
    }

    /// Continues after a pause. The commands that are left are sent afterwards.
    pub(super) async fn resume(&mut self, pause: Pause) {
        self.write_ready().await;
        match pause {
            Pause::Enter => self.enter().await,
            Pause::Yield => tokio::task::yield_now().await,
            Pause::Check(call, left) => self.check_in_pool(&call, left).await,
        }
    }

    fn send_cancel(&mut self, id: CallId) {
        let (task, seq_format) = self.control_header();
        let out = self.io.out();
        buffers::with_payload(
            |payload| message::write_cancel(payload, id),
            |payload| frame::encode(out, Kind::Control, task, 0, seq_format, payload),
        );
    }

    /// Checks a call and writes it. `started` is when the first one of this batch was.
    fn send_call(
        &mut self,
        registration: Option<&CompiledServices>,
        call: OutgoingCall,
        started: &mut Option<Instant>,
    ) -> Option<Pause> {
        let now = Instant::now();
        let started = *started.get_or_insert(now);
        let sent = match prepare_call(registration, &call, now) {
            Ok(prepared) => match prepared.service.try_check(prepared.params) {
                Ok(checked) => self.write_checked(&call, &prepared, checked, now),
                Err(left) => {
                    self.handle.defer_write(call.id);
                    return Some(Pause::Check(Box::new(call), left));
                }
            },
            Err(refused) => Err(refused),
        };
        self.finish_call(&call, sent);
        (now.duration_since(started) > MAX_SLICE).then_some(Pause::Yield)
    }

    /// Completes the check of a call off the worker and writes it, unless it ended in the meantime.
    async fn check_in_pool(&mut self, call: &OutgoingCall, left: Deferred) {
        let registration = self.handle.registration();
        let job = {
            let (registration, call) = (registration.clone(), call.clone());
            move || {
                let prepared = prepare_call(registration.as_deref(), &call, Instant::now());
                prepared.map(|prepared| prepared.service.finish_check(prepared.params, left))
            }
        };
        let checked = self
            .edge
            .schemas
            .check(self.handle.key.org, call.deadline, job);
        // While nothing is written, its only signal is to close. The call then ends as not
        // delivered, or the next connection of the device receives it.
        let closing = poll_fn(|cx| self.handle.poll_signal(cx, false));
        let checked = tokio::select! {
            biased;
            _ = closing => return,
            checked = checked => checked,
        };
        let checked = match checked {
            Ok(Some(checked)) => checked,
            Ok(None) => Err(refusal(
                Outcome::Overloaded,
                "The check of the params failed.",
            )),
            Err(exhausted) => {
                let detail =
                    format!("The params were not checked: {exhausted}. Try again in a moment.");
                Err(refusal(Outcome::Overloaded, detail))
            }
        };
        if !self.handle.resume_write(call.id) {
            return;
        }
        let now = Instant::now();
        let sent = checked.and_then(|checked| {
            let prepared = prepare_call(registration.as_deref(), call, now)?;
            self.write_checked(call, &prepared, checked, now)
        });
        self.finish_call(call, sent);
    }

    /// Writes a call whose params were checked, if they match.
    fn write_checked(
        &mut self,
        call: &OutgoingCall,
        prepared: &PreparedCall<'_>,
        checked: Result<(), Vec<Violation>>,
        now: Instant,
    ) -> Result<(), RefusedCall> {
        let service = prepared.service;
        checked.map_err(|errors| {
            let detail = format!("The params do not match the service `{}`.", service.name);
            (Outcome::Invalid, Refusal { detail, errors })
        })?;
        if let Some(timeout_ms) = service.timeout_ms {
            let deadline = now + Duration::from_millis(u64::from(timeout_ms));
            self.handle.shorten_deadline(call.id, deadline);
        }
        if service.has_output() {
            self.handle.expect_output(call.id, &service.name);
        }
        self.write_call(call, prepared.params, prepared.input)
    }

    /// Counts a call that was written, or answers one that was refused.
    fn finish_call(&self, call: &OutgoingCall, sent: Result<(), RefusedCall>) {
        let Err((outcome, refusal)) = sent else {
            self.edge.metrics.dispatched.inc();
            call.span.note("sent");
            return;
        };
        // A caller that cancelled in the meantime already has its answer.
        if let Some(reply) = self.handle.retract_call(call.id) {
            // Whatever the outcome, the device did not receive the call.
            let answer = Answer::refused(outcome, &refusal).with_delivered(Delivered::No);
            self.edge.complete_call(&reply, answer);
        }
    }

    /// Appends the call's frame. Appends nothing if it is larger than the device accepts.
    fn write_call(
        &mut self,
        call: &OutgoingCall,
        params: &RawValue,
        input: Option<&RawValue>,
    ) -> Result<(), RefusedCall> {
        let (task, seq_format) = self.control_header();
        let limit = self.edge.config.device_max_frame_bytes as usize;
        let out = self.io.out();
        let before = out.len();
        let message = message::Call {
            call_id: call.id,
            method: &call.service,
            params,
            input,
        };
        buffers::with_payload(
            |payload| message.write(payload),
            |payload| frame::encode(out, Kind::Control, task, 0, seq_format, payload),
        );
        if out.len() - before > limit {
            out.truncate(before);
            let detail = format!("The call is too large: a frame has at most {limit} bytes.");
            return Err(refusal(Outcome::Overloaded, detail));
        }
        Ok(())
    }

    /// The task id and seq format of the device's own control frames; the edge uses the same.
    fn control_header(&self) -> (TaskId, SeqFormat) {
        (self.session.control_task(), self.session.seq_format())
    }

    /// Answers a message of the device (S 6.3): with an error, or with success.
    pub(super) fn send_result(&mut self, call_id: &str, error: Option<&str>) {
        let (task, seq_format) = self.control_header();
        let out = self.io.out();
        buffers::with_payload(
            |payload| message::write_result(payload, call_id, error),
            |payload| frame::encode(out, Kind::Control, task, 0, seq_format, payload),
        );
    }

    pub(super) fn forward_progress(&self, call_id: &str, raw: &RawValue) {
        self.edge.metrics.notes.inc(Note::Progress);
        self.forward_notification(NotificationKind::Progress, call_id, raw);
    }

    pub(super) fn forward_log(&self, call_id: Option<&str>, raw: &RawValue) {
        self.edge.metrics.notes.inc(Note::Log);
        if let Some(call_id) = call_id {
            self.forward_notification(NotificationKind::Log, call_id, raw);
        }
    }

    /// Sends a notification of the device to the caller. Drops it when no such call is in flight
    /// here, when the caller did not ask for notifications, or beyond the limits.
    fn forward_notification(&self, kind: NotificationKind, call_id: &str, raw: &RawValue) {
        let Ok(call) = call_id.parse::<CallId>() else {
            return;
        };
        let config = &self.edge.config;
        let rate = NotificationRate {
            burst: config.device_notice_burst,
            every_ms: config.device_notice_every_ms,
            now_ms: self.edge.now_ms(),
        };
        let limit = match self.handle.notification_receiver(call, rate) {
            Ok(reply) if raw.get().len() <= config.device_max_notice_bytes => {
                let data = Bytes::copy_from_slice(raw.get().as_bytes());
                return self.edge.bus.notify(&reply, Notification { kind, data });
            }
            Ok(_) => NotificationLimit::Bytes,
            Err(DropReason::RateLimited) => NotificationLimit::Rate,
            Err(DropReason::NoReceiver) => return,
        };
        self.edge.metrics.notifications_dropped.inc(limit);
    }
}

/// Checks the deadline and the service of a call, and finds its params and its input.
fn prepare_call<'a>(
    registration: Option<&'a CompiledServices>,
    call: &'a OutgoingCall,
    now: Instant,
) -> Result<PreparedCall<'a>, RefusedCall> {
    if call.deadline <= now {
        let detail = "The deadline passed before the call was sent to the device.";
        return Err(refusal(Outcome::TimedOut, detail));
    }
    let in_force = registration.map(|registration| registration.digest);
    if call
        .registration
        .is_some_and(|wanted| in_force != Some(wanted))
    {
        let detail = "The device has registered its services again since they were read for this call; read them again.";
        return Err(refusal(Outcome::UnknownService, detail));
    }
    let service = registration.and_then(|registration| registration.service(&call.service));
    let service = service.ok_or_else(|| {
        let detail = format!("The device has no service `{}`.", &*call.service);
        refusal(Outcome::UnknownService, detail)
    })?;
    let params = serde_json::from_slice(&call.params).map_err(|error| {
        let detail = format!("The params are not valid JSON: {error}.");
        refusal(Outcome::Invalid, detail)
    })?;
    let input = match &*call.input {
        [] => None,
        input => Some(serde_json::from_slice(input).map_err(|error| {
            let detail = format!("The input is not valid JSON: {error}.");
            refusal(Outcome::Invalid, detail)
        })?),
    };
    Ok(PreparedCall {
        service,
        params,
        input,
    })
}

fn refusal(outcome: Outcome, detail: impl Into<String>) -> RefusedCall {
    (
        outcome,
        Refusal {
            detail: detail.into(),
            errors: Vec::new(),
        },
    )
}

//! Results of calls: matched with the calls in flight, checked against the schema that the service
//! declares, and sent to the callers.
//!
//! Invariant: a result is delivered whatever its check finds. It is marked unless it is known to
//! match.
//! Invariant: a result that waits for its check is charged to its organisation. Without room it is not
//! checked.

use std::{future::poll_fn, time::Instant};

use bytes::Bytes;
use serde_json::value::RawValue;
use switchboard_bus::{Answer, ReplyTo};
use switchboard_protocol::{
    id::CallId, message::DeviceResult, outcome::Violation, schema::Deferred,
};
use switchboard_runtime::budget::Exhausted;
use tokio::io::{AsyncRead, AsyncWrite};
use tracing::debug;

use super::Connection;
use crate::{
    handle::{ExpectedOutput, UnmatchedResult, WaitingBytes},
    metrics::InvalidResult,
};

/// A result whose check is completed off the worker. Later messages of the device wait.
pub(super) struct UncheckedResult {
    call: CallId,
    reply: ReplyTo,
    deadline: Instant,
    answer: Answer,
    output: ExpectedOutput,
    left: Deferred,
    /// Of the answer.
    memory: WaitingBytes,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<'_, S> {
    /// Completes a call with the device's result, or returns what is left to check of it. The data
    /// of a failure is not checked: the schema describes what the service returns.
    ///
    /// Invariant: a device can complete only what is in flight on this connection (I5).
    pub(super) fn complete_call(&self, result: &DeviceResult<'_>) -> Option<Box<UncheckedResult>> {
        let call = result.call_id.parse::<CallId>();
        let call = call.map_err(|_| UnmatchedResult::Foreign);
        let found = call.and_then(|id| Ok((id, self.handle.complete_call(id)?)));
        let (id, call) = match found {
            Ok(found) => found,
            Err(unmatched) => {
                self.edge.metrics.unmatched_results.inc(unmatched);
                return None;
            }
        };
        let body = Bytes::copy_from_slice(result.raw.get().as_bytes());
        let mut answer = Answer::result(result.success, body);
        if let Some(output) = call.output.filter(|_| result.success)
            && let Some(service) = output.service()
        {
            match service.try_check_result(result.raw) {
                Ok(checked) => self.mark(id, &mut answer, Some(checked)),
                Err(left) => match self.charge_result(&answer) {
                    Ok(memory) => {
                        return Some(Box::new(UncheckedResult {
                            call: id,
                            reply: call.reply,
                            deadline: call.deadline,
                            answer,
                            output,
                            left,
                            memory,
                        }));
                    }
                    Err(_) => self.mark(id, &mut answer, None),
                },
            }
        }
        self.edge.complete_call(&call.reply, answer);
        None
    }

    /// Charges an answer that is going to wait.
    fn charge_result(&self, answer: &Answer) -> Result<WaitingBytes, Exhausted> {
        let mut memory = WaitingBytes::default();
        memory.set(answer.body.len(), &self.edge.messages, self.handle.owner())?;
        Ok(memory)
    }

    /// Completes the check of a result and sends it to the caller. It is sent unchecked when there
    /// is no time for the check, and when the connection is about to close.
    pub(super) async fn check_result(&mut self, unchecked: Box<UncheckedResult>) {
        let UncheckedResult {
            call,
            reply,
            deadline,
            mut answer,
            output,
            left,
            memory,
        } = *unchecked;
        self.write_ready().await;
        let body = answer.body.clone();
        let job = move || {
            // The check may outlast the wait for it.
            let _memory = memory;
            let result: &RawValue = serde_json::from_slice(&body).ok()?;
            Some(output.service()?.finish_result_check(result, left))
        };
        let checked = self.edge.schemas.check(self.handle.key.org, deadline, job);
        let closing = poll_fn(|cx| self.handle.poll_signal(cx, false));
        let checked = tokio::select! {
            biased;
            _ = closing => None,
            checked = checked => checked.ok().flatten().flatten(),
        };
        self.mark(call, &mut answer, checked);
        self.edge.complete_call(&reply, answer);
    }

    /// Marks a result that does not match, or that was not checked (`None`).
    fn mark(&self, call: CallId, answer: &mut Answer, checked: Option<Result<(), Vec<Violation>>>) {
        let (reason, violations) = match checked {
            Some(Ok(())) => return,
            Some(Err(violations)) => (InvalidResult::Mismatch, violations),
            None => (InvalidResult::Unchecked, Vec::new()),
        };
        answer.result_valid = false;
        self.edge.metrics.invalid_results.inc(reason);
        // The description of a violation quotes the data, which does not belong in a log.
        let pointer = violations.first().map(|violation| &*violation.pointer);
        let (device, org) = (&self.handle.key.device, self.handle.key.org);
        debug!(call.id = %call, device.id = %device, org.id = %org, reason = reason.as_str(),
            pointer, "result does not match the output schema of its service");
    }
}

//! The calls of one connection: queued, in flight, and recently completed.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use bytes::Bytes;
use switchboard_bus::{InboundCall, ReplyTo, ServerSpan, Text};
use switchboard_protocol::id::CallId;
use switchboard_runtime::label;

use super::{ConnectionHandle, Phase};
use crate::token_bucket::TokenBucket;

/// Completed calls that are kept to classify a result that matches no call in flight.
const MAX_COMPLETED: usize = 32;
const COMPLETED_TTL: Duration = Duration::from_secs(30);

/// A call taken from the queue, to be checked and written.
#[derive(Clone)]
pub(crate) struct OutgoingCall {
    pub(crate) id: CallId,
    pub(crate) service: Text,
    pub(crate) params: Bytes,
    /// The answers to what the device asked for before; empty when it asked for nothing.
    pub(crate) input: Bytes,
    pub(crate) deadline: Instant,
    pub(crate) span: ServerSpan,
}

/// A call that ends without a result of the device.
pub(crate) struct UnfinishedCall {
    pub(crate) reply: ReplyTo,
    /// It was taken from the queue, so the device may have received it.
    pub(crate) dispatched: bool,
}

/// Why a result matches no call in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UnmatchedResult {
    /// The device already sent a result for this call.
    Repeated,
    /// The call timed out or was cancelled first.
    Late,
    /// This connection has no such call, or had it too long ago.
    Foreign,
}

label!(UnmatchedResult {
    Repeated => "repeated",
    Late => "late",
    Foreign => "foreign",
});

/// Limits of progress and log messages about one call, and the current time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NotificationRate {
    pub(crate) burst: u32,
    pub(crate) every_ms: u32,
    /// On the edge's clock.
    pub(crate) now_ms: u64,
}

/// Why a notification about a call is not forwarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DropReason {
    /// No such call is in flight here, or its caller did not ask for notifications.
    NoReceiver,
    RateLimited,
}

/// Limits that a call must pass to be queued.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallLimits {
    pub(crate) max_queued: usize,
    pub(crate) max_queued_bytes: usize,
    /// Calls queued and in flight together.
    pub(crate) max_in_flight: usize,
}

/// Why a call was not queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EnqueueError {
    /// The connection no longer accepts calls.
    Closed,
    /// A limit is reached.
    Full,
    /// The connection has, or recently had, a call with this id.
    Repeated,
}

/// Calls that missed their deadline, and how many remain.
pub(crate) struct ExpiredCalls {
    pub(crate) calls: Vec<UnfinishedCall>,
    pub(crate) in_flight: usize,
    pub(crate) queued: usize,
}

/// The calls of one connection.
///
/// ```text
///  enqueue          dispatch              complete
/// ────────► queued ─────────► in flight ───────────► completed ──► forgotten after 30 s
///              │                   │
///              │ cancel, expire,   │ retract: the frame was not written
///              │ close             │ cancel, expire, close: result unknown
///              ▼                   ▼
///              └──► UnfinishedCall ◄┘
/// ```
///
/// Invariant: each call leaves the table exactly once (I1), and a connection receives a call id at
/// most once (I2). The collections are freed when they are empty, so an idle connection holds none.
#[derive(Default)]
pub(super) struct CallTable {
    queued: VecDeque<InboundCall>,
    queued_bytes: usize,
    in_flight: Vec<InFlightCall>,
    /// Oldest first.
    completed: VecDeque<CompletedCall>,
}

struct InFlightCall {
    id: CallId,
    deadline: Instant,
    reply: ReplyTo,
    /// Limits the device's notifications; created with the first one.
    notifications: Option<TokenBucket>,
}

struct CompletedCall {
    id: CallId,
    /// What a further result for this call is.
    next_result: UnmatchedResult,
    at: Instant,
}

/// Memory that a queued call holds.
fn payload_bytes(call: &InboundCall) -> usize {
    call.params.len() + call.input.len()
}

impl CallTable {
    pub(super) fn has_queued(&self) -> bool {
        !self.queued.is_empty()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queued.is_empty() && self.in_flight.is_empty()
    }

    fn len(&self) -> usize {
        self.queued.len() + self.in_flight.len()
    }

    fn contains(&self, id: CallId) -> bool {
        self.in_flight.iter().any(|call| call.id == id)
            || self.queued.iter().any(|call| call.id == id)
            || self.completed.iter().any(|call| call.id == id)
    }

    fn has_room(&self, call: &InboundCall, limits: CallLimits) -> bool {
        self.queued.len() < limits.max_queued
            && self.queued_bytes + payload_bytes(call) <= limits.max_queued_bytes
            && self.len() < limits.max_in_flight
    }

    fn enqueue(&mut self, call: InboundCall) {
        call.reply.span().note("queued");
        self.queued_bytes += payload_bytes(&call);
        self.queued.push_back(call);
    }

    /// Moves the next queued call in flight and returns what is to be written of it.
    pub(super) fn dispatch(&mut self) -> Option<OutgoingCall> {
        let call = self.queued.pop_front()?;
        self.queued_bytes -= payload_bytes(&call);
        let InboundCall {
            id,
            service,
            params,
            input,
            deadline,
            reply,
            ..
        } = call;
        let span = reply.span().clone();
        self.in_flight.push(InFlightCall {
            id,
            deadline,
            reply,
            notifications: None,
        });
        Some(OutgoingCall {
            id,
            service,
            params,
            input,
            deadline,
            span,
        })
    }

    fn notification_receiver(
        &mut self,
        id: CallId,
        rate: NotificationRate,
    ) -> Result<&ReplyTo, DropReason> {
        let mut receivers = self
            .in_flight
            .iter_mut()
            .filter(|call| call.reply.wants_notifications());
        let call = receivers
            .find(|call| call.id == id)
            .ok_or(DropReason::NoReceiver)?;
        let full = || TokenBucket::new(rate.burst, rate.now_ms);
        let bucket = call.notifications.get_or_insert_with(full);
        match bucket.take(rate.burst, rate.every_ms, rate.now_ms) {
            Ok(()) => Ok(&call.reply),
            Err(_) => Err(DropReason::RateLimited),
        }
    }

    fn shorten_deadline(&mut self, id: CallId, deadline: Instant) {
        if let Some(call) = self.in_flight.iter_mut().find(|call| call.id == id) {
            call.deadline = call.deadline.min(deadline);
        }
    }

    fn complete(&mut self, id: CallId) -> Result<ReplyTo, UnmatchedResult> {
        if let Some(reply) = self.take_in_flight(id) {
            self.record_completed(id, UnmatchedResult::Repeated);
            return Ok(reply);
        }
        let known = self.completed.iter().find(|call| call.id == id);
        Err(known.map_or(UnmatchedResult::Foreign, |call| call.next_result))
    }

    fn cancel(&mut self, id: CallId) -> Option<UnfinishedCall> {
        if let Some(at) = self.queued.iter().position(|call| call.id == id) {
            let call = self.queued.remove(at)?;
            self.queued_bytes -= payload_bytes(&call);
            return Some(UnfinishedCall::queued(call));
        }
        let reply = self.take_in_flight(id)?;
        self.record_completed(id, UnmatchedResult::Late);
        Some(UnfinishedCall::dispatched(reply))
    }

    fn expire(&mut self, now: Instant) -> Vec<UnfinishedCall> {
        let mut expired = Vec::new();
        while let Some(at) = self.in_flight.iter().position(|call| call.deadline <= now) {
            let call = self.in_flight.swap_remove(at);
            self.record_completed(call.id, UnmatchedResult::Late);
            expired.push(UnfinishedCall::dispatched(call.reply));
        }
        while let Some(at) = self.queued.iter().position(|call| call.deadline <= now) {
            let Some(call) = self.queued.remove(at) else {
                break;
            };
            self.queued_bytes -= payload_bytes(&call);
            expired.push(UnfinishedCall::queued(call));
        }
        expired
    }

    /// Forgets old completed calls and frees empty collections.
    fn shrink(&mut self, now: Instant) {
        let is_old = |call: &CompletedCall| now.saturating_duration_since(call.at) > COMPLETED_TTL;
        while self.completed.front().is_some_and(is_old) {
            self.completed.pop_front();
        }
        if self.completed.is_empty() {
            self.completed = VecDeque::new();
        }
        if self.in_flight.is_empty() {
            self.in_flight = Vec::new();
        }
        if self.queued.is_empty() {
            self.queued = VecDeque::new();
        }
    }

    fn close(&mut self) -> Vec<UnfinishedCall> {
        let closed = std::mem::take(self);
        let in_flight = closed.in_flight.into_iter();
        let queued = closed.queued.into_iter();
        in_flight
            .map(|call| UnfinishedCall::dispatched(call.reply))
            .chain(queued.map(UnfinishedCall::queued))
            .collect()
    }

    fn take_in_flight(&mut self, id: CallId) -> Option<ReplyTo> {
        let at = self.in_flight.iter().position(|call| call.id == id)?;
        Some(self.in_flight.swap_remove(at).reply)
    }

    fn record_completed(&mut self, id: CallId, next_result: UnmatchedResult) {
        if self.completed.len() >= MAX_COMPLETED {
            self.completed.pop_front();
        }
        self.completed.push_back(CompletedCall {
            id,
            next_result,
            at: Instant::now(),
        });
    }
}

impl UnfinishedCall {
    fn queued(call: InboundCall) -> Self {
        Self {
            reply: call.reply,
            dispatched: false,
        }
    }

    const fn dispatched(reply: ReplyTo) -> Self {
        Self {
            reply,
            dispatched: true,
        }
    }
}

/// Calls from the bus.
impl ConnectionHandle {
    /// Queues a call for the device.
    ///
    /// # Errors
    /// Where to reply and why the call was not queued.
    pub(crate) fn enqueue_call(
        &self,
        mut call: InboundCall,
        limits: CallLimits,
    ) -> Result<(), (ReplyTo, EnqueueError)> {
        let mut state = self.state.lock();
        if state.phase >= Phase::Finishing {
            return Err((call.reply, EnqueueError::Closed));
        }
        if state.calls.contains(call.id) {
            return Err((call.reply, EnqueueError::Repeated));
        }
        if !state.calls.has_room(&call, limits) {
            return Err((call.reply, EnqueueError::Full));
        }
        if self.is_stalled() {
            // The call will wait. A copy does not keep the whole received batch in memory.
            call.detach();
        }
        state.calls.enqueue(call);
        let waker = state.waker.take();
        drop(state);
        waker.into_iter().for_each(std::task::Waker::wake);
        Ok(())
    }

    /// Ends a call that its caller cancelled. The device is notified if it may have the call.
    pub(crate) fn cancel_call(&self, id: CallId) -> Option<UnfinishedCall> {
        self.change(|state| {
            let call = state.calls.cancel(id)?;
            if call.dispatched {
                state.cancels.push(id);
            }
            Some(call)
        })
    }

    /// Removes the calls whose deadline has passed and frees unused memory.
    pub(crate) fn expire_calls(&self, now: Instant) -> ExpiredCalls {
        let mut state = self.state.lock();
        let calls = state.calls.expire(now);
        state.calls.shrink(now);
        let (in_flight, queued) = (state.calls.in_flight.len(), state.calls.queued.len());
        let waker = if state.is_drained() {
            state.waker.take()
        } else {
            None
        };
        drop(state);
        waker.into_iter().for_each(std::task::Waker::wake);
        ExpiredCalls {
            calls,
            in_flight,
            queued,
        }
    }
}

/// Calls as the connection's own task sees them.
impl ConnectionHandle {
    /// Whether this call was dispatched and has not ended.
    pub(crate) fn is_in_flight(&self, id: CallId) -> bool {
        let state = self.state.lock();
        state.calls.in_flight.iter().any(|call| call.id == id)
    }

    /// Takes back a dispatched call that will not be written. Returns `None` when its caller has
    /// cancelled it in the meantime.
    pub(crate) fn retract_call(&self, id: CallId) -> Option<ReplyTo> {
        self.state.lock().calls.take_in_flight(id)
    }

    /// Brings the deadline of a call in flight forward.
    pub(crate) fn shorten_deadline(&self, id: CallId, deadline: Instant) {
        self.state.lock().calls.shorten_deadline(id, deadline);
    }

    /// The device sent the call's result. Returns where to reply.
    ///
    /// # Errors
    /// Why the result matches no call in flight.
    pub(crate) fn complete_call(&self, id: CallId) -> Result<ReplyTo, UnmatchedResult> {
        self.state.lock().calls.complete(id)
    }

    /// Where to send a notification of the device about this call.
    ///
    /// # Errors
    /// Why the notification is dropped.
    pub(crate) fn notification_receiver(
        &self,
        id: CallId,
        rate: NotificationRate,
    ) -> Result<ReplyTo, DropReason> {
        self.state
            .lock()
            .calls
            .notification_receiver(id, rate)
            .cloned()
    }

    /// Calls queued and in flight.
    pub(crate) fn open_calls(&self) -> usize {
        self.state.lock().calls.len()
    }

    /// Accepts nothing from here on. The caller ends the calls that are returned.
    pub(crate) fn close_calls(&self) -> Vec<UnfinishedCall> {
        let mut state = self.state.lock();
        state.phase = Phase::Closed;
        state.waker = None;
        state.calls.close()
    }
}

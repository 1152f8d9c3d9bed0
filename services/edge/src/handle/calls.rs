//! The calls of one connection: queued, in flight, and recently completed.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use switchboard_bus::{InboundCall, ReplyTo, ServerSpan, Text};
use switchboard_protocol::{
    id::CallId,
    schema::{Digest, Service},
};
use switchboard_runtime::{
    budget::{Budget, Exhausted, Owner, Permit},
    label,
};

use super::{Command, ConnectionHandle, Phase, State, waiting::FREE_BYTES};
use crate::{schemas::CompiledServices, token_bucket::TokenBucket};

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
    /// The registration that must be in force; `None` for any.
    pub(crate) registration: Option<Digest>,
    pub(crate) deadline: Instant,
    pub(crate) span: ServerSpan,
}

/// A call whose result has arrived.
pub(crate) struct CompletedCall {
    pub(crate) reply: ReplyTo,
    pub(crate) deadline: Instant,
    /// Present if the service declares a schema of its results.
    pub(crate) output: Option<ExpectedOutput>,
}

/// What the result of a call is checked against: the services in force when the call was written.
#[derive(Clone)]
pub(crate) struct ExpectedOutput {
    services: Arc<CompiledServices>,
    name: Box<str>,
}

impl ExpectedOutput {
    pub(crate) fn service(&self) -> Option<&Service> {
        self.services.service(&self.name)
    }
}

/// A call that ends without a result of the device.
pub(crate) struct UnfinishedCall {
    pub(crate) reply: ReplyTo,
    /// It was written to the socket, so the device may have received it.
    pub(crate) written: bool,
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
    /// The memory of all connections has no room for it.
    Exhausted(Exhausted),
    /// The connection has, or recently had, a call with this id.
    Repeated,
}

/// Calls that missed their deadline, and how many remain.
#[derive(Default)]
pub(crate) struct ExpiredCalls {
    pub(crate) calls: Vec<UnfinishedCall>,
    pub(crate) in_flight: usize,
    pub(crate) queued: usize,
}

/// The calls of one connection.
///
/// ```text
///  enqueue          dispatch              complete
/// ────────► queued ─────────► in flight ───────────► completed ──► forgotten after 30 s without others
///              │                   │
///              │ cancel, expire,   │ retract: the frame was not written
///              │ close, take       │ cancel, expire, close: result unknown
///              ▼                   ▼
///              └──► UnfinishedCall ◄┘
/// ```
///
/// A call in flight counts as written, except while the check of its params is deferred
/// (`defer_write`, `resume_write`): until then it ends like a queued one.
///
/// Invariant: each call leaves the table exactly once (I1), and a connection receives a call id at
/// most once (I2). A sweep frees a table without calls, so an idle connection has none.
#[derive(Default)]
pub(super) struct CallTable {
    queued: VecDeque<QueuedCall>,
    queued_bytes: usize,
    in_flight: Vec<InFlightCall>,
    /// Oldest first. Compact, because each new call is compared with all of them.
    completed: VecDeque<PastCall>,
    /// When a sweep found that calls had completed since the one before.
    last_completed: Option<Instant>,
    has_completed: bool,
    /// Calls whose CANCEL is to be sent.
    cancels: Vec<CallId>,
}

struct QueuedCall {
    call: InboundCall,
    /// Absent if the call is small and the only one.
    _permit: Option<Permit>,
}

struct InFlightCall {
    id: CallId,
    deadline: Instant,
    reply: ReplyTo,
    /// Its frame is written, or will be before the connection's task waits.
    written: bool,
    /// Limits the device's notifications.
    notifications: TokenBucket,
    /// Only of a service that declares a schema of its results.
    output: Option<ExpectedOutput>,
}

struct PastCall {
    id: CallId,
    /// What a further result for this call is.
    next_result: UnmatchedResult,
}

/// Memory that a queued call holds.
fn payload_bytes(call: &InboundCall) -> usize {
    call.params.len() + call.input.len()
}

impl CallTable {
    fn len(&self) -> usize {
        self.queued.len() + self.in_flight.len()
    }

    fn contains(&self, id: CallId) -> bool {
        self.in_flight.iter().any(|call| call.id == id)
            || self.queued.iter().any(|queued| queued.call.id == id)
            || self.completed.iter().any(|call| call.id == id)
    }

    fn has_room(&self, call: &InboundCall, limits: CallLimits) -> bool {
        self.queued.len() < limits.max_queued
            && self.queued_bytes + payload_bytes(call) <= limits.max_queued_bytes
            && self.len() < limits.max_in_flight
    }

    /// Acquires the memory of a call that is to be queued.
    fn charge(
        &self,
        call: &InboundCall,
        budget: &Budget,
        owner: Owner,
    ) -> Result<Option<Permit>, Exhausted> {
        let bytes = payload_bytes(call);
        if bytes <= FREE_BYTES && self.queued.is_empty() {
            return Ok(None);
        }
        budget.try_acquire(owner, bytes).map(Some)
    }

    fn enqueue(&mut self, call: InboundCall, permit: Option<Permit>) {
        call.reply.span().note("queued");
        self.queued_bytes += payload_bytes(&call);
        let _permit = permit;
        self.queued.push_back(QueuedCall { call, _permit });
    }

    /// Moves the next queued call in flight and returns what is to be written of it.
    fn dispatch(&mut self) -> Option<OutgoingCall> {
        let QueuedCall { call, .. } = self.queued.pop_front()?;
        self.queued_bytes -= payload_bytes(&call);
        let InboundCall {
            id,
            service,
            params,
            input,
            registration,
            deadline,
            reply,
            ..
        } = call;
        let span = reply.span().clone();
        self.in_flight.push(InFlightCall {
            id,
            deadline,
            reply,
            written: true,
            notifications: TokenBucket::default(),
            output: None,
        });
        Some(OutgoingCall {
            id,
            service,
            params,
            input,
            registration,
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
        let bucket = &mut call.notifications;
        match bucket.take(rate.burst, rate.every_ms, rate.now_ms) {
            Ok(()) => Ok(&call.reply),
            Err(_) => Err(DropReason::RateLimited),
        }
    }

    /// Sets whether a call in flight counts as written. Returns false if there is no such call.
    fn set_written(&mut self, id: CallId, written: bool) -> bool {
        let call = self.find_in_flight(id);
        call.map(|call| call.written = written).is_some()
    }

    fn shorten_deadline(&mut self, id: CallId, deadline: Instant) {
        if let Some(call) = self.find_in_flight(id) {
            call.deadline = call.deadline.min(deadline);
        }
    }

    fn complete(&mut self, id: CallId) -> Result<CompletedCall, UnmatchedResult> {
        if let Some(call) = self.take_in_flight(id) {
            self.record_completed(id, UnmatchedResult::Repeated);
            return Ok(CompletedCall {
                reply: call.reply,
                deadline: call.deadline,
                output: call.output,
            });
        }
        let known = self.completed.iter().find(|call| call.id == id);
        Err(known.map_or(UnmatchedResult::Foreign, |call| call.next_result))
    }

    fn cancel(&mut self, id: CallId) -> Option<UnfinishedCall> {
        let mut queued = self.queued.iter();
        if let Some(at) = queued.position(|queued| queued.call.id == id) {
            let QueuedCall { call, .. } = self.queued.remove(at)?;
            self.queued_bytes -= payload_bytes(&call);
            return Some(UnfinishedCall::queued(call));
        }
        let call = self.take_in_flight(id)?;
        Some(self.abandon(call))
    }

    fn expire(&mut self, now: Instant) -> Vec<UnfinishedCall> {
        let mut expired = Vec::new();
        while let Some(at) = self.in_flight.iter().position(|call| call.deadline <= now) {
            let call = self.in_flight.swap_remove(at);
            expired.push(self.abandon(call));
        }
        let is_due = |queued: &QueuedCall| queued.call.deadline <= now;
        while let Some(at) = self.queued.iter().position(is_due) {
            let Some(QueuedCall { call, .. }) = self.queued.remove(at) else {
                break;
            };
            self.queued_bytes -= payload_bytes(&call);
            expired.push(UnfinishedCall::queued(call));
        }
        expired
    }

    /// Forgets old completed calls. Returns whether nothing is left.
    fn forget_completed(&mut self, now: Instant) -> bool {
        if std::mem::take(&mut self.has_completed) {
            self.last_completed = Some(now);
        }
        let is_old = |at| now.saturating_duration_since(at) > COMPLETED_TTL;
        if self.last_completed.is_none_or(is_old) {
            self.completed.clear();
        }
        self.completed.is_empty() && self.len() == 0 && self.cancels.is_empty()
    }

    /// Removes the calls that the device did not receive.
    pub(super) fn take_unwritten(&mut self) -> Vec<ReplyTo> {
        self.queued_bytes = 0;
        let queued = std::mem::take(&mut self.queued).into_iter();
        let unwritten = self.in_flight.extract_if(.., |call| !call.written);
        let unwritten = unwritten.map(|call| call.reply);
        unwritten
            .chain(queued.map(|queued| queued.call.reply))
            .collect()
    }

    fn close(self) -> Vec<UnfinishedCall> {
        let in_flight = self.in_flight.into_iter();
        let queued = self.queued.into_iter();
        in_flight
            .map(UnfinishedCall::in_flight)
            .chain(queued.map(|queued| UnfinishedCall::queued(queued.call)))
            .collect()
    }

    /// Ends a call that left the table without a result.
    fn abandon(&mut self, call: InFlightCall) -> UnfinishedCall {
        if call.written {
            self.record_completed(call.id, UnmatchedResult::Late);
        }
        UnfinishedCall::in_flight(call)
    }

    fn find_in_flight(&mut self, id: CallId) -> Option<&mut InFlightCall> {
        self.in_flight.iter_mut().find(|call| call.id == id)
    }

    fn take_in_flight(&mut self, id: CallId) -> Option<InFlightCall> {
        let at = self.in_flight.iter().position(|call| call.id == id)?;
        Some(self.in_flight.swap_remove(at))
    }

    fn record_completed(&mut self, id: CallId, next_result: UnmatchedResult) {
        if self.completed.len() >= MAX_COMPLETED {
            self.completed.pop_front();
        }
        self.completed.push_back(PastCall { id, next_result });
        self.has_completed = true;
    }
}

impl UnfinishedCall {
    fn queued(call: InboundCall) -> Self {
        Self {
            reply: call.reply,
            written: false,
        }
    }

    fn in_flight(call: InFlightCall) -> Self {
        Self {
            reply: call.reply,
            written: call.written,
        }
    }
}

impl State {
    pub(super) fn has_sendable_calls(&self) -> bool {
        let calls = self.calls.as_ref();
        self.registration.is_some() && calls.is_some_and(|calls| !calls.queued.is_empty())
    }

    pub(super) fn has_cancels(&self) -> bool {
        let calls = self.calls.as_ref();
        calls.is_some_and(|calls| !calls.cancels.is_empty())
    }

    pub(super) fn has_no_calls(&self) -> bool {
        self.calls.as_ref().is_none_or(|calls| calls.len() == 0)
    }

    pub(super) fn next_call_command(&mut self) -> Option<Command> {
        let can_send = self.registration.is_some();
        let calls = self.calls.as_mut()?;
        if let Some(id) = calls.cancels.pop() {
            return Some(Command::Cancel(id));
        }
        if !can_send {
            return None;
        }
        calls.dispatch().map(Command::Call)
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
        messages: &Budget,
    ) -> Result<(), (ReplyTo, EnqueueError)> {
        let mut state = self.state.lock();
        if state.phase >= Phase::Finishing {
            return Err((call.reply, EnqueueError::Closed));
        }
        let will_wait = self.is_stalled() || state.registration.is_none();
        let calls = state.calls.get_or_insert_default();
        if calls.contains(call.id) {
            return Err((call.reply, EnqueueError::Repeated));
        }
        if !calls.has_room(&call, limits) {
            return Err((call.reply, EnqueueError::Full));
        }
        let permit = match calls.charge(&call, messages, self.owner()) {
            Ok(permit) => permit,
            Err(exhausted) => return Err((call.reply, EnqueueError::Exhausted(exhausted))),
        };
        if will_wait {
            // A copy does not keep the whole received batch in memory.
            call.detach();
        }
        calls.enqueue(call, permit);
        let waker = state.waker.take();
        drop(state);
        waker.into_iter().for_each(std::task::Waker::wake);
        Ok(())
    }

    /// Ends a call that its caller cancelled. The device is notified if it may have the call.
    pub(crate) fn cancel_call(&self, id: CallId) -> Option<UnfinishedCall> {
        self.change(|state| {
            let calls = state.calls.as_mut()?;
            let call = calls.cancel(id)?;
            if call.written {
                calls.cancels.push(id);
            }
            Some(call)
        })
    }

    /// Removes the calls whose deadline has passed and frees unused memory.
    pub(crate) fn expire_calls(&self, now: Instant) -> ExpiredCalls {
        let mut state = self.state.lock();
        let mut expired = ExpiredCalls::default();
        if let Some(calls) = &mut state.calls {
            expired.calls = calls.expire(now);
            (expired.in_flight, expired.queued) = (calls.in_flight.len(), calls.queued.len());
        }
        state.calls.take_if(|calls| calls.forget_completed(now));
        let waker = if state.is_drained() {
            state.waker.take()
        } else {
            None
        };
        drop(state);
        waker.into_iter().for_each(std::task::Waker::wake);
        expired
    }
}

/// Calls as the connection's own task sees them.
impl ConnectionHandle {
    /// A dispatched call will be written later, by [`Self::resume_write`]. Until then it ends as
    /// not delivered.
    pub(crate) fn defer_write(&self, id: CallId) {
        self.edit_calls(|calls| calls.set_written(id, false));
    }

    /// A deferred call is about to be written. Returns false if it has ended in the meantime.
    pub(crate) fn resume_write(&self, id: CallId) -> bool {
        self.edit_calls(|calls| calls.set_written(id, true))
            .unwrap_or(false)
    }

    /// Takes back a dispatched call that will not be written. Returns `None` when its caller has
    /// cancelled it in the meantime.
    pub(crate) fn retract_call(&self, id: CallId) -> Option<ReplyTo> {
        let call = self.edit_calls(|calls| calls.take_in_flight(id)).flatten();
        call.map(|call| call.reply)
    }

    /// Brings the deadline of a call in flight forward.
    pub(crate) fn shorten_deadline(&self, id: CallId, deadline: Instant) {
        self.edit_calls(|calls| calls.shorten_deadline(id, deadline));
    }

    /// The result of a call that is about to be written is to be checked against the services in
    /// force.
    pub(crate) fn expect_output(&self, id: CallId, service: &str) {
        let mut state = self.state.lock();
        let Some(services) = state.registration.clone() else {
            return;
        };
        let calls = state.calls.as_mut();
        let in_flight = calls.and_then(|calls| calls.find_in_flight(id));
        if let Some(call) = in_flight {
            let name = service.into();
            call.output = Some(ExpectedOutput { services, name });
        }
    }

    /// The device sent the call's result. Returns where to reply.
    ///
    /// # Errors
    /// Why the result matches no call in flight.
    pub(crate) fn complete_call(&self, id: CallId) -> Result<CompletedCall, UnmatchedResult> {
        self.edit_calls(|calls| calls.complete(id))
            .unwrap_or(Err(UnmatchedResult::Foreign))
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
        self.edit_calls(|calls| calls.notification_receiver(id, rate).cloned())
            .unwrap_or(Err(DropReason::NoReceiver))
    }

    /// Calls queued and in flight.
    pub(crate) fn open_calls(&self) -> usize {
        self.edit_calls(|calls| calls.len()).unwrap_or(0)
    }

    /// Accepts nothing from here on. The caller ends the calls that are returned.
    pub(crate) fn close_calls(&self) -> Vec<UnfinishedCall> {
        let mut state = self.state.lock();
        state.phase = Phase::Closed;
        state.waker = None;
        let calls = state.calls.take();
        calls.map_or_else(Vec::new, |calls| calls.close())
    }

    fn edit_calls<T>(&self, edit: impl FnOnce(&mut CallTable) -> T) -> Option<T> {
        self.state.lock().calls.as_deref_mut().map(edit)
    }
}

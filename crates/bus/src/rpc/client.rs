//! A call from the caller's side: find the device, send the call to its node, wait for the answer.

use std::time::Duration;

use switchboard_protocol::{
    id::{CallId, DeviceKey},
    outcome::Outcome,
};
use switchboard_runtime::trace::{TraceContext, add_event};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tracing::{Instrument as _, Span};

use super::{
    call::{Answer, Call, CancelKey},
    handler::{InboundCall, ReplyTo},
    pending::CallEnd,
};
use crate::{
    backend::Presence,
    bus::{Bus, Node},
    error::BusError,
    node::{DEADLINES, PINNED_CALLS},
    trace::{ClientSpan, ServerSpan, SpanFields},
    transport::{CallMessage, Message, Text},
};

/// How often a call is sent to another node because the directory entry was stale.
const MAX_ATTEMPTS: usize = 4;
/// Before a call is sent again to a connection that was just entered, and cannot be called yet.
const RETRY_DELAY: Duration = Duration::from_millis(20);
/// How often the directory is read for a device that is moving. The interval doubles each time.
const MIN_MOVING_POLL_INTERVAL: Duration = Duration::from_millis(25);
const MAX_MOVING_POLL_INTERVAL: Duration = Duration::from_millis(200);
/// The longest name that a service may have in a registration.
const MAX_SERVICE_BYTES: usize = 128;

/// Invariant: a call that may have reached a device is not sent again.
impl Bus {
    /// Calls a service of a device, and waits for the answer until the call's timeout. Dropping
    /// the future cancels the call.
    ///
    /// # Errors
    /// The call was not accepted and never reaches a device: the bus is not reachable, or too
    /// much waits to be sent.
    pub async fn call(&self, call: Call) -> Result<Answer, BusError> {
        if call.service.len() > MAX_SERVICE_BYTES {
            return Ok(Answer::ended(
                Outcome::UnknownService,
                format!("a service's name has at most {MAX_SERVICE_BYTES} bytes"),
            ));
        }
        let client_span = ClientSpan::begin(&call);
        let span = &client_span.span;
        let result = self.try_call(call, span).instrument(span.clone()).await;
        client_span.end(&result);
        result
    }

    async fn try_call(&self, call: Call, span: &Span) -> Result<Answer, BusError> {
        let node = &*self.0;
        let deadline = Instant::now() + call.timeout;
        let mut stale = None;
        for _ in 0..MAX_ATTEMPTS {
            let found = node.locate_moving(&call, stale.as_ref(), deadline).await?;
            let Some(presence) = found else { break };
            add_event(span, "found");
            if presence.node != node.id {
                node.await_clock(&call, deadline).await?;
            }
            match node.attempt(&call, &presence, span, deadline).await? {
                CallEnd::Answered(answer) => return Ok(answer),
                CallEnd::NotConnected => {
                    node.presence_cache.remove(&call.device);
                    stale = Some(presence);
                }
                CallEnd::NotSent => return Err(BusError::Unavailable),
                CallEnd::Lost(reason) => return Ok(Answer::ended(Outcome::Lost, reason)),
                CallEnd::Cancelled => {
                    node.send_cancel(&call.device, call.id, &presence);
                    let detail = "the caller cancelled the call";
                    return Ok(Answer::ended(Outcome::Cancelled, detail));
                }
            }
        }
        Ok(Answer::ended(
            Outcome::Offline,
            "the device has no live connection; it may come back",
        ))
    }

    /// Cancels a call of any node: the call ends as `cancelled`, and the device is notified. Does
    /// nothing when no call with this key is pending.
    ///
    /// # Errors
    /// When it is not a call of this node, and the bus is not reachable.
    pub async fn cancel_call(&self, cancel_key: CancelKey) -> Result<(), BusError> {
        let node = &*self.0;
        if node.pending.cancel(cancel_key) {
            return Ok(());
        }
        // It is not stored where a call is pending, so all nodes receive the request.
        let cancel = Message::CancelByKey { cancel_key };
        node.broadcast(&cancel).await
    }
}

impl Node {
    /// The device's entry: from the cache, or from the directory when the cache has none or its
    /// entry was stale.
    async fn locate(
        &self,
        call: &Call,
        stale: Option<&Presence>,
        deadline: Instant,
    ) -> Result<Option<Presence>, BusError> {
        if stale.is_none()
            && let Some(presence) = self.presence_cache.get(&call.device)
        {
            return Ok(Some(presence));
        }
        let left = deadline.saturating_duration_since(Instant::now());
        let find = self
            .backend
            .find(call.device.org, std::slice::from_ref(&call.device.device));
        let found = timeout(left, find)
            .await
            .map_err(|_| BusError::Timeout(call.timeout))??;
        let found = found.into_iter().next().flatten();
        if let Some(presence) = &found {
            if stale == Some(presence) {
                sleep(RETRY_DELAY.min(left)).await;
            }
            self.presence_cache
                .insert(call.device.clone(), presence.clone());
        }
        Ok(found)
    }

    /// Like [`Self::locate`]. If the device was asked to connect to another node, waits for that.
    async fn locate_moving(
        &self,
        call: &Call,
        stale: Option<&Presence>,
        deadline: Instant,
    ) -> Result<Option<Presence>, BusError> {
        let left = || deadline.saturating_duration_since(Instant::now());
        let mut poll_interval = MIN_MOVING_POLL_INTERVAL;
        loop {
            let found = self.locate(call, stale, deadline).await?;
            if found.is_some() || left().is_zero() {
                return Ok(found);
            }
            let is_moving = timeout(left(), self.backend.is_moving(&call.device)).await;
            if !is_moving.map_err(|_| BusError::Timeout(call.timeout))?? {
                return Ok(None);
            }
            sleep(poll_interval.min(left())).await;
            poll_interval = (poll_interval * 2).min(MAX_MOVING_POLL_INTERVAL);
        }
    }

    /// Waits until the deadline of the call can be sent along, while the bus is reachable.
    async fn await_clock(&self, call: &Call, deadline: Instant) -> Result<(), BusError> {
        if self.lease.knows_clock() {
            return Ok(());
        }
        if self.backend.status().disconnected_for.is_some() {
            return Err(BusError::Unavailable);
        }
        let known = timeout_at(deadline, self.lease.clock_known()).await;
        known.map_err(|_| BusError::Timeout(call.timeout))
    }

    /// Sends the call to the node of this entry, and waits for its end.
    async fn attempt(
        &self,
        call: &Call,
        presence: &Presence,
        span: &Span,
        deadline: Instant,
    ) -> Result<CallEnd, BusError> {
        let generation = self.backend.status().generation;
        let (token, ended) = self.pending.insert(
            presence.node.clone(),
            call.notifications.clone(),
            call.cancel_key,
        );
        let _guard = CancelGuard {
            node: self,
            device: &call.device,
            call: call.id,
            presence,
            token,
        };
        if let Err(error) = self.send_call(call, presence, token, deadline) {
            self.pending.remove(token);
            return Err(error);
        }
        add_event(span, "published");
        Ok(match timeout_at(deadline, ended).await {
            Ok(Ok(end)) => end,
            Ok(Err(_)) => CallEnd::Lost("the caller's node dropped the call"),
            Err(_) => CallEnd::Answered(self.timed_out(call, presence, generation)),
        })
    }

    /// The answer at the deadline: the device timed out, unless the bus was interrupted since.
    fn timed_out(&self, call: &Call, presence: &Presence, generation: u64) -> Answer {
        // Its node may stand still; the next call reads the directory.
        self.presence_cache.remove(&call.device);
        let status = self.backend.status();
        let uninterrupted = status.disconnected_for.is_none() && status.generation == generation;
        if uninterrupted || presence.node == self.id {
            let waited_ms = call.timeout.as_millis();
            let detail = format!("the device did not answer within {waited_ms} ms");
            Answer::ended(Outcome::TimedOut, detail)
        } else {
            Answer::ended(Outcome::Lost, "the bus failed while the device was working")
        }
    }

    /// Ends a call for one registration to a node that cannot check it.
    fn refuse_pinned(&self, token: u64) {
        let detail = "the device's node runs an earlier release, which cannot check that the services are those \
                      that were approved; nothing was sent";
        let answer = Answer::ended(Outcome::Offline, detail);
        self.pending.complete(token, CallEnd::Answered(answer));
    }

    /// Passes the call to this node's own connections, or sends it to another node.
    fn send_call(
        &self,
        call: &Call,
        presence: &Presence,
        token: u64,
        deadline: Instant,
    ) -> Result<(), BusError> {
        let device = Text::from(call.device.device.as_str());
        let service = Text::from(&*call.service);
        if presence.node == self.id {
            let Some(owner) = self.owner() else {
                self.pending.complete(token, CallEnd::NotConnected);
                return Ok(());
            };
            let fields = SpanFields {
                id: call.id,
                org: call.device.org,
                device: &device,
                service: &service,
                node: &self.id,
            };
            let reply = ReplyTo {
                node: self.id.clone(),
                org: call.device.org,
                token,
                wants_notifications: call.notifications.is_some(),
                span: ServerSpan::begin(TraceContext::current().as_ref(), &fields),
            };
            let call = InboundCall {
                org: call.device.org,
                device,
                epoch: presence.epoch,
                id: call.id,
                service,
                params: call.params.clone(),
                input: call.input.clone(),
                registration: call.registration,
                deadline: deadline.into_std(),
                reply,
            };
            self.deliver_call(&*owner, call, Instant::now());
            return Ok(());
        }
        if self.backend.status().disconnected_for.is_some() {
            return Err(BusError::Unavailable);
        }
        let deadline_ms = (presence.node.message_level() >= DEADLINES)
            .then(|| self.lease.shared_ms(deadline))
            .flatten();
        if call.registration.is_some() {
            if presence.node.message_level() < PINNED_CALLS {
                self.refuse_pinned(token);
                return Ok(());
            }
            // The clock was known a moment ago; without a deadline the message has no place for the digest.
            if deadline_ms.is_none() {
                return Err(BusError::Unavailable);
            }
        }
        let left = deadline.saturating_duration_since(Instant::now());
        let message = Message::Call(CallMessage {
            token,
            id: call.id,
            org: call.device.org,
            epoch: presence.epoch,
            timeout_ms: u64::try_from(left.as_millis()).unwrap_or(u64::MAX),
            deadline_ms,
            registration: call.registration,
            wants_notifications: call.notifications.is_some(),
            trace: TraceContext::current().map(Box::new),
            device,
            service,
            input: call.input.clone(),
            params: call.params.clone(),
        });
        let org = call.device.org;
        self.outbox.send_of(org, &presence.node, &message)
    }

    /// Notifies the device's node that the caller no longer waits for this call.
    fn send_cancel(&self, device: &DeviceKey, call: CallId, presence: &Presence) {
        let org = device.org;
        if presence.node == self.id {
            if let Some(owner) = self.owner() {
                owner.cancel(org, device.device.as_str(), call);
            }
            return;
        }
        let device = device.device.as_str().into();
        let cancel = Message::Cancel { org, device, call };
        self.outbox.send_or_drop(&presence.node, &cancel);
    }
}

/// Cancels a call that is dropped before its end: at the deadline, or by the caller.
struct CancelGuard<'a> {
    node: &'a Node,
    device: &'a DeviceKey,
    call: CallId,
    presence: &'a Presence,
    token: u64,
}

impl Drop for CancelGuard<'_> {
    fn drop(&mut self) {
        if !self.node.pending.remove(self.token) {
            return;
        }
        self.node.send_cancel(self.device, self.call, self.presence);
    }
}

//! A call from its caller's side: find the device, hand the call over, wait for its one end.
//! Never: a second hand-over of a call that may have reached a device.

use std::time::{Duration, Instant};

use switchboard_protocol::{
    id::{CallId, DeviceKey},
    outcome::Outcome,
};
use switchboard_runtime::trace::{TraceContext, note};
use tokio::time::timeout;
use tracing::{Instrument as _, Span};

use crate::{
    backend::Presence,
    bus::{Bus, Node},
    call::{Answer, Call, Handle},
    envelope::{CallEnvelope, Envelope},
    error::BusError,
    host::{InboundCall, ReplyTo},
    pending::Verdict,
    text::Text,
    trace::{Calling, Handled, Handling},
};

/// How often a call is directed anew because the device was not where the directory said.
const MAX_DIRECTIONS: usize = 4;
/// A device that is just connecting stands in the directory a moment before it can be called.
const REDIRECT_PAUSE: Duration = Duration::from_millis(20);
/// No service has a longer name; see the schema gate's limits.
const MAX_SERVICE_BYTES: usize = 128;

impl Bus {
    /// Calls a service of a device and waits for exactly one answer, at the latest at the
    /// call's timeout. Dropping the future cancels the call.
    ///
    /// # Errors
    /// The call was not accepted and never reaches a device: the bus is away, or too much
    /// waits to be sent.
    pub async fn call(&self, call: Call) -> Result<Answer, BusError> {
        if call.service.len() > MAX_SERVICE_BYTES {
            return Ok(Answer::ended(
                Outcome::UnknownService,
                "no service has so long a name",
            ));
        }
        let calling = Calling::begin(&call);
        let span = &calling.span;
        let ended = self.make(call, span).instrument(span.clone()).await;
        calling.end(&ended);
        ended
    }

    async fn make(&self, call: Call, span: &Span) -> Result<Answer, BusError> {
        let node = &*self.0;
        let deadline = Instant::now() + call.timeout;
        let mut doubted = None;
        for _ in 0..MAX_DIRECTIONS {
            let Some(presence) = node.direct(&call, doubted.as_ref(), deadline).await? else {
                break;
            };
            note(span, "found");
            match node.hand_over(&call, &presence, span, deadline).await? {
                Verdict::Answered(answer) => return Ok(answer),
                Verdict::NotThere => {
                    node.remembered.remove(&call.device);
                    doubted = Some(presence);
                }
                Verdict::Unsent => return Err(BusError::Unavailable),
                Verdict::Lost(why) => return Ok(Answer::ended(Outcome::Lost, why)),
                Verdict::Withdrawn => {
                    node.give_up(&call.device, call.id, &presence);
                    let detail = "the caller took the call back";
                    return Ok(Answer::ended(Outcome::Cancelled, detail));
                }
            }
        }
        Ok(Answer::ended(
            Outcome::Offline,
            "the device has no live connection; it may come back",
        ))
    }
}

impl Bus {
    /// Takes a call back, whichever node it was made on: whoever waits for it is answered
    /// `cancelled`, and the device is told. Means nothing when no call of this name waits.
    ///
    /// # Errors
    /// When it is not a call of this node, and the bus does not answer.
    pub async fn withdraw(&self, handle: Handle) -> Result<(), BusError> {
        let node = &*self.0;
        if node.pending.withdraw(handle) {
            return Ok(());
        }
        // Where it waits is in no record: every node is asked, and one of them knows.
        let withdraw = node.pack(&Envelope::Withdraw { handle });
        node.backend.broadcast(withdraw).await
    }
}

impl Node {
    /// Where the device is: from memory, or asked when memory has nothing or was wrong.
    async fn direct(
        &self,
        call: &Call,
        doubted: Option<&Presence>,
        deadline: Instant,
    ) -> Result<Option<Presence>, BusError> {
        if doubted.is_none()
            && let Some(presence) = self.remembered.get(&call.device)
        {
            return Ok(Some(presence));
        }
        let left = deadline.saturating_duration_since(Instant::now());
        let asked = self
            .backend
            .find(call.device.org, std::slice::from_ref(&call.device.device));
        let found = timeout(left, asked)
            .await
            .map_err(|_| BusError::Timeout(call.timeout))??;
        let found = found.into_iter().next().flatten();
        if let Some(presence) = &found {
            if doubted == Some(presence) {
                tokio::time::sleep(REDIRECT_PAUSE.min(left)).await;
            }
            self.remembered
                .insert(call.device.clone(), presence.clone());
        }
        Ok(found)
    }

    async fn hand_over(
        &self,
        call: &Call,
        presence: &Presence,
        span: &Span,
        deadline: Instant,
    ) -> Result<Verdict, BusError> {
        let generation = self.backend.condition().generation;
        let (token, wait) =
            self.pending
                .insert(presence.node.clone(), call.notices.clone(), call.handle);
        let _waiting = Waiting {
            node: self,
            device: &call.device,
            call: call.id,
            presence,
            token,
        };
        if let Err(error) = self.dispatch(call, presence, token, deadline) {
            self.pending.forget(token);
            return Err(error);
        }
        note(span, "published");
        let left = deadline.saturating_duration_since(Instant::now());
        Ok(match timeout(left, wait).await {
            Ok(Ok(verdict)) => verdict,
            Ok(Err(_)) => Verdict::Lost("the caller's node dropped the call"),
            Err(_) => Verdict::Answered(self.out_of_time(call, presence, generation)),
        })
    }

    /// Silence until the deadline: the device's, unless the bus was disturbed meanwhile.
    fn out_of_time(&self, call: &Call, presence: &Presence, generation: u64) -> Answer {
        let condition = self.backend.condition();
        let undisturbed = condition.deaf_for.is_none() && condition.generation == generation;
        if undisturbed || presence.node == self.id {
            let waited_ms = call.timeout.as_millis();
            let detail = format!("the device did not answer within {waited_ms} ms");
            Answer::ended(Outcome::TimedOut, detail)
        } else {
            Answer::ended(Outcome::Lost, "the bus failed while the device was working")
        }
    }

    /// Hands the call to this node's own host, or puts it on its way to another's.
    fn dispatch(
        &self,
        call: &Call,
        presence: &Presence,
        token: u64,
        deadline: Instant,
    ) -> Result<(), BusError> {
        let device = Text::from(call.device.device.as_str());
        let service = Text::from(&*call.service);
        if presence.node == self.id {
            let Some(host) = self.host() else {
                self.pending.settle(token, Verdict::NotThere);
                return Ok(());
            };
            let handled = Handled {
                id: call.id,
                org: call.device.org,
                device: &device,
                service: &service,
                node: &self.id,
            };
            let reply = ReplyTo {
                node: self.id.clone(),
                token,
                wants_notices: call.notices.is_some(),
                handling: Handling::begin(TraceContext::current().as_ref(), &handled),
            };
            let call = InboundCall {
                org: call.device.org,
                device,
                epoch: presence.epoch,
                id: call.id,
                service,
                params: call.params.clone(),
                input: call.input.clone(),
                deadline,
                reply,
            };
            self.deliver_to(&*host, call);
            return Ok(());
        }
        if self.backend.condition().deaf_for.is_some() {
            return Err(BusError::Unavailable);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        let left_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
        let envelope = Envelope::Call(CallEnvelope {
            token,
            id: call.id,
            org: call.device.org,
            epoch: presence.epoch,
            left_ms,
            wants_notices: call.notices.is_some(),
            trace: TraceContext::current().map(Box::new),
            device,
            service,
            input: call.input.clone(),
            params: call.params.clone(),
        });
        self.courier.send(&presence.node, &envelope)
    }
}

impl Node {
    /// Tells the holder of a device that nobody waits for this call any more.
    fn give_up(&self, device: &DeviceKey, call: CallId, presence: &Presence) {
        let org = device.org;
        if presence.node == self.id {
            if let Some(host) = self.host() {
                host.cancel(org, device.device.as_str(), call);
            }
            return;
        }
        let device = device.device.as_str().into();
        let cancel = Envelope::Cancel { org, device, call };
        self.post(&presence.node, &cancel);
    }
}

/// A call that has been handed over. Dropped before its end, at the deadline or because the
/// caller left, it tells the other node.
struct Waiting<'a> {
    node: &'a Node,
    device: &'a DeviceKey,
    call: CallId,
    presence: &'a Presence,
    token: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if !self.node.pending.forget(self.token) {
            return;
        }
        self.node.give_up(self.device, self.call, self.presence);
    }
}

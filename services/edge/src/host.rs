//! What the bus asks of the edge: calls to deliver, calls given up, devices that moved, what is held.
//! Never: an await or anything else that keeps the bus's reader waiting.

use std::sync::{Arc, Weak};

use switchboard_bus::{Answer, Epoch, Holding, Host, InboundCall, ReplyTo, Text};
use switchboard_protocol::{
    frame::TaskId,
    id::{CallId, OrgId},
    outcome::Outcome,
};

use crate::{
    edge::Edge,
    link::{CallLimits, Eviction, Link, NotQueued},
};

/// The edge as the bus knows it. Weak, because the edge in turn holds the bus.
pub(crate) struct Attached(Weak<Edge>);

impl Attached {
    pub(crate) fn new(edge: &Arc<Edge>) -> Self {
        Self(Arc::downgrade(edge))
    }

    /// Looks at this very connection of the device, if it is here.
    fn with_link(&self, org: OrgId, device: &str, epoch: Epoch, look: impl FnOnce(&Edge, &Link)) {
        let Some(edge) = self.0.upgrade() else { return };
        edge.table.with(org, device, |link| {
            if link.epoch == epoch {
                look(&edge, link);
            }
        });
    }
}

impl Host for Attached {
    fn deliver(&self, call: InboundCall) -> Result<(), ReplyTo> {
        // Without an edge the process is about to end, after its last connection.
        let Some(edge) = self.0.upgrade() else {
            return Err(call.reply);
        };
        deliver(&edge, call)
    }

    fn cancel(&self, org: OrgId, device: &str, call: CallId) {
        let Some(edge) = self.0.upgrade() else { return };
        let cancelled = edge
            .table
            .with(org, device, |link| link.cancel(call))
            .flatten();
        if let Some(unsettled) = cancelled {
            edge.give_up(
                &unsettled,
                Outcome::Cancelled,
                "The caller withdrew the call.",
            );
        }
    }

    fn takeover(&self, org: OrgId, device: &str, epoch: Epoch) {
        let Some(edge) = self.0.upgrade() else { return };
        edge.table.with(org, device, |link| {
            if link.epoch < epoch {
                link.evict(Eviction::Takeover);
            }
        });
    }

    fn say(&self, org: OrgId, device: &str, epoch: Epoch, task: [u8; 8], text: Text) {
        self.with_link(org, device, epoch, |edge, link| {
            link.say(TaskId(task), &text, edge.turn_limits());
        });
    }

    fn begin_again(&self, org: OrgId, device: &str, epoch: Epoch, task: [u8; 8]) {
        self.with_link(org, device, epoch, |_, link| link.begin_again(TaskId(task)));
    }

    fn busy(&self, org: OrgId, device: &str, epoch: Epoch, task: [u8; 8]) {
        self.with_link(org, device, epoch, |edge, link| {
            link.say(TaskId(task), "", edge.turn_limits());
        });
    }

    fn finish(&self, org: OrgId, device: &str, epoch: Epoch, task: [u8; 8], whole: bool) {
        self.with_link(org, device, epoch, |edge, link| {
            link.finish_answer(TaskId(task), whole);
            edge.count_turns(&link.take_ended());
        });
    }

    fn held(&self) -> Vec<Holding> {
        let Some(edge) = self.0.upgrade() else {
            return Vec::new();
        };
        let mut held = Vec::with_capacity(edge.table.len());
        edge.table.each(|link| held.push(holding(link)));
        held
    }
}

fn deliver(edge: &Edge, call: InboundCall) -> Result<(), ReplyTo> {
    let limits = CallLimits {
        waiting: edge.config.device_max_calls_waiting,
        waiting_bytes: edge.config.device_max_waiting_bytes,
        in_flight: edge.config.device_max_calls_in_flight,
    };
    let (org, device) = (call.org, call.device.clone());
    let mut pending = Some(call);
    let refused = edge.table.with(org, &device, |link| {
        let call = pending.take_if(|call| call.epoch == link.epoch)?;
        link.deliver(call, limits).err()
    });
    match refused.flatten() {
        Some((reply, NotQueued::Gone)) => return Err(reply),
        Some((reply, NotQueued::Full)) => edge.answer(
            &reply,
            Answer::ended(
                Outcome::Overloaded,
                "The device has as many calls under way as it may have. Try again in a moment.",
            ),
        ),
        Some((reply, NotQueued::Repeated)) => edge.answer(
            &reply,
            Answer::ended(
                Outcome::Invalid,
                "The device has had a call with this id; it gets an id once.",
            ),
        ),
        None => return pending.map_or(Ok(()), |call| Err(call.reply)),
    }
    Ok(())
}

fn holding(link: &Link) -> Holding {
    Holding {
        device: link.key.clone(),
        epoch: link.epoch,
        registration: link
            .registration()
            .map(|registration| (registration.digest, registration.json.clone())),
    }
}

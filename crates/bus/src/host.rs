//! What an edge does for the bus.
//! Never: blocking or awaiting in one of these; they run on the task that drains the socket.

use std::time::Instant;

use bytes::Bytes;
use switchboard_protocol::{
    id::{CallId, DeviceKey, OrgId},
    schema::Digest,
};

use crate::{
    node::{Epoch, NodeId},
    text::Text,
    trace::Handling,
};

/// A node that holds device connections.
pub trait Host: Send + Sync + 'static {
    /// A call for a device that the directory says is here. Once it is taken it ends in exactly one
    /// [`Bus::answer`](crate::Bus::answer) or [`Bus::not_here`](crate::Bus::not_here).
    ///
    /// # Errors
    /// Whom to tell that the connection meant is not here: the device never saw the call.
    fn deliver(&self, call: InboundCall) -> Result<(), ReplyTo>;

    /// The caller gave up: what is still queued must not reach the device.
    fn cancel(&self, org: OrgId, device: &str, call: CallId);

    /// A newer connection of this device exists; one with a smaller epoch must close.
    fn takeover(&self, org: OrgId, device: &str, epoch: Epoch);

    /// The next piece of the answer to what the device said on this task.
    fn say(&self, org: OrgId, device: &str, epoch: Epoch, task: [u8; 8], text: Text);

    /// Another goes on with that answer, in place of one who fell silent in the middle of it: what
    /// is said next is its beginning once more.
    fn begin_again(&self, _org: OrgId, _device: &str, _epoch: Epoch, _task: [u8; 8]) {}

    /// That answer is still being worked on.
    fn busy(&self, org: OrgId, device: &str, epoch: Epoch, task: [u8; 8]);

    /// That answer is over; not `whole` when a piece of it got lost.
    fn finish(&self, org: OrgId, device: &str, epoch: Epoch, task: [u8; 8], whole: bool);

    /// Everything held now, to be entered again after the bus was away.
    fn held(&self) -> Vec<Holding>;
}

/// One live connection, as its edge knows it.
#[derive(Debug, Clone)]
pub struct Holding {
    /// Whose connection it is.
    pub device: DeviceKey,
    /// Which connection of the device it is.
    pub epoch: Epoch,
    /// The services it registered, as sent, with their digest.
    pub registration: Option<(Digest, Bytes)>,
}

/// A call that reached the node of its device. Its texts and params are slices of the one
/// buffer that was received.
#[derive(Debug, Clone)]
pub struct InboundCall {
    /// Whose device is meant.
    pub org: OrgId,
    /// Its id within the organisation.
    pub device: Text,
    /// The connection that the caller's directory entry names.
    pub epoch: Epoch,
    /// The call's id, as the device will see it.
    pub id: CallId,
    /// The service to call.
    pub service: Text,
    /// Its params: one JSON object, not yet checked.
    pub params: Bytes,
    /// What the device asked for before, one JSON object; empty when it asked for nothing.
    pub input: Bytes,
    /// After this the caller has stopped waiting.
    pub deadline: Instant,
    /// Where the answer goes.
    pub reply: ReplyTo,
}

impl InboundCall {
    /// Lets go of the buffer, which may hold many other calls: for one that is kept a while.
    pub fn detach(&mut self) {
        self.device = Text::from(&*self.device);
        self.service = Text::from(&*self.service);
        self.params = Bytes::copy_from_slice(&self.params);
        self.input = Bytes::copy_from_slice(&self.input);
    }
}

/// Where a call's answer goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplyTo {
    pub(crate) node: NodeId,
    pub(crate) token: u64,
    pub(crate) wants_notices: bool,
    pub(crate) handling: Handling,
}

impl ReplyTo {
    /// Whether the caller wants to hear what the device says while it is at the call.
    #[must_use]
    pub const fn wants_notices(&self) -> bool {
        self.wants_notices
    }

    /// What of the call is traced here.
    #[must_use]
    pub const fn handling(&self) -> &Handling {
        &self.handling
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_call_that_is_kept_does_not_keep_the_buffer_in_which_it_came() {
        let buffer = Bytes::from(b"toy-1 echo {} {}".to_vec());
        let mut call = InboundCall {
            org: OrgId::from_uuid(Uuid::nil()),
            device: buffer.slice(..5).try_into().unwrap(),
            epoch: Epoch(1),
            id: CallId::from_uuid(Uuid::nil()),
            service: buffer.slice(6..10).try_into().unwrap(),
            params: buffer.slice(11..13),
            input: buffer.slice(14..16),
            deadline: Instant::now(),
            reply: ReplyTo {
                node: NodeId::from("a~1"),
                token: 1,
                wants_notices: false,
                handling: Handling::default(),
            },
        };
        let before = call.clone();
        call.detach();
        assert_eq!(
            (&*call.device, &*call.service, &call.params, &call.input),
            ("toy-1", "echo", &before.params, &before.input)
        );
        drop(before);
        assert!(buffer.is_unique());
    }
}

//! The interface between the bus and an edge: calls to deliver, and the connections it owns.

use std::time::Instant;

use bytes::Bytes;
use switchboard_protocol::{
    id::{CallId, DeviceKey, OrgId},
    schema::Digest,
};

use crate::{
    node::{Epoch, NodeId},
    trace::ServerSpan,
    transport::Text,
    turns::SpeakingStyle,
};

/// A node that owns device connections.
///
/// Invariant: no method blocks or waits. They run on the task that reads the socket.
pub trait ConnectionOwner: Send + Sync + 'static {
    /// Delivers a call to a device that the directory lists here. An accepted call ends in exactly
    /// one [`Bus::answer`](crate::Bus::answer) or
    /// [`Bus::answer_not_connected`](crate::Bus::answer_not_connected).
    ///
    /// # Errors
    /// The address for the answer, when the connection is not here: the device never saw the call.
    fn deliver(&self, call: InboundCall) -> Result<(), ReplyTo>;

    /// The caller cancelled the call: if it is still queued it must not reach the device.
    fn cancel(&self, org: OrgId, device: &str, call: CallId);

    /// A newer connection of this device has the directory's entry; one with a smaller epoch must
    /// close. One that is draining may complete its calls first.
    fn take_over(&self, org: OrgId, device: &str, epoch: Epoch);

    /// Closes exactly this connection of the device, if it is here, as an administrator wants. The
    /// device may connect again.
    fn disconnect(&self, _org: OrgId, _device: &str, _epoch: Epoch) {}

    /// The next text of the reply on this task.
    fn send_text(&self, org: OrgId, device: &str, epoch: Epoch, task: [u8; 8], text: Text);

    /// Another worker continues the reply, after the former one had sent a part of it: the text
    /// that follows starts from the beginning.
    fn restart_reply(&self, _org: OrgId, _device: &str, _epoch: Epoch, _task: [u8; 8]) {}

    /// The reply is still being produced.
    fn keep_alive(&self, org: OrgId, device: &str, epoch: Epoch, task: [u8; 8]);

    /// How the reply that follows is to be spoken.
    fn set_style(
        &self,
        _org: OrgId,
        _device: &str,
        _epoch: Epoch,
        _task: [u8; 8],
        _style: SpeakingStyle,
    ) {
    }

    /// The reply has ended; `complete` is false when a part of it was lost.
    fn finish_reply(&self, org: OrgId, device: &str, epoch: Epoch, task: [u8; 8], complete: bool);

    /// All live connections that have an entry in the directory, or should have one. They are
    /// entered again after a reconnect.
    fn connections(&self) -> Vec<LiveConnection>;

    /// The number of devices that are connected.
    fn connection_count(&self) -> usize {
        self.connections().len()
    }
}

/// A live connection, as its owner knows it.
#[derive(Debug, Clone)]
pub struct LiveConnection {
    /// The device that is connected.
    pub device: DeviceKey,
    /// The connection, among those of the device.
    pub epoch: Epoch,
    /// The services that the device registered, as sent, with their digest.
    pub registration: Option<(Digest, Bytes)>,
}

/// A call that has arrived at the node of its device. Its texts and params are slices of the
/// buffer that was received.
#[derive(Debug, Clone)]
pub struct InboundCall {
    /// The organisation of the device.
    pub org: OrgId,
    /// The device's id within the organisation.
    pub device: Text,
    /// The connection that the caller's directory entry names.
    pub epoch: Epoch,
    /// The call's id, as the device will see it.
    pub id: CallId,
    /// The service to call.
    pub service: Text,
    /// The params: one JSON object, not yet validated.
    pub params: Bytes,
    /// The input that the device requested before, one JSON object; empty when it requested none.
    pub input: Bytes,
    /// The registration that must be in force when the device receives the call; `None` for any.
    pub registration: Option<Digest>,
    /// When the caller stops waiting.
    pub deadline: Instant,
    /// Where the answer goes.
    pub reply: ReplyTo,
}

impl InboundCall {
    /// Copies the call out of its buffer, which may hold many other calls. For a call that is
    /// queued for some time.
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
    /// The organisation of the device.
    pub(crate) org: OrgId,
    pub(crate) token: u64,
    pub(crate) wants_notifications: bool,
    pub(crate) span: ServerSpan,
}

impl ReplyTo {
    /// Whether the caller wants the device's notifications.
    #[must_use]
    pub const fn wants_notifications(&self) -> bool {
        self.wants_notifications
    }

    /// The span of the call on this node.
    #[must_use]
    pub const fn span(&self) -> &ServerSpan {
        &self.span
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use uuid::Uuid;

    use super::*;

    #[test]
    fn detached_call_releases_its_buffer() {
        let buffer = Bytes::from(b"toy-1 echo {} {}".to_vec());
        let mut call = InboundCall {
            org: OrgId::from_uuid(Uuid::nil()),
            device: buffer.slice(..5).try_into().unwrap(),
            epoch: Epoch(1),
            id: CallId::from_uuid(Uuid::nil()),
            service: buffer.slice(6..10).try_into().unwrap(),
            params: buffer.slice(11..13),
            input: buffer.slice(14..16),
            registration: None,
            deadline: Instant::now(),
            reply: ReplyTo {
                node: NodeId::from("a~1"),
                org: OrgId::from_uuid(Uuid::nil()),
                token: 1,
                wants_notifications: false,
                span: ServerSpan::default(),
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

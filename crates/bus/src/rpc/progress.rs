//! Notifications about a running call, on their way from the device to the caller.

use bytes::Bytes;

use super::handler::ReplyTo;
use crate::{
    bus::{Bus, Node},
    transport::Message,
};

/// A device's notification about a running call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notification {
    /// The kind of the device's message.
    pub kind: NotificationKind,
    /// The `data` object of the device's message, as sent: one JSON object, with its `call_id`.
    pub data: Bytes,
}

/// The kind of a [`Notification`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NotificationKind {
    /// The progress of the call: `{call_id, progress, total?, message?}`.
    Progress = 0,
    /// A log message: `{call_id, level, message}`.
    Log = 1,
}

impl NotificationKind {
    pub(crate) const fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::Progress),
            1 => Some(Self::Log),
            _ => None,
        }
    }
}

impl Bus {
    /// Sends a notification to the caller of an inbound call, unless the caller wants none
    /// ([`ReplyTo::wants_notifications`]). Does not wait. Notifications arrive in order, and none
    /// arrives after the answer. One that finds a queue full is dropped and counted.
    pub fn notify(&self, to: &ReplyTo, notification: Notification) {
        if to.wants_notifications {
            self.0.notify(to, notification);
        }
    }
}

impl Node {
    fn notify(&self, to: &ReplyTo, Notification { kind, data }: Notification) {
        let token = to.token;
        if to.node == self.id {
            self.deliver_notification(token, Notification { kind, data });
            return;
        }
        let message = Message::Notification { token, kind, data };
        if self.outbox.send_droppable(&to.node, &message).is_err() {
            self.metrics.notices_dropped.inc();
        }
    }

    /// Passes a notification to the pending call behind the token, if there is one.
    pub(crate) fn deliver_notification(&self, token: u64, notification: Notification) {
        if !self.pending.notify(token, notification) {
            self.metrics.notices_dropped.inc();
        }
    }
}

//! What a device says of a call while it is at it, on its way to the caller.
//! Never: a notice that keeps an answer waiting, or that comes after it.

use bytes::Bytes;

use crate::{
    bus::{Bus, Node},
    envelope::Envelope,
    host::ReplyTo,
};

/// Something that a device said of a call under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// What kind of message it was.
    pub kind: NoticeKind,
    /// The `data` object of the device's message, as sent: one JSON object, with its `call_id`.
    pub data: Bytes,
}

/// Which message of the device a notice was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NoticeKind {
    /// How far the call has got: `{call_id, progress, total?, message?}`.
    Progress = 0,
    /// Something to note: `{call_id, level, message}`.
    Log = 1,
}

impl NoticeKind {
    pub(crate) const fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::Progress),
            1 => Some(Self::Log),
            _ => None,
        }
    }
}

impl Bus {
    /// Tells the caller of an inbound call what its device says meanwhile. Does nothing unless
    /// the caller wants it ([`ReplyTo::wants_notices`]); does not wait. Notices come in the
    /// order in which they are told, and none comes after the answer. One that does not find
    /// room on its way is dropped and counted.
    pub fn notify(&self, to: &ReplyTo, notice: Notice) {
        if to.wants_notices {
            self.0.notify(to, notice);
        }
    }
}

impl Node {
    fn notify(&self, to: &ReplyTo, Notice { kind, data }: Notice) {
        let token = to.token;
        if to.node == self.id {
            self.take_notice(token, Notice { kind, data });
            return;
        }
        let notice = Envelope::Notice { token, kind, data };
        if self.courier.send_notice(&to.node, &notice).is_err() {
            self.metrics.notices_dropped.inc();
        }
    }

    /// Passes a notice on to the call of this node that waits for it, if one does.
    pub(crate) fn take_notice(&self, token: u64, notice: Notice) {
        if !self.pending.notify(token, notice) {
            self.metrics.notices_dropped.inc();
        }
    }
}

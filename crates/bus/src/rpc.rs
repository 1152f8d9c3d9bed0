//! Calls between nodes: sent by the caller's node, executed at the node that owns the device.

mod call;
mod client;
mod handler;
mod pending;
mod progress;
mod server;

pub use self::{
    call::{Answer, Call, CancelKey},
    handler::{ConnectionOwner, InboundCall, LiveConnection, ReplyTo},
    progress::{Notification, NotificationKind},
};
pub(crate) use self::{
    pending::{CallEnd, PendingCalls},
    server::NodeInbox,
};

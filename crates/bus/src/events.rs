//! Device events, on their way to the control plane.

mod buffer;
mod device_event;

pub use self::device_event::{DeviceEvent, DisconnectReason, EventId};
pub(crate) use self::{
    buffer::{ByteSize, MAX_BYTES as MAX_BUFFER_BYTES, PendingWrite, WriteBuffer},
    device_event::EVENT_ACK_TIMEOUT,
};

/// The most bytes of the events that no control plane has stored, and of those of one organisation.
/// Protects memory while none runs: more than 50,000 events of connections have the latter.
pub(crate) const MAX_EVENT_BYTES: usize = 64 * 1024 * 1024;
pub(crate) const MAX_ORG_EVENT_BYTES: usize = MAX_EVENT_BYTES / 4;

//! Device events, on their way to the control plane.

mod buffer;
mod device_event;

pub use self::device_event::{DeviceEvent, DisconnectReason, EventId};
pub(crate) use self::{
    buffer::{ByteSize, PendingWrite, WriteBuffer},
    device_event::EVENT_ACK_TIMEOUT,
};

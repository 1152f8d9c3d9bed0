//! The bus: calls and their answers between nodes, and the directory of connected devices.
//!
//! It works over Redis, or inside one process. Nothing in it needs to survive a restart of Redis:
//! the store keeps what must last.

mod auth;
mod backend;
mod background;
mod bus;
#[cfg(test)]
mod compatibility;
mod config;
mod conversations;
mod directory;
mod error;
mod events;
mod memory;
mod metrics;
mod node;
mod redis;
mod rpc;
mod trace;
mod transport;
mod turns;

pub use auth::{TokenCheck, TokenError};
pub use backend::{KeySet, Presence};
pub use bus::{Bus, Health};
pub use config::{Backend, BusConfig, Config};
pub use conversations::{
    Conversation, ConversationKey, MAX_CONVERSATION_BYTES, MAX_CONVERSATION_NAME_BYTES, SaveOutcome,
};
pub use directory::{CatalogEvent, CatalogWatch};
pub use error::BusError;
pub use events::{DeviceEvent, DisconnectReason, EventId};
pub use memory::LocalHub;
pub use node::{Epoch, NodeId};
pub use rpc::{
    Answer, Call, CancelKey, ConnectionOwner, InboundCall, LiveConnection, Notification,
    NotificationKind, ReplyTo,
};
pub use trace::ServerSpan;
pub use transport::Text;
pub use turns::{
    CancelReason, TURN_LEASE, TURN_TTL, Turn, TurnCancellation, TurnCancellations, TurnId,
};

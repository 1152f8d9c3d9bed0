//! The bus: calls and their answers between nodes, and the directory of connected devices.
//!
//! It works over Redis, or inside one process. Nothing in it needs to survive a restart of Redis:
//! the store keeps what must last.

mod auth;
mod backend;
mod background;
mod bus;
mod clock;
#[cfg(test)]
mod compatibility;
mod config;
mod conversations;
mod directory;
mod editions;
mod error;
mod events;
mod lease;
mod live;
mod memory;
mod metrics;
mod node;
mod quotas;
mod redis;
mod rpc;
#[cfg(test)]
mod simulation;
mod status;
mod tickets;
mod trace;
mod transport;
mod turns;

pub use auth::{AccessChange, AccessChanges, TokenCheck, TokenError};
pub use backend::{KeySet, Presence, PublishedKeys};
pub use bus::{Bus, Health};
pub use config::{Backend, BusConfig, Config};
pub use conversations::{
    Conversation, ConversationKey, ConversationsInFlight, MAX_CONVERSATION_BYTES,
    MAX_CONVERSATION_NAME_BYTES, SaveOutcome,
};
pub use directory::{CatalogEvent, CatalogWatch, ClaimedEpoch};
pub use error::BusError;
pub use events::{DeviceEvent, DisconnectReason, EventId};
pub use live::{LiveEntry, LiveEvent, LivePosition, LiveWatch, Seen};
pub use memory::LocalHub;
pub use node::{Epoch, NodeId};
pub use quotas::QuotaLimits;
pub use rpc::{
    Answer, Call, CancelKey, ConnectionOwner, InboundCall, LiveConnection, Notification,
    NotificationKind, ReplyTo,
};
pub use status::{NodeCheck, NodeStatus, STATUS_INTERVAL};
pub use tickets::{TicketError, TicketHolder, TokenDigest};
pub use trace::ServerSpan;
pub use transport::Text;
pub use turns::{
    CancelReason, MAX_RECORDING_BYTES, NewMessage, Played, Recording, SpeakingStyle, TURN_LEASE,
    TURN_TTL, Turn, TurnCancellation, TurnCancellations, TurnId,
};

//! The bus: calls and results between nodes, and the directory of who holds which device.
//! Two backends, Redis and this process, behind one contract.
//! Never: SQL, device sockets, HTTP; and nothing that must last (the store keeps that).

mod backend;
mod backlog;
mod bus;
mod call;
mod conversations;
mod courier;
mod directory;
mod envelope;
mod error;
mod fact;
mod host;
mod inbound;
mod local;
mod metrics;
mod node;
mod notice;
mod offers;
mod outbound;
mod pending;
mod redis;
mod reentry;
mod settings;
mod shelf;
mod text;
mod trace;
mod trust;
mod turns;
mod upkeep;

pub use backend::Presence;
pub use bus::{Bus, Health};
pub use call::{Answer, Call, Handle};
pub use conversations::{
    Conversation, ConversationKey, Kept, MAX_CONVERSATION_BYTES, MAX_CONVERSATION_NAME_BYTES,
};
pub use error::BusError;
pub use fact::{Fact, FactId, LeftReason};
pub use host::{Holding, Host, InboundCall, ReplyTo};
pub use local::LocalHub;
pub use node::{Epoch, NodeId};
pub use notice::{Notice, NoticeKind};
pub use offers::{OfferChange, OfferChanges};
pub use settings::{Backend, BusConfig, Config};
pub use text::Text;
pub use trace::Handling;
pub use trust::TrustError;
pub use turns::{Stop, StopReason, TURN_LEASE, TURN_PATIENCE, Turn, TurnId, TurnStops};

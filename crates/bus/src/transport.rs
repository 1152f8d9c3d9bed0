//! How messages travel between nodes: queued, batched, encoded and decoded.

pub(crate) mod codec;
mod fields;
mod message;
mod outbox;
mod peer_queue;
mod text;
mod turn_codec;

pub use self::text::Text;
pub(crate) use self::{
    message::{CallMessage, Chunk, ChunkMessage, ConnectionMessage, DecodeError, Message},
    outbox::Outbox,
};

//! The messages that nodes send each other.

use bytes::Bytes;
use switchboard_protocol::{
    id::{CallId, OrgId, TokenId},
    outcome::{Delivered, Outcome},
    schema::Digest,
};
use switchboard_runtime::trace::TraceContext;

use super::text::Text;
use crate::{
    node::Epoch,
    rpc::{CancelKey, NotificationKind},
    turns::{TurnCancellation, TurnPosition},
};

/// Bytes that no node of this version encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the message is malformed, or of another version")]
pub struct Malformed;

/// Why a message of a batch was skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DecodeError {
    /// A newer release may have sent it.
    #[error("the message is of an unknown kind")]
    UnknownKind,
    #[error(transparent)]
    Malformed(#[from] Malformed),
}

/// One message of a node to another, or to all nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Message {
    /// Caller → owner node: execute this on the device's connection.
    Call(CallMessage),
    /// Owner node → caller: how the call behind the token ended.
    Answer {
        token: u64,
        outcome: Outcome,
        delivered: Delivered,
        body: Bytes,
        result_valid: bool,
    },
    /// Owner node → caller: the device's notification about the running call behind the token.
    Notification {
        token: u64,
        kind: NotificationKind,
        data: Bytes,
    },
    /// Owner node → caller: the connection is not here; the device never saw the call.
    NotConnected { token: u64 },
    /// Caller → owner node: the caller no longer waits.
    Cancel {
        org: OrgId,
        device: Text,
        call: CallId,
    },
    /// Any node → all nodes: end the call with this key as cancelled.
    CancelByKey { cancel_key: CancelKey },
    /// Owner node → former owner node: a newer connection of the device exists.
    Takeover(ConnectionMessage),
    /// Any node → owner node: close this connection. Repeated until the directory no longer has it, so
    /// a node of an earlier release may skip it.
    Disconnect(ConnectionMessage),
    /// A node → itself: verifies that its inbox is subscribed.
    Probe { nonce: u64 },
    /// Control → all nodes: a token was revoked.
    TokenRevoked { token: TokenId, expires_at: u64 },
    /// Control → all nodes: keys or revocations changed.
    KeysChanged,
    /// Control → all nodes: the prompts of an organisation changed, or of all.
    PromptsChanged { org: Option<OrgId> },
    /// Control → all nodes: a resource of an organisation changed, or of all.
    ResourcesChanged { org: Option<OrgId>, uri: Bytes },
    /// Any node → all nodes: an organisation is watched. Its log has just begun, at this time of the shared
    /// clock, or exists.
    Watched { org: OrgId, began_ms: Option<u64> },
    /// Gateway or control → all nodes: the approvals of an organisation changed, or whether it requires them.
    ApprovalsChanged { org: OrgId },
    /// Worker → owner node: a part of the reply to a turn.
    Chunk(ChunkMessage),
    /// Owner node or worker → all nodes, or owner node → worker: do not answer these turns.
    CancelTurns(TurnCancellation),
}

impl Message {
    /// The bytes that callers, devices and users have written.
    pub(crate) const fn content_bytes(&self) -> usize {
        match self {
            Self::Call(call) => call.params.len().saturating_add(call.input.len()),
            Self::Answer { body, .. } => body.len(),
            _ => 0,
        }
    }
}

/// Names a connection of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConnectionMessage {
    pub(crate) org: OrgId,
    pub(crate) device: Text,
    pub(crate) epoch: Epoch,
}

/// A call on its way to the node that owns the device's connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CallMessage {
    pub(crate) token: u64,
    pub(crate) id: CallId,
    pub(crate) org: OrgId,
    pub(crate) epoch: Epoch,
    /// How long the caller still waited when it sent the call.
    pub(crate) timeout_ms: u64,
    /// Until when, on the shared clock. `None` if the sender did not know that clock, or the
    /// receiver does not know this field.
    pub(crate) deadline_ms: Option<u64>,
    /// The registration that must be in force. Only with a deadline.
    pub(crate) registration: Option<Digest>,
    pub(crate) wants_notifications: bool,
    /// Only in a sampled trace.
    pub(crate) trace: Option<Box<TraceContext>>,
    pub(crate) device: Text,
    pub(crate) service: Text,
    /// Usually empty.
    pub(crate) input: Bytes,
    pub(crate) params: Bytes,
}

/// A part of the reply to a turn, on its way to the node that owns the device's connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ChunkMessage {
    /// The turn that is answered.
    pub(crate) position: TurnPosition,
    /// Counts the workers that have claimed the turn.
    pub(crate) attempt: u32,
    /// From 0 for each worker, without a gap. Without meaning for a chunk that is not numbered.
    pub(crate) number: u32,
    pub(crate) org: OrgId,
    pub(crate) epoch: Epoch,
    pub(crate) task: [u8; 8],
    pub(crate) device: Text,
    pub(crate) chunk: Chunk,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Chunk {
    Text(Text),
    /// The reply is still being produced.
    KeepAlive,
    /// How the reply is to be spoken, one JSON object. A node of an earlier release takes it for a
    /// keep-alive.
    Style(Text),
    End,
}

impl Chunk {
    /// Whether it has a number of its own, so that its loss is noticed.
    pub(crate) const fn is_numbered(&self) -> bool {
        matches!(self, Self::Text(_) | Self::End)
    }
}

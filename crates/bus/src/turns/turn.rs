//! A turn in its forms: handed over by an edge, stored by a backend, claimed by a worker.

use std::{
    fmt,
    hash::{Hash, Hasher},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use switchboard_protocol::{id::DeviceKey, message::Picture, schema::Digest};
use switchboard_runtime::trace::TraceContext;

use super::{
    position::TurnPosition,
    queue::{MAX_ORG_PICTURES, MAX_PICTURES},
};
use crate::node::{Epoch, NodeId};

/// A message of a device's user, for the worker that answers it.
#[derive(Debug, Clone)]
pub struct Turn {
    /// Identifies the turn and this claim of it.
    pub id: TurnId,
    /// The device.
    pub device: DeviceKey,
    /// The connection of the device.
    pub epoch: Epoch,
    /// The node that owns that connection.
    pub node: NodeId,
    /// The task that the reply belongs to.
    pub task: [u8; 8],
    /// The user's words.
    pub text: String,
    /// Whether the user spoke them and hears the reply.
    pub is_spoken: bool,
    /// See [`NewMessage::played`].
    pub played: Option<Played>,
    /// See [`NewMessage::picture`].
    pub picture: Option<Picture>,
    /// See [`NewMessage::audio_ms`].
    pub audio_ms: u32,
    /// See [`NewMessage::recording`].
    pub recording: Option<Recording>,
    /// See [`NewMessage::locale`].
    pub locale: Option<String>,
    /// See [`NewMessage::registration`].
    pub registration: Option<Digest>,
    /// Whether it supersedes no other turn: all earlier ones of its connection were answered.
    pub is_alone: bool,
    /// How often the turn was claimed, this claim included.
    pub attempts: u32,
    /// Whether an earlier worker was about to cause side effects, which may have happened.
    pub has_side_effects: bool,
    /// The trace that began with the turn, if it is sampled.
    pub trace: Option<TraceContext>,
}

/// Identifies one claim of a turn. A worker that claims the turn after this lease has expired has
/// another id.
#[derive(Clone)]
pub struct TurnId(Arc<TurnClaim>);

/// One claim of a turn, and how much of the reply it has sent.
#[derive(Debug)]
pub(super) struct TurnClaim {
    pub(super) position: TurnPosition,
    pub(super) attempt: u32,
    pub(super) target: ReplyTarget,
    pub(super) node: NodeId,
    chunks: AtomicU32,
}

/// The receiver of a reply on the node that owns the device's connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReplyTarget {
    pub(crate) device: DeviceKey,
    pub(crate) epoch: Epoch,
    pub(crate) task: [u8; 8],
}

/// What a user says to a device.
#[derive(Debug, Clone, Default)]
pub struct NewMessage {
    /// The words.
    pub text: String,
    /// Whether the user spoke them and hears the reply.
    pub is_spoken: bool,
    /// What the device has played of an earlier reply that it did not play to its end.
    pub played: Option<Played>,
    /// What the user shows.
    pub picture: Option<Picture>,
    /// Milliseconds of audio since the previous spoken message of the connection: of utterances that
    /// were recognised, and of replies that were sent.
    pub audio_ms: u32,
    /// Its audio, if [`SpeakingStyle::is_recorded`](super::SpeakingStyle::is_recorded) requested it.
    pub recording: Option<Recording>,
    /// The language of the device's users, as a BCP 47 tag, if the device names one.
    pub locale: Option<String>,
    /// The services that the device has registered; `None` if the edge does not know it.
    pub registration: Option<Digest>,
}

/// The audio of a spoken message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recording {
    /// A file of Ogg Opus, of at most [`MAX_RECORDING_BYTES`].
    pub file: Bytes,
    /// Its duration in milliseconds.
    pub ms: u32,
}

/// Bytes of a recording: 40 s of speech. Protects Redis.
pub const MAX_RECORDING_BYTES: usize = 128 * 1024;

/// How much of a spoken reply was played.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Played {
    /// The message that the reply answers.
    pub message: String,
    /// The words that were played; empty if there were none.
    pub words: String,
}

impl NewMessage {
    /// Returns how many bytes it holds.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let played = self.played.as_ref();
        let played = played.map_or(0, |played| played.message.len() + played.words.len());
        let picture = self.picture.as_ref().map_or(0, Picture::size_bytes);
        let recording = self.recording.as_ref().map_or(0, |one| one.file.len());
        self.text.len() + played + picture + recording
    }

    /// The pictures below which it takes one of their places, in all and of its organisation; `None` if
    /// it takes none, as with the id of an uploaded picture. Recordings leave half of them to pictures.
    pub(crate) fn max_pictures(&self) -> Option<(usize, usize)> {
        let picture = self.picture.as_ref();
        if picture.is_some_and(|picture| picture.size_bytes() > 0) {
            Some((MAX_PICTURES, MAX_ORG_PICTURES))
        } else {
            let half = (MAX_PICTURES / 2, MAX_ORG_PICTURES / 2);
            self.recording.as_ref().map(|_| half)
        }
    }
}

/// A written message.
impl From<String> for NewMessage {
    fn from(text: String) -> Self {
        Self {
            text,
            ..Self::default()
        }
    }
}

/// A turn that an edge hands over.
#[derive(Debug, Clone)]
pub(crate) struct NewTurn {
    pub(crate) target: ReplyTarget,
    pub(crate) node: NodeId,
    pub(crate) message: NewMessage,
    pub(crate) is_alone: bool,
    pub(crate) trace: Option<TraceContext>,
}

/// A turn that a backend leases to a worker.
#[derive(Debug, Clone)]
pub(crate) struct ClaimedTurn {
    pub(crate) position: TurnPosition,
    pub(crate) turn: NewTurn,
    pub(crate) attempts: u32,
    pub(crate) has_side_effects: bool,
    pub(crate) waited: Duration,
}

/// A claim, as a backend knows it: the turn's position, and the attempt.
pub(crate) type Lease = (TurnPosition, u32);

impl TurnId {
    pub(super) fn claim(&self) -> &TurnClaim {
        &self.0
    }

    pub(super) fn lease(&self) -> Lease {
        (self.0.position, self.0.attempt)
    }

    pub(super) fn position(&self) -> TurnPosition {
        self.0.position
    }

    /// The number of the next chunk, which counts as sent.
    pub(super) fn next_chunk(&self) -> u32 {
        self.0.chunks.fetch_add(1, Ordering::Relaxed)
    }

    /// How many chunks were sent.
    pub(super) fn chunk_count(&self) -> u32 {
        self.0.chunks.load(Ordering::Relaxed)
    }
}

impl fmt::Display for TurnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.position.fmt(f)
    }
}

impl fmt::Debug for TurnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TurnId({}, {})", self.0.position, self.0.attempt)
    }
}

impl PartialEq for TurnId {
    fn eq(&self, other: &Self) -> bool {
        self.lease() == other.lease()
    }
}

impl Eq for TurnId {}

impl Hash for TurnId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.lease().hash(state);
    }
}

impl From<ClaimedTurn> for Turn {
    fn from(claimed: ClaimedTurn) -> Self {
        let NewTurn {
            target,
            node,
            message:
                NewMessage {
                    text,
                    is_spoken,
                    played,
                    picture,
                    audio_ms,
                    recording,
                    locale,
                    registration,
                },
            is_alone,
            trace,
        } = claimed.turn;
        let ReplyTarget {
            device,
            epoch,
            task,
        } = target.clone();
        let claim = TurnClaim {
            position: claimed.position,
            attempt: claimed.attempts,
            target,
            node: node.clone(),
            chunks: AtomicU32::new(0),
        };
        Self {
            id: TurnId(Arc::new(claim)),
            device,
            epoch,
            node,
            task,
            text,
            is_spoken,
            played,
            picture,
            audio_ms,
            recording,
            locale,
            registration,
            is_alone,
            attempts: claimed.attempts,
            has_side_effects: claimed.has_side_effects,
            trace,
        }
    }
}

//! Turns: messages of a device's user on their way to a worker, and the replies on their way back.

mod cancel;
mod orphan_replies;
mod position;
mod queue;
mod room;
mod style;
mod superseded;
mod tracker;
mod turn;

pub use self::{
    cancel::{CancelReason, TurnCancellation, TurnCancellations},
    queue::{TURN_LEASE, TURN_TTL},
    style::SpeakingStyle,
    turn::{MAX_RECORDING_BYTES, NewMessage, Played, Recording, Turn, TurnId},
};
pub(crate) use self::{
    cancel::{CancellationSender, cancellation_channel},
    orphan_replies::OrphanReplies,
    position::TurnPosition,
    queue::{MAX_ORG_TURNS, MAX_TURNS},
    room::{OrgRoom, Rooms},
    superseded::SupersededTurns,
    tracker::TurnTracker,
    turn::{ClaimedTurn, Lease, NewTurn, ReplyTarget},
};

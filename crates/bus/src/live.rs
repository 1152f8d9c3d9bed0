//! Live events: what happens in an organisation, for those who watch it now.
//!
//! Invariant: an organisation that no client watches costs two lookups and a note for each of its events.

mod event;
mod feed;
mod log;
mod recorder;
mod unrecorded;

pub use self::{
    event::LiveEvent,
    feed::{LiveWatch, Seen},
    log::{LiveEntry, LivePosition},
};
pub(crate) use self::{
    feed::LiveFeeds,
    log::{KeptLog, LOG_TTL, LiveLog, LogPage, MAX_LOG_ENTRIES, StoredEvent},
    recorder::{LiveRecorder, run as run_recorder},
};

//! Live events: what happens in an organisation, for those who watch it now.
//!
//! Invariant: an organisation that nobody watches costs a lookup for each of its events.

mod event;
mod feed;
mod log;
mod recorder;

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

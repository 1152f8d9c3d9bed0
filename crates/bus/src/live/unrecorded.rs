//! When organisations last had events that this node did not record, because it did not know that
//! they are watched.
//!
//! Invariant: an event that is not recorded is noted before the node looks again whether its
//! organisation is watched. So either the event is recorded, or who begins to record sees the note.

use std::{
    sync::atomic::{AtomicU64, Ordering, fence},
    time::Duration,
};

use switchboard_protocol::id::OrgId;
use tokio::time::Instant;

/// Organisations that share a note take each other's events for their own.
const NOTES: usize = 1024;
const NONE: u64 = 0;

pub(super) struct UnrecordedEvents {
    origin: Instant,
    /// The last event of each, in microseconds since `origin`.
    notes: Box<[AtomicU64]>,
}

impl Default for UnrecordedEvents {
    fn default() -> Self {
        Self {
            origin: Instant::now(),
            notes: (0..NOTES).map(|_| AtomicU64::new(NONE)).collect(),
        }
    }
}

impl UnrecordedEvents {
    /// An event of the organisation happens and is not recorded.
    pub(super) fn note(&self, org: OrgId) {
        if let Some(note) = self.note_of(org) {
            note.store(self.now_us(), Ordering::Release);
        }
        fence(Ordering::SeqCst);
    }

    /// Whether the organisation had such an event within this time. It is recorded already.
    pub(super) fn were_within(&self, org: OrgId, age: Duration) -> bool {
        fence(Ordering::SeqCst);
        let last = self
            .note_of(org)
            .map_or(NONE, |note| note.load(Ordering::Acquire));
        let elapsed = Duration::from_micros(self.now_us().saturating_sub(last));
        last != NONE && elapsed <= age
    }

    /// Later than [`NONE`].
    fn now_us(&self) -> u64 {
        let elapsed = u64::try_from(self.origin.elapsed().as_micros());
        elapsed.unwrap_or(u64::MAX).saturating_add(1)
    }

    fn note_of(&self, org: OrgId) -> Option<&AtomicU64> {
        // The last bits of an id are random.
        let (_, random) = org.uuid().as_u64_pair();
        let index = usize::try_from(random % NOTES as u64).ok()?;
        self.notes.get(index)
    }
}

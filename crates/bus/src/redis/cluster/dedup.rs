//! Drops batches that arrive twice while an inbox moves from one server to another.

use std::{
    collections::HashSet,
    hash::{BuildHasher, RandomState},
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use parking_lot::Mutex;

/// How long other nodes may publish at the former server: longer than their routes are wrong.
const ACTIVE_WINDOW: Duration = Duration::from_secs(10);
/// Protects memory; a batch takes some 16 bytes.
const MAX_BATCHES: usize = 500_000;

/// Recognises batches that were received before.
///
/// The servers of a shard forward to each other what is published at one of them, but each counts
/// its own subscribers only. So a batch without a subscriber, as far as its server knows, is
/// published again, and both copies may arrive.
///
/// Invariant: nothing is dropped unless the inbox has moved within the last 10 s.
pub(crate) struct Deduplicator {
    active: AtomicBool,
    state: Mutex<State>,
    hasher: RandomState,
}

#[derive(Default)]
struct State {
    until: Option<Instant>,
    seen: HashSet<u64>,
}

impl Deduplicator {
    pub(crate) fn new() -> Self {
        Self {
            active: AtomicBool::new(false),
            state: Mutex::default(),
            hasher: RandomState::new(),
        }
    }

    /// The inbox is moving.
    pub(crate) fn activate(&self) {
        let mut state = self.state.lock();
        state.until = Some(Instant::now() + ACTIVE_WINDOW);
        self.active.store(true, Ordering::Release);
    }

    pub(crate) fn is_duplicate(&self, batch: &[u8]) -> bool {
        if !self.active.load(Ordering::Acquire) {
            return false;
        }
        let mut state = self.state.lock();
        if state.until.is_none_or(|until| until < Instant::now()) {
            self.active.store(false, Ordering::Release);
            *state = State::default();
            return false;
        }
        let hash = self.hasher.hash_one(batch);
        if state.seen.len() >= MAX_BATCHES {
            return state.seen.contains(&hash);
        }
        !state.seen.insert(hash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_repeat_only_outside_the_window() {
        let deduplicator = Deduplicator::new();
        let twice = |batch: &[u8]| {
            let first = deduplicator.is_duplicate(batch);
            (first, deduplicator.is_duplicate(batch))
        };
        assert_eq!(twice(b"a"), (false, false));
        deduplicator.activate();
        assert_eq!(twice(b"a"), (false, true));
        assert_eq!(twice(b"b"), (false, true));
        deduplicator.state.lock().until = Some(Instant::now());
        assert_eq!(twice(b"a"), (false, false), "the window has passed");
    }
}

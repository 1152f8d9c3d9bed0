//! Packs that come twice while an inbox goes from one server to another.
//!
//! A shard's servers pass on to each other what is published at one of them, and each counts its own listeners
//! only. So a pack that nobody heard, as far as its server knows, is sent again and may have arrived all the same.
//! Never: anything let go while the inbox stays where it is.

use std::{
    collections::HashSet,
    hash::{BuildHasher, RandomState},
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use parking_lot::Mutex;

/// For so long others may send to where the inbox was: longer than their tables of slots are wrong.
const WATCHFUL: Duration = Duration::from_secs(10);
/// Protects memory; a pack is remembered in some 16 bytes.
const MAX_REMEMBERED: usize = 500_000;

pub(super) struct Doubles {
    watchful: AtomicBool,
    state: Mutex<State>,
    hasher: RandomState,
}

#[derive(Default)]
struct State {
    until: Option<Instant>,
    seen: HashSet<u64>,
}

impl Doubles {
    pub(super) fn new() -> Self {
        Self {
            watchful: AtomicBool::new(false),
            state: Mutex::default(),
            hasher: RandomState::new(),
        }
    }

    /// The inbox goes elsewhere now.
    pub(super) fn watch(&self) {
        let mut state = self.state.lock();
        state.until = Some(Instant::now() + WATCHFUL);
        self.watchful.store(true, Ordering::Release);
    }

    /// Whether this pack has come before.
    pub(super) fn is_double(&self, pack: &[u8]) -> bool {
        if !self.watchful.load(Ordering::Acquire) {
            return false;
        }
        let mut state = self.state.lock();
        if state.until.is_none_or(|until| until < Instant::now()) {
            self.watchful.store(false, Ordering::Release);
            *state = State::default();
            return false;
        }
        let hash = self.hasher.hash_one(pack);
        if state.seen.len() >= MAX_REMEMBERED {
            return state.seen.contains(&hash);
        }
        !state.seen.insert(hash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pack_counts_once_while_the_inbox_moves() {
        let doubles = Doubles::new();
        let twice = |pack: &[u8]| (doubles.is_double(pack), doubles.is_double(pack));
        assert_eq!(twice(b"a"), (false, false));
        doubles.watch();
        assert_eq!(twice(b"a"), (false, true));
        assert_eq!(twice(b"b"), (false, true));
        doubles.state.lock().until = Some(Instant::now());
        assert_eq!(twice(b"a"), (false, false), "it stays where it is again");
    }
}

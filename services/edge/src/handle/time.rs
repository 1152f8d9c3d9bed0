//! Times of a connection. An idle connection has four; each takes four bytes.

use std::sync::atomic::{AtomicU32, Ordering};

/// The value of no time.
const NEVER: u32 = u32::MAX;
/// Times are kept modulo this, 49 days.
const MODULUS_MS: u64 = NEVER as u64;

/// A time on the edge's clock, in milliseconds, or none. Any task may read and write it.
///
/// Invariant: [`Self::elapsed_ms`] is right for 24 days. A connection that is silent, stalled or within a
/// frame is closed before: the configuration allows a day at most.
#[derive(Debug)]
pub(super) struct AtomicTime(AtomicU32);

impl AtomicTime {
    pub(super) const fn never() -> Self {
        Self(AtomicU32::new(NEVER))
    }

    pub(super) fn new(ms: u64) -> Self {
        Self(AtomicU32::new(wrap(ms)))
    }

    pub(super) fn set(&self, ms: Option<u64>) {
        self.0.store(ms.map_or(NEVER, wrap), Ordering::Relaxed);
    }

    pub(super) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed) != NEVER
    }

    /// Takes the value of the other one. Returns whether it had a different one.
    pub(super) fn follow(&self, other: &Self) -> bool {
        let value = other.0.load(Ordering::Relaxed);
        self.0.swap(value, Ordering::Relaxed) != value
    }

    /// The time since then; 0 if it is none, or later than `now_ms`.
    pub(super) fn elapsed_ms(&self, now_ms: u64) -> u64 {
        let since = self.0.load(Ordering::Relaxed);
        if since == NEVER {
            return 0;
        }
        let elapsed = (now_ms % MODULUS_MS + MODULUS_MS - u64::from(since)) % MODULUS_MS;
        if elapsed > MODULUS_MS / 2 { 0 } else { elapsed }
    }
}

fn wrap(ms: u64) -> u32 {
    // The remainder is always smaller.
    u32::try_from(ms % MODULUS_MS).unwrap_or(NEVER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elapsed_time_is_right_on_both_sides_of_a_wrap() {
        for start in [0, 1, MODULUS_MS - 10, MODULUS_MS, 7 * MODULUS_MS + 3] {
            let time = AtomicTime::new(start);
            assert!(time.is_set());
            for elapsed in [0, 1, 20, 10_000_000, MODULUS_MS / 2] {
                assert_eq!(time.elapsed_ms(start + elapsed), elapsed, "{start}");
            }
            assert_eq!(time.elapsed_ms(start.saturating_sub(1)), 0, "{start}");
        }
    }

    #[test]
    fn no_time_has_not_elapsed() {
        let (time, other) = (AtomicTime::never(), AtomicTime::new(MODULUS_MS));
        assert_eq!((time.is_set(), time.elapsed_ms(u64::MAX)), (false, 0));
        assert!(time.follow(&other));
        assert!(!time.follow(&other));
        assert_eq!(time.elapsed_ms(5), 5);
        time.set(None);
        assert!(!time.is_set());
    }
}

//! Those who say pieces of answers that nobody waits for: whom to tell so, and how often.
//! Never: a flood of stops because of a flood of pieces.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use quick_cache::sync::Cache;

use super::TurnAt;

/// A taker is told once of a turn, and again when it still speaks after so long.
const PAUSE: Duration = Duration::from_secs(3);
/// Stops that are sent in that time. Protects the bus, and the listeners of stops.
const MOST: u32 = 64;
/// Turns of which it is remembered that their takers were told. Protects memory.
const REMEMBERED: usize = 1024;

/// When takers were told, of late.
pub(crate) struct Strays {
    told: Cache<TurnAt, Instant>,
    lately: Mutex<Option<Lately>>,
}

/// What was sent since a moment.
struct Lately {
    since: Instant,
    sent: u32,
}

impl Default for Strays {
    fn default() -> Self {
        Self {
            told: Cache::new(REMEMBERED),
            lately: Mutex::new(None),
        }
    }
}

impl Strays {
    /// The takers of these are being told anyway.
    pub(super) fn note(&self, turns: &[TurnAt], now: Instant) {
        for at in turns {
            self.told.insert(*at, now);
        }
    }

    /// Whether the taker of this turn, who said something, is to be told now.
    pub(super) fn is_to_be_told(&self, at: TurnAt, now: Instant) -> bool {
        let is_recent = |since: Instant| now.saturating_duration_since(since) < PAUSE;
        let mut lately = self.lately.lock();
        if self.told.get(&at).is_some_and(is_recent) {
            return false;
        }
        let lately = match &mut *lately {
            Some(lately) if is_recent(lately.since) => lately,
            ended => ended.insert(Lately {
                since: now,
                sent: 0,
            }),
        };
        if lately.sent >= MOST {
            return false;
        }
        lately.sent += 1;
        self.told.insert(at, now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> TurnAt {
        TurnAt { ms, number: 0 }
    }

    #[test]
    fn a_taker_is_told_once_and_again_when_it_goes_on() {
        let (strays, now) = (Strays::default(), Instant::now());
        assert!(strays.is_to_be_told(at(1), now));
        assert!(!strays.is_to_be_told(at(1), now + PAUSE / 2));
        assert!(strays.is_to_be_told(at(1), now + PAUSE));
        strays.note(&[at(2)], now);
        assert!(!strays.is_to_be_told(at(2), now));
        assert!(strays.is_to_be_told(at(2), now + PAUSE));
    }

    #[test]
    fn a_flood_of_strays_is_no_flood_of_stops() {
        let (strays, now) = (Strays::default(), Instant::now());
        let told = |now| {
            (0..1000)
                .filter(|ms| strays.is_to_be_told(at(*ms), now))
                .count()
        };
        assert_eq!(told(now), 64);
        assert_eq!(told(now + PAUSE / 2), 0);
        assert_eq!(told(now + PAUSE), 64);
    }
}

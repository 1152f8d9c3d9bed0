//! Limits how often workers are notified of replies that no turn expects.

use std::time::Duration;

use parking_lot::Mutex;
use quick_cache::sync::Cache;
use tokio::time::Instant;

use super::position::TurnPosition;

/// The worker of a turn is notified once, and again if it still sends chunks after this time.
const NOTIFY_INTERVAL: Duration = Duration::from_secs(3);
/// Notifications within one interval. Protects the bus, and the subscribers.
const MAX_NOTIFICATIONS: u32 = 64;
/// Turns whose workers' notifications are cached. Protects memory.
const CACHE_CAPACITY: usize = 1024;

/// Decides whether the worker of an orphan chunk is notified.
///
/// Invariant: a flood of chunks causes no flood of cancellations.
pub(crate) struct OrphanReplies {
    notified_at: Cache<TurnPosition, Instant>,
    window: Mutex<Option<Window>>,
}

/// The notifications of the current interval.
struct Window {
    since: Instant,
    sent: u32,
}

impl Default for OrphanReplies {
    fn default() -> Self {
        Self {
            notified_at: Cache::new(CACHE_CAPACITY),
            window: Mutex::new(None),
        }
    }
}

impl OrphanReplies {
    /// Records that the workers of these turns are notified by other means.
    pub(super) fn record(&self, turns: &[TurnPosition], now: Instant) {
        for position in turns {
            self.notified_at.insert(*position, now);
        }
    }

    /// Whether the worker of this turn is to be notified now. If so, that is recorded.
    pub(super) fn should_notify(&self, position: TurnPosition, now: Instant) -> bool {
        let is_recent = |at: Instant| now.saturating_duration_since(at) < NOTIFY_INTERVAL;
        let mut window = self.window.lock();
        if self.notified_at.get(&position).is_some_and(is_recent) {
            return false;
        }
        let window = match &mut *window {
            Some(window) if is_recent(window.since) => window,
            ended => ended.insert(Window {
                since: now,
                sent: 0,
            }),
        };
        if window.sent >= MAX_NOTIFICATIONS {
            return false;
        }
        window.sent += 1;
        self.notified_at.insert(position, now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn position(ms: u64) -> TurnPosition {
        TurnPosition { ms, number: 0 }
    }

    #[test]
    fn worker_is_notified_once_per_interval() {
        let (orphans, now) = (OrphanReplies::default(), Instant::now());
        assert!(orphans.should_notify(position(1), now));
        assert!(!orphans.should_notify(position(1), now + NOTIFY_INTERVAL / 2));
        assert!(orphans.should_notify(position(1), now + NOTIFY_INTERVAL));
        orphans.record(&[position(2)], now);
        assert!(!orphans.should_notify(position(2), now));
        assert!(orphans.should_notify(position(2), now + NOTIFY_INTERVAL));
    }

    #[test]
    fn notifications_per_interval_are_limited() {
        let (orphans, now) = (OrphanReplies::default(), Instant::now());
        let notified = |now| {
            (0..1000)
                .filter(|ms| orphans.should_notify(position(*ms), now))
                .count()
        };
        assert_eq!(notified(now), 64);
        assert_eq!(notified(now + NOTIFY_INTERVAL / 2), 0);
        assert_eq!(notified(now + NOTIFY_INTERVAL), 64);
    }
}

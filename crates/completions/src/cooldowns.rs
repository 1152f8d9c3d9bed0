//! Cooldowns of a provider or a model.
//! Invariant: a cooldown is never shortened by a later one.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// A cooldown and its end. The order is that of precedence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Cooldown {
    /// The provider requested the pause: it must not be requested before.
    RetryAfter(Instant),
    /// It rejects all requests: others go first, and no request relies on it.
    Rejected(Instant),
    /// It failed: others go first.
    Failing(Instant),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CooldownReason {
    RetryAfter,
    Rejected,
    Failing,
}

/// The cooldowns of one provider, or of one of its models.
#[derive(Debug, Default)]
pub(crate) struct Cooldowns(Mutex<Ends>);

#[derive(Debug, Default)]
struct Ends {
    retry_after: Option<Instant>,
    rejected: Option<Instant>,
    failing: Option<Instant>,
}

impl Cooldowns {
    /// The current cooldown with the highest precedence.
    pub(crate) fn current(&self) -> Option<Cooldown> {
        let now = Instant::now();
        let ends = self.0.lock();
        let cooldowns = [
            ends.retry_after.map(Cooldown::RetryAfter),
            ends.rejected.map(Cooldown::Rejected),
            ends.failing.map(Cooldown::Failing),
        ];
        let mut cooldowns = cooldowns.into_iter().flatten();
        cooldowns.find(|cooldown| cooldown.end() > now)
    }

    /// Starts or extends a cooldown. Returns whether there was none for this reason.
    pub(crate) fn start(&self, reason: CooldownReason, length: Duration) -> bool {
        let now = Instant::now();
        let mut ends = self.0.lock();
        let end = match reason {
            CooldownReason::RetryAfter => &mut ends.retry_after,
            CooldownReason::Rejected => &mut ends.rejected,
            CooldownReason::Failing => &mut ends.failing,
        };
        let is_new = end.is_none_or(|end| end <= now);
        *end = (*end).max(now.checked_add(length));
        is_new
    }

    /// Ends the cooldowns after a reply, except a requested pause.
    pub(crate) fn reset(&self) {
        let mut ends = self.0.lock();
        (ends.rejected, ends.failing) = (None, None);
    }
}

impl Cooldown {
    pub(crate) const fn end(self) -> Instant {
        match self {
            Self::RetryAfter(end) | Self::Rejected(end) | Self::Failing(end) => end,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG_BACKOFF: Duration = Duration::from_secs(60);
    const SHORT_BACKOFF: Duration = Duration::from_secs(30);

    #[tokio::test(start_paused = true)]
    async fn cooldown_is_never_shortened() {
        let cooldowns = Cooldowns::default();
        assert_eq!(cooldowns.current(), None);
        assert!(cooldowns.start(CooldownReason::RetryAfter, LONG_BACKOFF));
        let current = cooldowns.current();
        assert!(!cooldowns.start(CooldownReason::RetryAfter, SHORT_BACKOFF));
        assert_eq!(cooldowns.current(), current);
        cooldowns.reset();
        assert_eq!(cooldowns.current(), current);
    }

    #[tokio::test(start_paused = true)]
    async fn requested_pause_takes_precedence_over_failures() {
        let cooldowns = Cooldowns::default();
        assert!(cooldowns.start(CooldownReason::Failing, LONG_BACKOFF));
        assert!(matches!(cooldowns.current(), Some(Cooldown::Failing(_))));
        assert!(cooldowns.start(CooldownReason::Rejected, SHORT_BACKOFF));
        assert!(matches!(cooldowns.current(), Some(Cooldown::Rejected(_))));
        assert!(cooldowns.start(CooldownReason::RetryAfter, SHORT_BACKOFF));
        assert!(matches!(cooldowns.current(), Some(Cooldown::RetryAfter(_))));
        let others = Cooldowns::default();
        others.start(CooldownReason::Failing, LONG_BACKOFF);
        others.start(CooldownReason::Rejected, LONG_BACKOFF);
        others.reset();
        assert_eq!(others.current(), None);
        assert!(others.start(CooldownReason::Rejected, Duration::ZERO));
        assert_eq!(others.current(), None);
        assert!(others.start(CooldownReason::Rejected, LONG_BACKOFF));
    }
}

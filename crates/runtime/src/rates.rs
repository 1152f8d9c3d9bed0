//! How often somebody may do something: a token bucket for each of them.
//! Never: a wait; what comes too often is refused at once, with the time after which it would not be.

use std::{hash::Hash, num::NonZeroU32, time::Duration};

use axum::http::{StatusCode, header};
use governor::{
    Quota, RateLimiter,
    clock::{Clock, DefaultClock},
    state::keyed::DashMapStateStore,
};

use crate::{problem::Problem, shutdown::Shutdown};

/// Buckets that are full again are forgotten this often. Protects memory.
const SWEEP_EVERY: Duration = Duration::from_secs(30);

/// The buckets of one process, one for each key. They are not shared with other replicas: each lets this much through.
#[derive(Debug)]
pub struct Buckets<K: Hash + Eq + Clone> {
    limiter: RateLimiter<K, DashMapStateStore<K>, DefaultClock>,
}

/// Came too often.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooOften {
    /// When it would not be too often any more.
    pub retry_after: Duration,
}

impl<K: Hash + Eq + Clone> Buckets<K> {
    /// Lets so much through in the long run, and so much at once after a pause.
    #[must_use]
    pub fn new(rate_per_s: NonZeroU32, burst: NonZeroU32) -> Self {
        let quota = Quota::per_second(rate_per_s).allow_burst(burst);
        Self {
            limiter: RateLimiter::dashmap(quota),
        }
    }

    /// Takes one out of the bucket of this key.
    ///
    /// # Errors
    /// [`TooOften`] when it is empty.
    pub fn take(&self, key: &K) -> Result<(), TooOften> {
        self.limiter.check_key(key).map_err(|refused| TooOften {
            retry_after: refused.wait_time_from(self.limiter.clock().now()),
        })
    }

    /// Forgets the buckets that are full again.
    pub fn sweep(&self) {
        self.limiter.retain_recent();
        self.limiter.shrink_to_fit();
    }
}

/// Sweeps from time to time, until draining begins.
pub async fn sweep(buckets: impl Fn(), shutdown: Shutdown) {
    let mut ticks = tokio::time::interval(SWEEP_EVERY);
    loop {
        tokio::select! {
            _ = ticks.tick() => buckets(),
            () = shutdown.draining() => return,
        }
    }
}

impl TooOften {
    /// In whole seconds and at least one, as `Retry-After` wants it.
    #[must_use]
    pub fn retry_after_s(self) -> u64 {
        let whole = self.retry_after.as_secs();
        let more = u64::from(self.retry_after.subsec_nanos() > 0);
        whole.saturating_add(more).max(1)
    }
}

impl From<TooOften> for Problem {
    fn from(refused: TooOften) -> Self {
        let seconds = refused.retry_after_s();
        let detail = format!(
            "This comes faster than the limit allows; nothing was sent. Try again in {seconds} s."
        );
        Self::new(
            StatusCode::TOO_MANY_REQUESTS,
            "rate_limited",
            "Too many requests",
            detail,
        )
        .header(header::RETRY_AFTER, seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_its_owners_alone() {
        let one = NonZeroU32::new(1).unwrap();
        let buckets: Buckets<u8> = Buckets::new(one, NonZeroU32::new(3).unwrap());
        for _ in 0..3 {
            assert_eq!(buckets.take(&1), Ok(()));
        }
        let refused = buckets.take(&1).unwrap_err();
        assert_eq!(refused.retry_after_s(), 1);
        assert_eq!(buckets.take(&2), Ok(()));
        buckets.sweep();
        assert!(buckets.take(&1).is_err());
    }

    #[test]
    fn waits_are_rounded_up_to_whole_seconds() {
        fn check(milliseconds: u64, seconds: u64) {
            let refused = TooOften {
                retry_after: Duration::from_millis(milliseconds),
            };
            assert_eq!(refused.retry_after_s(), seconds);
        }
        check(0, 1);
        check(1, 1);
        check(1_000, 1);
        check(1_001, 2);
    }
}

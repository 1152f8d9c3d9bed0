//! Rate limits: a token bucket per key. Requests over the limit are rejected with a retry delay,
//! not queued.

use std::{hash::Hash, num::NonZeroU32, time::Duration};

use axum::http::header;
use governor::{
    Quota, RateLimiter,
    clock::{Clock, DefaultClock},
    state::keyed::DashMapStateStore,
};

use crate::{
    problem::{Problem, ProblemKind},
    shutdown::Shutdown,
};

/// Interval at which full buckets are evicted. Bounds memory.
const SWEEP_INTERVAL: Duration = Duration::from_secs(30);

/// Token buckets of one process, one per key. Replicas do not share them: each admits this rate.
#[derive(Debug)]
pub struct TokenBuckets<K: Hash + Eq + Clone> {
    limiter: RateLimiter<K, DashMapStateStore<K>, DefaultClock>,
    burst: NonZeroU32,
}

/// The rate limit is exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimited {
    /// Time until the next request is admitted.
    pub retry_after: Duration,
}

impl<K: Hash + Eq + Clone> TokenBuckets<K> {
    /// Creates buckets with a sustained rate and a burst.
    #[must_use]
    pub fn new(rate_per_s: NonZeroU32, burst: NonZeroU32) -> Self {
        let quota = Quota::per_second(rate_per_s).allow_burst(burst);
        Self {
            limiter: RateLimiter::dashmap(quota),
            burst,
        }
    }

    /// Takes one token from the bucket of `key`.
    ///
    /// # Errors
    /// [`RateLimited`] when the bucket is empty.
    pub fn take(&self, key: &K) -> Result<(), RateLimited> {
        self.take_many(key, NonZeroU32::MIN)
    }

    /// Takes several tokens from the bucket of `key`, at most a full bucket.
    ///
    /// # Errors
    /// [`RateLimited`] when the bucket has fewer.
    pub fn take_many(&self, key: &K, tokens: NonZeroU32) -> Result<(), RateLimited> {
        let taken = self.limiter.check_key_n(key, tokens.min(self.burst));
        // More tokens than a full bucket has are not asked for.
        let taken = taken.unwrap_or(Ok(()));
        taken.map_err(|refused| RateLimited {
            retry_after: refused.wait_time_from(self.limiter.clock().now()),
        })
    }

    /// Evicts full buckets.
    pub fn sweep(&self) {
        self.limiter.retain_recent();
        self.limiter.shrink_to_fit();
    }
}

/// Calls `buckets` every 30 s until draining begins; it calls [`TokenBuckets::sweep`] of its
/// buckets.
pub async fn sweep(buckets: impl Fn(), shutdown: Shutdown) {
    let mut ticks = tokio::time::interval(SWEEP_INTERVAL);
    loop {
        tokio::select! {
            _ = ticks.tick() => buckets(),
            () = shutdown.draining() => return,
        }
    }
}

impl RateLimited {
    /// Returns the delay in whole seconds, rounded up and at least 1, for `Retry-After`.
    #[must_use]
    pub fn retry_after_s(self) -> u64 {
        let whole = self.retry_after.as_secs();
        let more = u64::from(self.retry_after.subsec_nanos() > 0);
        whole.saturating_add(more).max(1)
    }
}

impl From<RateLimited> for Problem {
    fn from(refused: RateLimited) -> Self {
        let seconds = refused.retry_after_s();
        let detail =
            format!("The rate limit is exceeded; nothing was sent. Try again in {seconds} s.");
        Self::new(ProblemKind::RateLimited, detail).header(header::RETRY_AFTER, seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bucket_is_per_key() {
        let one = NonZeroU32::new(1).unwrap();
        let buckets: TokenBuckets<u8> = TokenBuckets::new(one, NonZeroU32::new(3).unwrap());
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
    fn many_tokens_are_taken_together() {
        let number = |number| NonZeroU32::new(number).unwrap();
        let buckets: TokenBuckets<u8> = TokenBuckets::new(number(1), number(10));
        assert_eq!(buckets.take_many(&1, number(6)), Ok(()));
        let refused = buckets.take_many(&1, number(6)).unwrap_err();
        assert!((1..=2).contains(&refused.retry_after_s()), "{refused:?}");
        assert_eq!(buckets.take_many(&1, number(4)), Ok(()));
        // More than a bucket has empties it.
        assert_eq!(buckets.take_many(&2, number(99)), Ok(()));
        assert!(buckets.take(&2).is_err());
    }

    #[test]
    fn retry_after_is_rounded_up() {
        fn check(milliseconds: u64, seconds: u64) {
            let refused = RateLimited {
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

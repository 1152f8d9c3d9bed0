//! The rate of new connections per address: a token bucket for each.

use std::{
    collections::HashMap,
    net::IpAddr,
    time::{Duration, Instant},
};

use switchboard_runtime::budget::Owner;

/// Addresses with a bucket. When the map is full, new addresses are not limited: the limit of
/// unauthenticated connections applies to them.
const MAX_ADDRESSES: usize = 65_536;

/// Sweeping a full map takes a while, so it is not done at every accept.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// An empty bucket is full after this time: the burst is two seconds' worth.
const REFILL_PERIOD: Duration = Duration::from_secs(2);

/// The buckets of all addresses. [`MAX_ADDRESSES`] and the removal of full buckets bound it.
#[derive(Debug)]
pub(super) struct AcceptRate {
    /// 0 means no limit.
    per_s: u32,
    buckets: HashMap<Owner, Bucket>,
    /// The last sweep of a full map.
    swept_at: Option<Instant>,
}

#[derive(Debug)]
struct Bucket {
    tokens: f64,
    refilled_at: Instant,
}

impl AcceptRate {
    pub(super) fn new(per_s: u32) -> Self {
        Self {
            per_s,
            buckets: HashMap::new(),
            swept_at: None,
        }
    }

    /// Takes a token of this address. Returns false when it has none.
    pub(super) fn take(&mut self, address: IpAddr, now: Instant) -> bool {
        if self.per_s == 0 {
            return true;
        }
        let (rate, burst) = (f64::from(self.per_s), f64::from(self.per_s) * 2.0);
        if self.buckets.len() >= MAX_ADDRESSES {
            let due = |swept| now.saturating_duration_since(swept) >= SWEEP_INTERVAL;
            if self.swept_at.is_none_or(due) {
                self.swept_at = Some(now);
                self.remove_full(now);
            }
            if self.buckets.len() >= MAX_ADDRESSES {
                return true;
            }
        }
        let full = Bucket {
            tokens: burst,
            refilled_at: now,
        };
        let bucket = self.buckets.entry(Owner::network(address)).or_insert(full);
        let elapsed = now.saturating_duration_since(bucket.refilled_at);
        bucket.tokens = rate
            .mul_add(elapsed.as_secs_f64(), bucket.tokens)
            .min(burst);
        bucket.refilled_at = now;
        let allowed = bucket.tokens >= 1.0;
        if allowed {
            bucket.tokens -= 1.0;
        }
        allowed
    }

    /// Removes every bucket that is full again: it equals a new one.
    pub(super) fn remove_full(&mut self, now: Instant) {
        self.buckets
            .retain(|_, bucket| now.saturating_duration_since(bucket.refilled_at) < REFILL_PERIOD);
        if self.buckets.is_empty() {
            self.buckets = HashMap::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn take_permits_the_burst_then_the_rate() {
        let start = Instant::now();
        let mut rate = AcceptRate::new(10);
        let mut check = |after_ms: u64, attempts: usize, expect: usize| {
            let now = start + Duration::from_millis(after_ms);
            let address = "10.0.0.1".parse().unwrap();
            let allowed = (0..attempts).filter(|_| rate.take(address, now)).count();
            assert_eq!(allowed, expect, "after {after_ms} ms");
        };
        check(0, 30, 20);
        check(50, 5, 0);
        check(100, 5, 1);
        check(10_000, 30, 20);
    }

    #[test]
    fn addresses_share_a_bucket_only_within_a_64() {
        let now = Instant::now();
        let mut rate = AcceptRate::new(1);
        let mut check = |address: &str, expect: bool| {
            let allowed = rate.take(address.parse().unwrap(), now);
            assert_eq!(allowed, expect, "{address}");
        };
        check("10.0.0.1", true);
        check("::ffff:10.0.0.1", true);
        check("10.0.0.1", false);
        check("10.0.0.2", true);
        check("2001:db8::1", true);
        check("2001:db8::2", true);
        check("2001:db8::3", false);
        check("2001:db8:0:1::3", true);
    }

    #[test]
    fn remove_full_frees_the_map() {
        let now = Instant::now();
        let mut rate = AcceptRate::new(1);
        rate.take("10.0.0.1".parse().unwrap(), now);
        rate.remove_full(now + Duration::from_secs(1));
        assert_eq!(rate.buckets.len(), 1);
        rate.remove_full(now + Duration::from_secs(2));
        assert_eq!(rate.buckets.capacity(), 0);
    }
}

//! How many connections one address may open per second: a token bucket for each.
//! Never: a map that grows with the number of addresses that ever came.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    time::{Duration, Instant},
};

/// Addresses kept at a time. When it is full, newcomers are not limited: the limit on
/// unauthenticated connections holds them.
const MAX_ADDRESSES: usize = 65_536;

const SWEEP_PAUSE: Duration = Duration::from_secs(1);

/// The buckets of all addresses.
#[derive(Debug)]
pub(super) struct AcceptRate {
    /// 0 = no limit.
    per_s: u32,
    buckets: HashMap<IpAddr, Bucket>,
    /// When a full map was last looked through; that takes a while and is not done at each accept.
    swept_at: Option<Instant>,
}

#[derive(Debug)]
struct Bucket {
    tokens: f64,
    filled_at: Instant,
}

impl AcceptRate {
    pub(super) fn new(per_s: u32) -> Self {
        Self {
            per_s,
            buckets: HashMap::new(),
            swept_at: None,
        }
    }

    /// Whether this address may open one more connection now.
    pub(super) fn take(&mut self, address: IpAddr, now: Instant) -> bool {
        if self.per_s == 0 {
            return true;
        }
        let (rate, burst) = (f64::from(self.per_s), f64::from(self.per_s) * 2.0);
        if self.buckets.len() >= MAX_ADDRESSES {
            let due = |swept| now.saturating_duration_since(swept) >= SWEEP_PAUSE;
            if self.swept_at.is_none_or(due) {
                self.swept_at = Some(now);
                self.forget_full(now);
            }
            if self.buckets.len() >= MAX_ADDRESSES {
                return true;
            }
        }
        let full = Bucket {
            tokens: burst,
            filled_at: now,
        };
        let bucket = self.buckets.entry(network(address)).or_insert(full);
        let elapsed = now.saturating_duration_since(bucket.filled_at);
        bucket.tokens = rate
            .mul_add(elapsed.as_secs_f64(), bucket.tokens)
            .min(burst);
        bucket.filled_at = now;
        let allowed = bucket.tokens >= 1.0;
        if allowed {
            bucket.tokens -= 1.0;
        }
        allowed
    }

    /// Drops every bucket that is full again by now: it says nothing that a new one does not.
    pub(super) fn forget_full(&mut self, now: Instant) {
        let refill = Duration::from_secs(2);
        self.buckets
            .retain(|_, bucket| now.saturating_duration_since(bucket.filled_at) < refill);
        if self.buckets.is_empty() {
            self.buckets = HashMap::new();
        }
    }
}

/// The one party behind an address: for IPv6 whoever has the /64.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from(u128::from(address) & (!0 << 64))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_its_rate_and_its_burst() {
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
    fn addresses_do_not_share_except_within_a_64() {
        let now = Instant::now();
        let mut rate = AcceptRate::new(1);
        let mut check = |address: &str, expect: bool| {
            assert_eq!(
                rate.take(address.parse().unwrap(), now),
                expect,
                "{address}"
            );
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
    fn what_is_full_again_is_forgotten() {
        let now = Instant::now();
        let mut rate = AcceptRate::new(1);
        rate.take("10.0.0.1".parse().unwrap(), now);
        rate.forget_full(now + Duration::from_secs(1));
        assert_eq!(rate.buckets.len(), 1);
        rate.forget_full(now + Duration::from_secs(2));
        assert_eq!(rate.buckets.capacity(), 0);
    }
}

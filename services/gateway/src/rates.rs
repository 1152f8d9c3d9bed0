//! How often a caller may ask and a device be called: a token bucket for each of them.
//! Never: a wait; what comes too often is refused at once, with the time after which it would not be.

use std::{hash::Hash, num::NonZeroU32, time::Duration};

use governor::{
    Quota, RateLimiter,
    clock::{Clock, DefaultClock},
    state::keyed::DashMapStateStore,
};
use http::{StatusCode, header};
use switchboard_identity::{Caller, Credential};
use switchboard_protocol::{
    access::Subject,
    id::{ApiKeyId, DeviceKey, OrgId},
    outcome::Delivered,
};
use switchboard_runtime::problem::Problem;

use crate::Config;

/// Buckets that fill up are forgotten this often. Protects memory.
pub(crate) const SWEEP_EVERY: Duration = Duration::from_secs(30);

/// The buckets of one gateway. They are not shared with other replicas: each lets this much through.
pub(crate) struct Rates {
    callers: Buckets<CallerId>,
    devices: Buckets<DeviceKey>,
}

/// Came too often.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooOften {
    /// When it would not be too often any more.
    pub(crate) retry_after: Duration,
}

/// Whoever shares a bucket and a limit: an API key, or the subject of access tokens, which outlives the token.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum CallerId {
    Key(ApiKeyId),
    Subject(OrgId, Subject),
}

struct Buckets<K: Hash + Eq + Clone> {
    limiter: RateLimiter<K, DashMapStateStore<K>, DefaultClock>,
}

impl Rates {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            callers: Buckets::new(config.caller_rate_per_s, config.caller_burst),
            devices: Buckets::new(config.called_device_rate_per_s, config.called_device_burst),
        }
    }

    /// Takes one request out of a caller's bucket.
    pub(crate) fn admit_caller(&self, caller: &Caller) -> Result<(), TooOften> {
        self.callers.take(&CallerId::of(caller))
    }

    /// Takes one call out of a device's bucket.
    pub(crate) fn admit_call(&self, device: &DeviceKey) -> Result<(), TooOften> {
        self.devices.take(device)
    }

    /// Forgets the buckets that are full again.
    pub(crate) fn sweep(&self) {
        self.callers.sweep();
        self.devices.sweep();
    }
}

impl CallerId {
    pub(crate) fn of(caller: &Caller) -> Self {
        match &caller.credential {
            Credential::ApiKey(id) => Self::Key(*id),
            Credential::AccessToken { subject, .. } => Self::Subject(caller.org, subject.clone()),
        }
    }
}

impl TooOften {
    /// In whole seconds and at least one, as `Retry-After` wants it.
    pub(crate) fn retry_after_s(self) -> u64 {
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
        .with("delivered", Delivered::No)
        .header(header::RETRY_AFTER, seconds)
    }
}

impl<K: Hash + Eq + Clone> Buckets<K> {
    fn new(rate_per_s: NonZeroU32, burst: NonZeroU32) -> Self {
        let quota = Quota::per_second(rate_per_s).allow_burst(burst);
        Self {
            limiter: RateLimiter::dashmap(quota),
        }
    }

    fn take(&self, key: &K) -> Result<(), TooOften> {
        self.limiter.check_key(key).map_err(|refused| TooOften {
            retry_after: refused.wait_time_from(self.limiter.clock().now()),
        })
    }

    fn sweep(&self) {
        self.limiter.retain_recent();
        self.limiter.shrink_to_fit();
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

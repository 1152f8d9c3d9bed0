//! A token bucket: permits a burst, then refills at a fixed interval.

/// The time at which the bucket is full, on the edge's clock: each token that is missing moves it by an
/// interval. The caller passes the burst, the interval and the time.
#[derive(Debug, Default)]
pub(crate) struct TokenBucket {
    full_at_ms: u64,
}

impl TokenBucket {
    /// Takes a token. A new bucket is full.
    ///
    /// # Errors
    /// The milliseconds until the next token, when none is left.
    pub(crate) fn take(&mut self, burst: u32, every_ms: u32, now_ms: u64) -> Result<(), u64> {
        let every_ms = u64::from(every_ms);
        let missing_ms = self.full_at_ms.saturating_sub(now_ms);
        let max_missing_ms = u64::from(burst.saturating_sub(1)) * every_ms;
        if burst == 0 || missing_ms > max_missing_ms {
            return Err(missing_ms.saturating_sub(max_missing_ms).max(1));
        }
        self.full_at_ms = now_ms + missing_ms + every_ms;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn take_after_the_burst_waits_for_the_interval() {
        let mut bucket = TokenBucket::default();
        let mut check = |now_ms, expect| {
            assert_eq!(bucket.take(2, 100, now_ms), expect, "at {now_ms} ms");
        };
        check(0, Ok(()));
        check(10, Ok(()));
        check(30, Err(70));
        check(100, Ok(()));
        check(150, Err(50));
        check(1000, Ok(()));
        check(1000, Ok(()));
        check(1000, Err(100));
    }
}

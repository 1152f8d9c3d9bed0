//! A token bucket: permits a burst, then refills at a fixed interval.

/// The tokens left. The caller passes the burst, the interval and the time.
#[derive(Debug)]
pub(crate) struct TokenBucket {
    tokens: u32,
    /// When the last token was added, on the edge's clock.
    refilled_ms: u64,
}

impl TokenBucket {
    /// A full bucket.
    pub(crate) const fn new(burst: u32, now_ms: u64) -> Self {
        Self {
            tokens: burst,
            refilled_ms: now_ms,
        }
    }

    /// Takes a token.
    ///
    /// # Errors
    /// The milliseconds until the next token, when none is left.
    pub(crate) fn take(&mut self, burst: u32, every_ms: u32, now_ms: u64) -> Result<(), u64> {
        let every_ms = u64::from(every_ms);
        let refill = now_ms.saturating_sub(self.refilled_ms) / every_ms;
        self.refilled_ms += refill * every_ms;
        let refill = u32::try_from(refill).unwrap_or(u32::MAX);
        self.tokens = self.tokens.saturating_add(refill).min(burst);
        match self.tokens.checked_sub(1) {
            Some(left) => {
                self.tokens = left;
                Ok(())
            }
            None => Err((self.refilled_ms + every_ms).saturating_sub(now_ms)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn take_after_the_burst_waits_for_the_interval() {
        let mut bucket = TokenBucket::new(2, 0);
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

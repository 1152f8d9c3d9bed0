//! How often a device may register, or say something of a call: a bucket that gives a few in a row and fills slowly.
//! Never: a clock or a timer of its own.

/// What is left in the bucket.
#[derive(Debug)]
pub(crate) struct Allowance {
    left: u32,
    /// On the edge's clock: when the last one was given back.
    filled_ms: u64,
}

impl Allowance {
    /// A full bucket.
    pub(crate) const fn new(burst: u32, now_ms: u64) -> Self {
        Self {
            left: burst,
            filled_ms: now_ms,
        }
    }

    /// Takes one, or says after how many milliseconds there will be one.
    pub(crate) fn take(&mut self, burst: u32, every_ms: u32, now_ms: u64) -> Result<(), u64> {
        let every_ms = u64::from(every_ms);
        let given_back = now_ms.saturating_sub(self.filled_ms) / every_ms;
        self.filled_ms += given_back * every_ms;
        let given_back = u32::try_from(given_back).unwrap_or(u32::MAX);
        self.left = self.left.saturating_add(given_back).min(burst);
        match self.left.checked_sub(1) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => Err((self.filled_ms + every_ms).saturating_sub(now_ms)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_a_burst_and_then_one_at_a_time() {
        let mut allowance = Allowance::new(2, 0);
        let mut check = |now_ms, expect| {
            assert_eq!(allowance.take(2, 100, now_ms), expect, "at {now_ms}");
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

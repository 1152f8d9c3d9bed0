//! Limits how fast audio arrives.

use std::time::Duration;

use tokio::time::Instant;

/// How much faster than it is recorded audio may arrive for long.
const MAX_SPEED: f64 = 1.5;
/// How far a device may be ahead, in seconds.
const MAX_AHEAD_S: f64 = 2.0;
/// Audio that the network held back may arrive at once, in seconds.
const MAX_BEHIND_S: f64 = 10.0;

/// How far a device is ahead of the time in which it can have recorded its audio.
///
/// One that is too far ahead is heard again when it no longer is, so decoding and analysing its audio
/// never takes more than [`MAX_SPEED`] of the usual work.
#[derive(Debug)]
pub(super) struct Speed {
    ahead_s: f64,
    measured: Instant,
    is_exceeded: bool,
}

impl Speed {
    pub(super) fn new() -> Self {
        Self {
            ahead_s: 0.0,
            measured: Instant::now(),
            is_exceeded: false,
        }
    }

    /// Whether the device was too far ahead, and still is ahead.
    pub(super) fn is_exceeded(&mut self) -> bool {
        let now = Instant::now();
        let passed = now.duration_since(self.measured).as_secs_f64();
        self.measured = now;
        self.ahead_s = (self.ahead_s - passed * MAX_SPEED).max(-MAX_BEHIND_S);
        self.is_exceeded &= self.ahead_s > 0.0;
        self.is_exceeded
    }

    /// Adds audio. Returns whether the device is too far ahead now.
    pub(super) fn add(&mut self, audio: Duration) -> bool {
        self.ahead_s += audio.as_secs_f64();
        self.is_exceeded |= self.ahead_s > MAX_AHEAD_S;
        self.is_exceeded
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{advance, pause};

    use super::*;

    #[tokio::test]
    async fn device_that_was_too_fast_is_heard_again() {
        pause();
        let mut speed = Speed::new();
        let second = Duration::from_secs(1);
        // A quarter of a second further ahead after each second.
        let fast = second * 7 / 4;
        for _ in 0..2 {
            assert!(!speed.add(fast));
            advance(second).await;
            assert!(!speed.is_exceeded());
        }
        assert!(speed.add(fast));
        advance(second).await;
        assert!(speed.is_exceeded());
        advance(second).await;
        assert!(!speed.is_exceeded());
        // The network held back three seconds.
        advance(3 * second).await;
        assert!(!speed.is_exceeded() && !speed.add(3 * second));
    }
}

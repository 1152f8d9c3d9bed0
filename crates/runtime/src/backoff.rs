//! Exponential backoff with full jitter for retries that never give up.

use std::time::Duration;

use crate::shutdown::Shutdown;

const MIN_BACKOFF: Duration = Duration::from_millis(100);
const MAX_BACKOFF: Duration = Duration::from_secs(1);

/// Backoff from 100 ms to 1 s, doubled after each failure. Full jitter keeps replicas from retrying
/// in step.
#[derive(Debug)]
pub struct Backoff(Duration);

impl Backoff {
    /// Creates a backoff at its shortest delay.
    #[must_use]
    pub const fn new() -> Self {
        Self(MIN_BACKOFF)
    }

    /// Resets the delay to the shortest, after a successful attempt.
    pub const fn reset(&mut self) {
        self.0 = MIN_BACKOFF;
    }

    /// Sleeps and doubles the next delay. Returns false if draining begins first.
    pub async fn pause(&mut self, shutdown: &Shutdown) -> bool {
        tokio::select! {
            () = tokio::time::sleep(self.next()) => true,
            () = shutdown.draining() => false,
        }
    }

    /// Like [`Self::pause`], for work that continues while draining: returns false when stopping
    /// begins.
    pub async fn pause_until_stopped(&mut self, shutdown: &Shutdown) -> bool {
        tokio::select! {
            () = tokio::time::sleep(self.next()) => true,
            () = shutdown.stopping() => false,
        }
    }

    fn next(&mut self) -> Duration {
        let pause = self.0.mul_f64(rand::random());
        self.0 = (self.0 * 2).min(MAX_BACKOFF);
        pause
    }
}

impl Default for Backoff {
    fn default() -> Self {
        Self::new()
    }
}

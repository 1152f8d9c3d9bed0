//! Pauses between attempts that must not give up.
//! Never: two replicas that come back in step.

use std::time::Duration;

use crate::shutdown::Shutdown;

const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(1);

/// Doubles up to a second, with full jitter: what was away is noticed again within a second.
#[derive(Debug)]
pub struct Backoff(Duration);

impl Backoff {
    /// One that has not failed yet.
    #[must_use]
    pub const fn new() -> Self {
        Self(FIRST)
    }

    /// The attempt succeeded: the next failure starts anew.
    pub const fn reset(&mut self) {
        self.0 = FIRST;
    }

    /// Waits, and waits longer the next time; false when draining began instead.
    pub async fn pause(&mut self, shutdown: &Shutdown) -> bool {
        tokio::select! {
            () = tokio::time::sleep(self.next()) => true,
            () = shutdown.draining() => false,
        }
    }

    /// The same for work that a drain waits for: false when everything is to end now.
    pub async fn pause_until_stopped(&mut self, shutdown: &Shutdown) -> bool {
        tokio::select! {
            () = tokio::time::sleep(self.next()) => true,
            () = shutdown.stopping() => false,
        }
    }

    fn next(&mut self) -> Duration {
        let pause = self.0.mul_f64(rand::random());
        self.0 = (self.0 * 2).min(LONGEST);
        pause
    }
}

impl Default for Backoff {
    fn default() -> Self {
        Self::new()
    }
}

//! Pauses between attempts that must not give up.
//! Never: two replicas that come back in step.

use std::time::Duration;

use switchboard_runtime::shutdown::Shutdown;

const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(1);

/// Doubles up to a second, with full jitter: what was away is noticed again within a second.
#[derive(Debug)]
pub(crate) struct Backoff(Duration);

impl Backoff {
    pub(crate) const fn new() -> Self {
        Self(FIRST)
    }

    /// The attempt succeeded: the next failure starts anew.
    pub(crate) const fn reset(&mut self) {
        self.0 = FIRST;
    }

    /// Waits, and waits longer the next time; false when draining began instead.
    pub(crate) async fn pause(&mut self, shutdown: &Shutdown) -> bool {
        let pause = self.0.mul_f64(rand::random());
        self.0 = (self.0 * 2).min(LONGEST);
        tokio::select! {
            () = tokio::time::sleep(pause) => true,
            () = shutdown.draining() => false,
        }
    }
}

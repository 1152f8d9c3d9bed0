//! Waits for a value or a condition with a deadline.

use std::{
    fmt::Debug,
    future::{self, Future},
    time::{Duration, Instant},
};

/// Deadline of a wait for which the test names none.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval between two polls.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Polls until the value is as expected. Panics with the last value on a timeout.
pub async fn eventually<T, F>(
    within: Duration,
    mut poll: impl FnMut() -> F,
    is_expected: impl Fn(&T) -> bool,
) -> T
where
    T: Debug,
    F: Future<Output = T>,
{
    let deadline = Instant::now() + within;
    loop {
        let value = poll().await;
        if is_expected(&value) {
            return value;
        }
        assert!(
            Instant::now() < deadline,
            "still {value:?} after {within:?}"
        );
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Polls until there is a value. Panics with the description after ten seconds.
pub async fn eventually_some<T, F>(what: &str, mut poll: impl FnMut() -> F) -> T
where
    F: Future<Output = Option<T>>,
{
    let deadline = Instant::now() + DEFAULT_TIMEOUT;
    loop {
        if let Some(value) = poll().await {
            return value;
        }
        assert!(
            Instant::now() < deadline,
            "{what}: not within {DEFAULT_TIMEOUT:?}"
        );
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Polls until the condition holds. Panics with the description after ten seconds.
pub async fn eventually_true(what: &str, mut holds: impl FnMut() -> bool) {
    eventually_some(what, || future::ready(holds().then_some(()))).await;
}

//! Polls a value until it is as expected, with a timeout.

use std::{
    fmt::Debug,
    future::Future,
    time::{Duration, Instant},
};

/// Between two polls.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Polls until the value is as expected. Panics with the last value on a timeout.
pub async fn eventually<T, F>(
    within: Duration,
    mut ask: impl FnMut() -> F,
    wanted: impl Fn(&T) -> bool,
) -> T
where
    T: Debug,
    F: Future<Output = T>,
{
    let deadline = Instant::now() + within;
    loop {
        let answer = ask().await;
        if wanted(&answer) {
            return answer;
        }
        assert!(
            Instant::now() < deadline,
            "still {answer:?} after {within:?}"
        );
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

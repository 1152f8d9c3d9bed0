//! Waiting for a value: asked again until it is there, never longer than it may take.
//! Never: a pause that hopes.

use std::{
    fmt::Debug,
    future::Future,
    time::{Duration, Instant},
};

/// Between two looks at something that is awaited.
const POLL: Duration = Duration::from_millis(5);

/// Asks until the answer is what is wanted, and says what it was when it never is.
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
        tokio::time::sleep(POLL).await;
    }
}

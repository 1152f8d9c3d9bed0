//! Wall-clock time, for timestamps. Not for measuring durations: the clock can be set back.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Returns the time since the Unix epoch; zero for a clock before it.
#[must_use]
pub fn unix_time() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

/// Returns the time since the Unix epoch in milliseconds.
#[must_use]
pub fn unix_now_ms() -> u64 {
    u64::try_from(unix_time().as_millis()).unwrap_or(u64::MAX)
}

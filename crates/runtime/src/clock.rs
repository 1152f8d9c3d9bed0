//! The time of day, as it is sent, stored and shown.
//! Never: a measure of how long something took; clocks are set.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Since 1970; a clock before that counts as 1970.
#[must_use]
pub fn unix_time() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

/// The same in whole milliseconds.
#[must_use]
pub fn unix_now_ms() -> u64 {
    u64::try_from(unix_time().as_millis()).unwrap_or(u64::MAX)
}

//! The reply of a role process to one command, as one line of JSON.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The reply to `run`, `open`, `count` and `close`.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub(crate) struct Reply {
    /// Number of successful operations, or of open connections.
    pub(crate) count: u64,
    /// Number of failed operations or connections.
    pub(crate) errors: u64,
    /// Those of the failed operations that certainly did not reach a device.
    pub(crate) undelivered: u64,
    /// Message of the first failure.
    pub(crate) first_error: Option<String>,
    /// Time from the start of the first operation to the end of the last, in microseconds.
    pub(crate) elapsed_us: f64,
    /// Median latency in microseconds; 0 if no latency was measured.
    pub(crate) p50_us: f64,
    /// 99th percentile of the latency, in microseconds.
    pub(crate) p99_us: f64,
}

/// A failed call that was not delivered to its device.
#[derive(Debug, thiserror::Error)]
#[error("not delivered: {0}")]
pub(crate) struct Undelivered(pub(crate) String);

impl Reply {
    /// Aggregates the latencies of single operations, in nanoseconds.
    pub(crate) fn from_latencies(mut nanoseconds: Vec<u32>, elapsed: Duration) -> Self {
        nanoseconds.sort_unstable();
        Self {
            count: nanoseconds.len() as u64,
            elapsed_us: elapsed.as_secs_f64() * 1e6,
            p50_us: quantile(&nanoseconds, 50),
            p99_us: quantile(&nanoseconds, 99),
            ..Self::default()
        }
    }

    /// Counts a failure and keeps the message of the first one.
    pub(crate) fn record_failure(&mut self, error: &anyhow::Error) {
        self.errors += 1;
        self.undelivered += u64::from(error.is::<Undelivered>());
        self.first_error.get_or_insert_with(|| format!("{error:#}"));
    }
}

fn quantile(sorted: &[u32], percent: usize) -> f64 {
    let index = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted
        .get(index)
        .map_or(0.0, |nanoseconds| f64::from(*nanoseconds) / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reply_from_latencies_has_ordered_quantiles() {
        let reply = Reply::from_latencies(
            (1..=100).rev().map(|us| us * 1000).collect(),
            Duration::ZERO,
        );
        assert_eq!(
            (reply.count, reply.p50_us, reply.p99_us),
            (100, 51.0, 100.0)
        );
        assert_eq!(
            Reply::from_latencies(Vec::new(), Duration::ZERO).p99_us,
            0.0
        );
    }
}

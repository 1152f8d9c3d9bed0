//! What a role process answers to one command, as one line of JSON.
//! Never: a figure without the number of operations behind it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The answer to `run`, `open`, `count` and `close`.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub(crate) struct Reply {
    /// Operations that succeeded, or connections that are open.
    pub(crate) count: u64,
    /// Those that failed.
    pub(crate) errors: u64,
    /// What the first failure said.
    pub(crate) first_error: Option<String>,
    /// From the first start to the last end, in microseconds.
    pub(crate) elapsed_us: f64,
    /// Median latency in microseconds; 0 where none was taken.
    pub(crate) p50_us: f64,
    /// Latency that one operation in a hundred exceeds, in microseconds.
    pub(crate) p99_us: f64,
}

impl Reply {
    /// Sums up single latencies in nanoseconds.
    pub(crate) fn of(mut nanoseconds: Vec<u32>, elapsed: Duration) -> Self {
        nanoseconds.sort_unstable();
        Self {
            count: nanoseconds.len() as u64,
            elapsed_us: elapsed.as_secs_f64() * 1e6,
            p50_us: quantile(&nanoseconds, 50),
            p99_us: quantile(&nanoseconds, 99),
            ..Self::default()
        }
    }

    /// Counts a failure and keeps what the first one said.
    pub(crate) fn fail(&mut self, error: &anyhow::Error) {
        self.errors += 1;
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
    fn quantiles_are_taken_in_order() {
        let reply = Reply::of(
            (1..=100).rev().map(|us| us * 1000).collect(),
            Duration::ZERO,
        );
        assert_eq!(
            (reply.count, reply.p50_us, reply.p99_us),
            (100, 51.0, 100.0)
        );
        assert_eq!(Reply::of(Vec::new(), Duration::ZERO).p99_us, 0.0);
    }
}

//! Metrics of speech providers.

use std::time::Duration;

use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry};

use crate::failure::Failure;

/// From a local program to a slow service.
const SECONDS: [f64; 10] = [0.05, 0.1, 0.2, 0.4, 0.7, 1.0, 1.5, 2.5, 5.0, 10.0];

/// The values of the label `outcome`.
const OUTCOMES: [&str; 6] = [
    "ok",
    "timed_out",
    "busy",
    "rejected",
    "invalid",
    "unavailable",
];

/// The direction; the label `kind`.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Direction {
    Recognition,
    Synthesis,
}

/// Metrics of the providers of both directions. Clones share their counts.
#[derive(Debug, Clone)]
pub(crate) struct Metrics {
    requests: IntCounterVec,
    seconds: HistogramVec,
}

impl Direction {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Recognition => "stt",
            Self::Synthesis => "tts",
        }
    }
}

impl Metrics {
    pub(crate) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let requests = Opts::new(
            "switchboard_voice_provider_requests_total",
            "Requests to speech providers, by outcome",
        );
        let seconds = HistogramOpts::new(
            "switchboard_voice_provider_seconds",
            "Time from the last audio of an utterance to its transcript, or from a sentence to its first audio",
        );
        let metrics = Self {
            requests: IntCounterVec::new(requests, &["kind", "provider", "outcome"])?,
            seconds: HistogramVec::new(seconds.buckets(SECONDS.to_vec()), &["kind", "provider"])?,
        };
        registry.register(Box::new(metrics.requests.clone()))?;
        registry.register(Box::new(metrics.seconds.clone()))?;
        Ok(metrics)
    }

    /// Creates the series of a provider, so that they are zero before its first request.
    pub(crate) fn add(&self, direction: Direction, provider: &str) {
        for outcome in OUTCOMES {
            let labels = [direction.as_str(), provider, outcome];
            self.requests.with_label_values(&labels);
        }
        let labels = [direction.as_str(), provider];
        self.seconds.with_label_values(&labels);
    }

    /// Counts a request that has ended.
    pub(crate) fn count<T>(
        &self,
        direction: Direction,
        provider: &str,
        result: &Result<T, Failure>,
    ) {
        let outcome = match result {
            Ok(_) => "ok",
            Err(Failure::TimedOut) => "timed_out",
            Err(Failure::Busy(_)) => "busy",
            Err(Failure::Unauthorized(_) | Failure::Rejected(_)) => "rejected",
            Err(Failure::Invalid(_)) => "invalid",
            Err(Failure::Unavailable(_)) => "unavailable",
        };
        let labels = [direction.as_str(), provider, outcome];
        self.requests.with_label_values(&labels).inc();
    }

    /// Records how long a provider took.
    pub(crate) fn observe(&self, direction: Direction, provider: &str, took: Duration) {
        let labels = [direction.as_str(), provider];
        let seconds = took.as_secs_f64();
        self.seconds.with_label_values(&labels).observe(seconds);
    }
}

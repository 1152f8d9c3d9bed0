//! Metrics of requests by provider.

use prometheus::{CounterVec, HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry};
use tokio::time::Instant;

use crate::{CompletionError, Usage};

const FIRST_TOKEN_BUCKETS: [f64; 10] = [0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 2.0, 5.0, 10.0, 20.0];
const REQUEST_BUCKETS: [f64; 10] = [0.25, 0.5, 1.0, 2.0, 3.5, 5.0, 10.0, 20.0, 40.0, 90.0];

/// Outcome of a request that was dropped.
const CANCELLED: &str = "cancelled";
/// Outcome of a request with a complete reply.
const COMPLETE: &str = "complete";
/// Kinds of tokens.
const KINDS: [&str; 2] = ["prompt", "completion"];

/// Metrics of all providers.
#[derive(Debug)]
pub(crate) struct Metrics {
    requests: IntCounterVec,
    seconds: HistogramVec,
    tokens: IntCounterVec,
    cost: CounterVec,
    first_token: HistogramVec,
}

impl Metrics {
    /// Creates the metrics. All series of these providers exist from the start, with 0.
    pub(crate) fn new<'a>(
        providers: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, prometheus::Error> {
        let first_token = HistogramOpts::new(
            "switchboard_completions_first_token_seconds",
            "Seconds from a request to the first token of its reply",
        );
        let seconds = HistogramOpts::new(
            "switchboard_completions_request_seconds",
            "Seconds from a request to its end, by outcome",
        );
        let metrics = Self {
            requests: IntCounterVec::new(
                Opts::new(
                    "switchboard_completions_requests_total",
                    "Requests to providers, by outcome",
                ),
                &["provider", "outcome"],
            )?,
            seconds: HistogramVec::new(
                seconds.buckets(REQUEST_BUCKETS.to_vec()),
                &["provider", "outcome"],
            )?,
            tokens: IntCounterVec::new(
                Opts::new(
                    "switchboard_completions_tokens_total",
                    "Tokens of prompts and replies, as reported by the providers",
                ),
                &["provider", "kind"],
            )?,
            cost: CounterVec::new(
                Opts::new(
                    "switchboard_completions_cost_total",
                    "Cost of these tokens, in the currency of the configured prices",
                ),
                &["provider"],
            )?,
            first_token: HistogramVec::new(
                first_token.buckets(FIRST_TOKEN_BUCKETS.to_vec()),
                &["provider"],
            )?,
        };
        providers
            .into_iter()
            .for_each(|provider| metrics.init_series(provider));
        Ok(metrics)
    }

    /// Looking a series up creates it.
    fn init_series(&self, provider: &str) {
        let outcomes = [COMPLETE, CANCELLED];
        for outcome in outcomes.into_iter().chain(CompletionError::KINDS) {
            let _ = self.requests.with_label_values(&[provider, outcome]);
            let _ = self.seconds.with_label_values(&[provider, outcome]);
        }
        for kind in KINDS {
            let _ = self.tokens.with_label_values(&[provider, kind]);
        }
        let _ = self.cost.with_label_values(&[provider]);
        let _ = self.first_token.with_label_values(&[provider]);
    }

    pub(crate) fn register(&self, registry: &Registry) -> Result<(), prometheus::Error> {
        registry.register(Box::new(self.requests.clone()))?;
        registry.register(Box::new(self.seconds.clone()))?;
        registry.register(Box::new(self.tokens.clone()))?;
        registry.register(Box::new(self.cost.clone()))?;
        registry.register(Box::new(self.first_token.clone()))
    }

    /// Starts the timer of a request. The request is counted when the timer is dropped.
    pub(crate) fn start<'a>(&'a self, provider: &'a str) -> RequestTimer<'a> {
        RequestTimer {
            metrics: self,
            provider,
            started_at: Instant::now(),
            outcome: CANCELLED,
        }
    }
}

/// A request in progress.
#[derive(Debug)]
pub(crate) struct RequestTimer<'a> {
    metrics: &'a Metrics,
    provider: &'a str,
    started_at: Instant,
    outcome: &'static str,
}

impl RequestTimer<'_> {
    pub(crate) fn record_first_token(&self) {
        let first_token = &self.metrics.first_token;
        first_token
            .with_label_values(&[self.provider])
            .observe(self.started_at.elapsed().as_secs_f64());
    }

    /// Sets the outcome of a request without a complete reply.
    pub(crate) fn fail(&mut self, outcome: &'static str) {
        self.outcome = outcome;
    }

    /// Sets the outcome of a request with a complete reply.
    pub(crate) fn complete(&mut self) {
        self.outcome = COMPLETE;
    }

    /// Counts the usage, whatever the outcome.
    pub(crate) fn record_usage(&self, usage: &Usage) {
        let counts = [usage.prompt_tokens, usage.completion_tokens];
        for (kind, tokens) in KINDS.into_iter().zip(counts) {
            let counter = &self.metrics.tokens;
            counter
                .with_label_values(&[self.provider, kind])
                .inc_by(tokens);
        }
        let cost = self.metrics.cost.with_label_values(&[self.provider]);
        cost.inc_by(usage.cost);
    }
}

impl Drop for RequestTimer<'_> {
    fn drop(&mut self) {
        let labels = [self.provider, self.outcome];
        self.metrics.requests.with_label_values(&labels).inc();
        let seconds = self.metrics.seconds.with_label_values(&labels);
        seconds.observe(self.started_at.elapsed().as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_is_counted_once_by_outcome() {
        let metrics = Metrics::new(["a"]).unwrap();
        let usage = Usage {
            prompt_tokens: 3,
            completion_tokens: 2,
            cost: 0.5,
        };
        let mut whole = metrics.start("a");
        whole.record_usage(&usage);
        whole.complete();
        drop(whole);
        metrics.start("a").fail("late");
        metrics.start("a").record_first_token();
        for outcome in ["complete", "late", "cancelled"] {
            let counter = metrics.requests.with_label_values(&["a", outcome]);
            assert_eq!(counter.get(), 1, "{outcome}");
            let seconds = metrics.seconds.with_label_values(&["a", outcome]);
            assert_eq!(seconds.get_sample_count(), 1, "{outcome}");
        }
        let tokens = |kind| metrics.tokens.with_label_values(&["a", kind]).get();
        assert_eq!((tokens("prompt"), tokens("completion")), (3, 2));
        assert_eq!(metrics.cost.with_label_values(&["a"]).get(), 0.5);
        let first = metrics.first_token.with_label_values(&["a"]);
        assert_eq!(first.get_sample_count(), 1);
    }

    #[test]
    fn metrics_are_registered_once() {
        let (metrics, registry) = (Metrics::new(["a"]).unwrap(), Registry::new());
        metrics.register(&registry).unwrap();
        assert!(metrics.register(&registry).is_err());
    }
}

//! What is counted of requests, by provider.
//! Never: a label that does not come from the operator or from this code.

use prometheus::{CounterVec, HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry};
use tokio::time::Instant;

use crate::{CompletionError, Usage};

const SECONDS: [f64; 10] = [0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 2.0, 5.0, 10.0, 20.0];
/// Whole replies take longer than their first word.
const WHOLE_SECONDS: [f64; 10] = [0.25, 0.5, 1.0, 2.0, 3.5, 5.0, 10.0, 20.0, 40.0, 90.0];

/// The outcome of a request that its caller did not wait for.
const CANCELLED: &str = "cancelled";
/// The outcome of a request with a whole reply.
const COMPLETE: &str = "complete";
/// What tokens are of.
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
    /// For these providers; all that can be counted of them is there from now on.
    pub(crate) fn new<'a>(
        providers: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, prometheus::Error> {
        let first_token = HistogramOpts::new(
            "switchboard_completions_first_token_seconds",
            "Time from a request to the first sign of a reply",
        );
        let seconds = HistogramOpts::new(
            "switchboard_completions_request_seconds",
            "Time from a request to its end, by outcome",
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
                seconds.buckets(WHOLE_SECONDS.to_vec()),
                &["provider", "outcome"],
            )?,
            tokens: IntCounterVec::new(
                Opts::new(
                    "switchboard_completions_tokens_total",
                    "Tokens of replies and of what was asked for them, as far as providers say",
                ),
                &["provider", "kind"],
            )?,
            cost: CounterVec::new(
                Opts::new(
                    "switchboard_completions_cost_total",
                    "What that costs, in the unit of the prices that are set",
                ),
                &["provider"],
            )?,
            first_token: HistogramVec::new(first_token.buckets(SECONDS.to_vec()), &["provider"])?,
        };
        providers
            .into_iter()
            .for_each(|provider| metrics.show(provider));
        Ok(metrics)
    }

    /// To look a series up is to make it.
    fn show(&self, provider: &str) {
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

    /// Counts a request when the guard is told how it ended, or dropped.
    pub(crate) fn begin<'a>(&'a self, provider: &'a str) -> Asked<'a> {
        Asked {
            metrics: self,
            provider,
            begun: Instant::now(),
            outcome: CANCELLED,
        }
    }
}

/// A request under way.
#[derive(Debug)]
pub(crate) struct Asked<'a> {
    metrics: &'a Metrics,
    provider: &'a str,
    begun: Instant,
    outcome: &'static str,
}

impl Asked<'_> {
    /// The first sign of a reply is there.
    pub(crate) fn first_token(&self) {
        let first_token = &self.metrics.first_token;
        first_token
            .with_label_values(&[self.provider])
            .observe(self.begun.elapsed().as_secs_f64());
    }

    /// It ended without a whole reply.
    pub(crate) fn fail(&mut self, outcome: &'static str) {
        self.outcome = outcome;
    }

    /// It ended with a whole reply.
    pub(crate) fn complete(&mut self) {
        self.outcome = COMPLETE;
    }

    /// The provider said what it takes, however it ended.
    pub(crate) fn takes(&self, usage: &Usage) {
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

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        let labels = [self.provider, self.outcome];
        self.metrics.requests.with_label_values(&labels).inc();
        let seconds = self.metrics.seconds.with_label_values(&labels);
        seconds.observe(self.begun.elapsed().as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_counted_once_however_it_ends() {
        let metrics = Metrics::new(["a"]).unwrap();
        let usage = Usage {
            prompt_tokens: 3,
            completion_tokens: 2,
            cost: 0.5,
        };
        let mut whole = metrics.begin("a");
        whole.takes(&usage);
        whole.complete();
        drop(whole);
        metrics.begin("a").fail("late");
        metrics.begin("a").first_token();
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
    fn a_registry_takes_them_once() {
        let (metrics, registry) = (Metrics::new(["a"]).unwrap(), Registry::new());
        metrics.register(&registry).unwrap();
        assert!(metrics.register(&registry).is_err());
    }
}

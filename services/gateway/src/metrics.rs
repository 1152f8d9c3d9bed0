//! What the gateway counts.
//! Never: a label that names an organisation, a device or a caller.

use std::time::Instant;

use prometheus::{Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, Opts, Registry};
use switchboard_protocol::outcome::Outcome;

const SECONDS: [f64; 14] = [
    0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 300.0,
];

/// The label of calls that the bus did not take.
const UNAVAILABLE: &str = "unavailable";

pub(crate) struct Metrics {
    by_outcome: [IntCounter; Outcome::ALL.len()],
    unavailable: IntCounter,
    seconds: Histogram,
    in_flight: IntGauge,
}

impl Metrics {
    pub(crate) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let calls = IntCounterVec::new(
            Opts::new("switchboard_gateway_calls_total", "Calls by outcome."),
            &["outcome"],
        )?;
        let seconds = HistogramOpts::new(
            "switchboard_gateway_call_seconds",
            "Time from a call's request to its outcome.",
        );
        let seconds = Histogram::with_opts(seconds.buckets(SECONDS.to_vec()))?;
        let in_flight = IntGauge::new("switchboard_gateway_calls_in_flight", "Calls under way.")?;
        registry.register(Box::new(calls.clone()))?;
        registry.register(Box::new(seconds.clone()))?;
        registry.register(Box::new(in_flight.clone()))?;
        Ok(Self {
            by_outcome: Outcome::ALL.map(|outcome| calls.with_label_values(&[outcome.as_str()])),
            unavailable: calls.with_label_values(&[UNAVAILABLE]),
            seconds,
            in_flight,
        })
    }

    /// Counts a call as under way until the guard is told how it ended.
    pub(crate) fn begin(&self) -> InFlight<'_> {
        self.in_flight.inc();
        InFlight {
            metrics: self,
            started: Instant::now(),
            ended: false,
        }
    }

    fn count(&self, outcome: Outcome) {
        if let Some(counter) = self.by_outcome.get(usize::from(outcome.code())) {
            counter.inc();
        }
    }
}

/// A call under way. Dropped without an end it was cancelled: its caller has left.
pub(crate) struct InFlight<'a> {
    metrics: &'a Metrics,
    started: Instant,
    ended: bool,
}

impl InFlight<'_> {
    pub(crate) fn settle(mut self, outcome: Outcome) {
        self.ended = true;
        self.metrics.count(outcome);
        self.metrics
            .seconds
            .observe(self.started.elapsed().as_secs_f64());
    }

    /// The bus did not take the call.
    pub(crate) fn refuse(mut self) {
        self.ended = true;
        self.metrics.unavailable.inc();
    }
}

impl InFlight<'_> {
    /// The call was not delivered and is none of this moment any more: it waits.
    pub(crate) fn put_back(mut self) {
        self.ended = true;
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.metrics.in_flight.dec();
        if !self.ended {
            self.metrics.count(Outcome::Cancelled);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_counted_once_however_it_ends() {
        let metrics = Metrics::new(&Registry::new()).unwrap();
        metrics.begin().settle(Outcome::Failed);
        metrics.begin().refuse();
        let call = metrics.begin();
        assert_eq!(metrics.in_flight.get(), 1);
        drop(call);
        assert_eq!(metrics.in_flight.get(), 0);
        assert_eq!(metrics.unavailable.get(), 1);
        assert_eq!(metrics.seconds.get_sample_count(), 1);
        for outcome in Outcome::ALL {
            let expected = u64::from(matches!(outcome, Outcome::Failed | Outcome::Cancelled));
            assert_eq!(
                metrics.by_outcome[usize::from(outcome.code())].get(),
                expected
            );
        }
    }
}

//! What the gateway counts.
//! Never: a label that names an organisation, a device or a caller.

use std::time::Instant;

use prometheus::{Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, Opts, Registry};
use switchboard_protocol::{id::OrgId, outcome::Outcome};
use switchboard_runtime::shutdown::Shutdown;
use switchboard_store::Store;

use crate::usage::Usage;

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
    usage: Usage,
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
            usage: Usage::new(registry)?,
        })
    }

    /// Writes what each organisation's calls come to, until draining begins and they have ended.
    pub(crate) async fn write_usage(&self, store: Store, shutdown: Shutdown) {
        self.usage.run(&self.in_flight, store, shutdown).await;
    }

    /// Counts a call of this organisation as under way until the guard is told how it ended.
    pub(crate) fn begin(&self, org: OrgId) -> InFlight<'_> {
        self.in_flight.inc();
        InFlight {
            metrics: self,
            org,
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
    org: OrgId,
    started: Instant,
    ended: bool,
}

impl InFlight<'_> {
    pub(crate) fn settle(mut self, outcome: Outcome) {
        self.ended = true;
        self.count(outcome);
        self.metrics
            .seconds
            .observe(self.started.elapsed().as_secs_f64());
    }

    /// The bus did not take the call.
    pub(crate) fn refuse(mut self) {
        self.ended = true;
        self.metrics.unavailable.inc();
        self.used(UNAVAILABLE);
    }

    fn count(&self, outcome: Outcome) {
        self.metrics.count(outcome);
        self.used(outcome.as_str());
    }

    fn used(&self, outcome: &'static str) {
        let took = self.started.elapsed();
        self.metrics.usage.count(self.org, outcome, took);
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
            self.count(Outcome::Cancelled);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_counted_once_however_it_ends() {
        let metrics = Metrics::new(&Registry::new()).unwrap();
        let org = OrgId::from_uuid(uuid::Uuid::from_u128(1));
        metrics.begin(org).settle(Outcome::Failed);
        metrics.begin(org).refuse();
        let call = metrics.begin(org);
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

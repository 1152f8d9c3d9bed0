//! The gateway's metrics, and the usage of each organisation.
//!
//! Invariant: no label names an organisation, a device or a caller.

use std::time::{Duration, Instant};

use chrono::Utc;
use prometheus::{IntCounter, IntGauge, Registry};
use switchboard_protocol::{id::DeviceKey, outcome::Outcome};
use switchboard_runtime::{
    labels,
    latency::Latency,
    metrics::{Counters, Group, Label, SECONDS},
    shutdown::Shutdown,
};
use switchboard_store::{
    CallJournal, CountedCalls, Store, UsageByCounter, UsageCounter, UsageDimension, UsageSums,
};

/// The label `outcome` of `calls_total`.
#[derive(Debug, Clone, Copy)]
enum CallResult {
    Ended(Outcome),
    /// The bus did not accept the call.
    Unavailable,
    /// The params exceed the limit. The caller receives `overloaded`; the label differs because
    /// the cause is the request, not load.
    TooLarge,
}

impl Label for CallResult {
    fn all() -> impl Iterator<Item = Self> {
        let ended = Outcome::ALL.into_iter().map(Self::Ended);
        ended.chain([Self::Unavailable, Self::TooLarge])
    }

    fn index(self) -> usize {
        match self {
            Self::Ended(outcome) => outcome.code().into(),
            Self::Unavailable => Outcome::ALL.len(),
            Self::TooLarge => Outcome::ALL.len() + 1,
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Ended(outcome) => outcome.as_str(),
            Self::Unavailable => "unavailable",
            Self::TooLarge => "too_large",
        }
    }
}

labels! {
    /// The limit that a refused request exceeded.
    pub(crate) enum ShedReason {
        /// Requests per caller.
        CallerRate => "caller_rate",
        /// The rate of an organisation.
        OrgRate => "org_rate",
        /// Calls per device.
        DeviceRate => "device_rate",
        /// Queued calls per device.
        DeviceQueue => "device_queue",
        /// Queued calls per organisation.
        OrgQueue => "org_queue",
        /// Asynchronous calls in flight.
        AsyncCalls => "kept_calls",
        /// MCP listeners per caller.
        Listeners => "listeners",
    }
}

pub(crate) struct Metrics {
    calls: Counters<CallResult>,
    seconds: Latency,
    in_flight: IntGauge,
    /// Calls in the queues of all gateways, as of this gateway's last scan.
    pub(crate) queued: IntGauge,
    pub(crate) shed: Counters<ShedReason>,
    usage: UsageCounter<CountedCalls>,
    usage_by: UsageByCounter,
    usage_lost: IntCounter,
    /// Synchronous calls that are not in the journal.
    pub(crate) left_out: IntCounter,
}

impl Metrics {
    pub(crate) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let group = Group::new(registry, "switchboard_gateway");
        let seconds = "Time from a call's request to its outcome";
        let queued = "Queued calls of all gateways, as of this gateway's last scan";
        let shed = "Requests refused because of a limit, by limit";
        let lost = "Calls missing from the usage of their organisations because the buffer of \
                    unwritten sums was full";
        let left_out = "Synchronous calls missing in the journal because there were too many at the \
                        same time";
        Ok(Self {
            calls: group.counters("calls_total", "Calls by outcome", "outcome")?,
            seconds: group.latency("call_seconds", seconds, &SECONDS)?,
            in_flight: group.gauge("calls_in_flight", "Calls in flight")?,
            queued: group.gauge("calls_waiting", queued)?,
            shed: group.counters("shed_total", shed, "reason")?,
            usage: UsageCounter::default(),
            usage_by: UsageByCounter::default(),
            usage_lost: group.counter("usage_lost_total", lost)?,
            left_out: group.counter("journal_left_out_total", left_out)?,
        })
    }

    /// Writes the usage and the journal to the database until `shutdown` drains and no call is in
    /// flight.
    pub(crate) async fn write_calls(
        &self,
        journal: &CallJournal,
        store: Store,
        shutdown: Shutdown,
    ) {
        let in_flight = || self.in_flight.get() > 0;
        tokio::join!(
            self.usage.run(in_flight, store.clone(), shutdown.clone()),
            self.usage_by
                .run(in_flight, store.clone(), shutdown.clone()),
            journal.run(in_flight, store, shutdown),
        );
    }

    /// Counts a call as in flight until the guard is completed or dropped.
    pub(crate) fn begin_call<'a>(
        &'a self,
        device: &'a DeviceKey,
        service: &'a str,
    ) -> InFlightCall<'a> {
        self.in_flight.inc();
        InFlightCall {
            metrics: self,
            device,
            service,
            started: Instant::now(),
            counted: false,
        }
    }

    /// Counts calls that the database ended because they were overdue.
    pub(crate) fn count_overdue(&self, expired_calls: usize, lost_calls: usize) {
        let expired = CallResult::Ended(Outcome::Expired);
        self.calls.inc_by(expired, expired_calls as u64);
        let lost = CallResult::Ended(Outcome::Lost);
        self.calls.inc_by(lost, lost_calls as u64);
    }

    fn count(
        &self,
        (device, service): (&DeviceKey, &str),
        result: CallResult,
        outcome: &'static str,
        elapsed: Duration,
    ) {
        self.calls.inc(result);
        let (org, now) = (device.org, Utc::now());
        let call = CountedCalls::new(org, now, outcome, elapsed);
        let sums = UsageSums::call(elapsed);
        // Callers can invent names of what does not exist.
        let (device, service) = match result {
            CallResult::Ended(Outcome::UnknownDevice) => ("", ""),
            CallResult::Ended(Outcome::UnknownService) => (device.device.as_str(), ""),
            _ => (device.device.as_str(), service),
        };
        let dimensions = [
            (UsageDimension::Device, device),
            (UsageDimension::Service, service),
        ];
        let mut is_counted = self.usage.count(&call);
        for dimension in dimensions {
            is_counted &= self.usage_by.count((org, now), dimension, outcome, &sums);
        }
        if !is_counted {
            self.usage_lost.inc();
        }
    }
}

/// A call in flight. If dropped without an outcome it counts as cancelled: its caller disconnected.
pub(crate) struct InFlightCall<'a> {
    metrics: &'a Metrics,
    device: &'a DeviceKey,
    service: &'a str,
    started: Instant,
    counted: bool,
}

impl InFlightCall<'_> {
    pub(crate) fn complete(mut self, outcome: Outcome) {
        let elapsed = self.started.elapsed();
        self.count(CallResult::Ended(outcome), outcome.as_str(), elapsed);
        self.metrics.seconds.observe(elapsed);
    }

    /// The bus did not accept the call.
    pub(crate) fn unavailable(mut self) {
        let result = CallResult::Unavailable;
        self.count(result, result.as_str(), self.started.elapsed());
    }

    /// The params exceed the limit.
    pub(crate) fn too_large(mut self) {
        let outcome = Outcome::Overloaded.as_str();
        self.count(CallResult::TooLarge, outcome, self.started.elapsed());
    }

    /// The call was not delivered and returns to its queue.
    pub(crate) fn requeued(mut self) {
        self.counted = true;
    }

    fn count(&mut self, result: CallResult, outcome: &'static str, elapsed: Duration) {
        self.counted = true;
        let called = (self.device, self.service);
        self.metrics.count(called, result, outcome, elapsed);
    }
}

impl Drop for InFlightCall<'_> {
    fn drop(&mut self) {
        self.metrics.in_flight.dec();
        if !self.counted {
            let cancelled = Outcome::Cancelled;
            let elapsed = self.started.elapsed();
            self.count(CallResult::Ended(cancelled), cancelled.as_str(), elapsed);
        }
    }
}

#[cfg(test)]
mod tests {
    use switchboard_protocol::id::OrgId;

    use super::*;

    #[test]
    fn call_is_counted_exactly_once() {
        let metrics = Metrics::new(&Registry::new()).unwrap();
        let device = DeviceKey {
            org: OrgId::from_uuid(uuid::Uuid::from_u128(1)),
            device: "toy-1".parse().unwrap(),
        };
        let begin = || metrics.begin_call(&device, "wave");
        begin().complete(Outcome::Failed);
        begin().unavailable();
        begin().too_large();
        metrics.count_overdue(3, 2);
        let call = begin();
        assert_eq!(metrics.in_flight.get(), 1);
        drop(call);
        assert_eq!(metrics.in_flight.get(), 0);
        assert_eq!(metrics.seconds.count(), 1);
        for result in CallResult::all() {
            let expected = match result.as_str() {
                "failed" | "cancelled" | "unavailable" | "too_large" => 1,
                "expired" => 3,
                "lost" => 2,
                // `too_large` does not count as `overloaded`.
                _ => 0,
            };
            assert_eq!(metrics.calls.get(result), expected, "{result:?}");
        }
    }
}

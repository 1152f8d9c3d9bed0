//! What the gateway counts.
//! Never: a label that names an organisation, a device or a caller.

use std::time::{Duration, Instant};

use prometheus::{IntGauge, Registry};
use switchboard_protocol::{id::OrgId, outcome::Outcome};
use switchboard_runtime::{
    labels,
    latency::Latency,
    metrics::{Counters, Group, Label, SECONDS},
    shutdown::Shutdown,
};
use switchboard_store::{SettledCalls, Store};

use crate::usage::Usage;

/// How a call is counted.
#[derive(Debug, Clone, Copy)]
enum Counted {
    /// It ended so.
    Ended(Outcome),
    /// The bus did not take it.
    Unavailable,
    /// Its params were larger than any may be. Its caller is told `overloaded`, but waiting would not help, and it is
    /// nobody's fault here.
    TooLarge,
}

impl Label for Counted {
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
    /// The limit for which something was refused.
    pub(crate) enum Shed {
        /// How often a caller may ask.
        CallerRate => "caller_rate",
        /// How often a device may be called.
        DeviceRate => "device_rate",
        /// Calls that wait for a device.
        DeviceQueue => "device_queue",
        /// Calls that wait in an organisation.
        OrgQueue => "org_queue",
        /// Calls under way that nobody waits for.
        KeptCalls => "kept_calls",
        /// Listeners of a caller.
        Listeners => "listeners",
    }
}

pub(crate) struct Metrics {
    calls: Counters<Counted>,
    seconds: Latency,
    in_flight: IntGauge,
    /// Calls in queues, of all gateways, as of the last look.
    pub(crate) queued: IntGauge,
    pub(crate) shed: Counters<Shed>,
    usage: Usage,
}

impl Metrics {
    pub(crate) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let group = Group::new(registry, "switchboard_gateway");
        let seconds = "Time from a call's request to its outcome";
        let queued = "Calls that wait in queues for their devices, of all gateways, as of this one's last look";
        let shed = "Requests refused because of a limit, by that limit";
        Ok(Self {
            calls: group.counters("calls_total", "Calls by outcome", "outcome")?,
            seconds: group.latency("call_seconds", seconds, &SECONDS)?,
            in_flight: group.gauge("calls_in_flight", "Calls under way")?,
            queued: group.gauge("calls_waiting", queued)?,
            shed: group.counters("shed_total", shed, "reason")?,
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

    /// Counts calls that ended on record only, with no gateway at them.
    pub(crate) fn settled(&self, settled: SettledCalls) {
        let expired = Counted::Ended(Outcome::Expired);
        self.calls.inc_by(expired, settled.expired);
        let lost = Counted::Ended(Outcome::Lost);
        self.calls.inc_by(lost, settled.lost);
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
        let took = self.started.elapsed();
        self.count(Counted::Ended(outcome), outcome.as_str(), took);
        self.metrics.seconds.observe(took);
    }

    /// The bus did not take the call.
    pub(crate) fn refuse(mut self) {
        let counted = Counted::Unavailable;
        self.count(counted, counted.as_str(), self.started.elapsed());
    }

    /// Its params are larger than any may be.
    pub(crate) fn too_large(mut self) {
        let told = Outcome::Overloaded.as_str();
        self.count(Counted::TooLarge, told, self.started.elapsed());
    }

    /// The call was not delivered and is none of this moment any more: it waits.
    pub(crate) fn put_back(mut self) {
        self.ended = true;
    }

    fn count(&mut self, counted: Counted, told: &'static str, took: Duration) {
        self.ended = true;
        self.metrics.calls.inc(counted);
        self.metrics.usage.count(self.org, told, took);
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.metrics.in_flight.dec();
        if !self.ended {
            let cancelled = Outcome::Cancelled;
            let took = self.started.elapsed();
            self.count(Counted::Ended(cancelled), cancelled.as_str(), took);
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
        metrics.begin(org).too_large();
        metrics.settled(SettledCalls {
            expired: 3,
            lost: 2,
        });
        let call = metrics.begin(org);
        assert_eq!(metrics.in_flight.get(), 1);
        drop(call);
        assert_eq!(metrics.in_flight.get(), 0);
        assert_eq!(metrics.seconds.count(), 1);
        for counted in Counted::all() {
            let expected = match counted.as_str() {
                "failed" | "cancelled" | "unavailable" | "too_large" => 1,
                "expired" => 3,
                "lost" => 2,
                // What is too large is no matter of load.
                _ => 0,
            };
            assert_eq!(metrics.calls.get(counted), expected, "{counted:?}");
        }
    }
}

//! What the edge counts about itself.
//! Never: a label whose values an outsider chooses (devices, orgs and services stay out of labels).

use prometheus::{
    Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, Opts, Registry, core::Collector,
};
use switchboard_protocol::outcome::Outcome;

/// Every metric of one edge.
#[derive(Debug)]
pub(crate) struct Metrics {
    /// Sockets held, authenticated or not.
    pub(crate) connections: IntGauge,
    /// Of those, the ones without a valid AUTH so far.
    pub(crate) unauthenticated: IntGauge,
    /// Accepts that failed, by kind.
    pub(crate) accept_errors: IntCounterVec,
    /// Connections turned away at the door, by the limit that did it.
    pub(crate) shed: IntCounterVec,
    /// Connections that never got as far as AUTH accepted, by reason.
    pub(crate) refused: IntCounterVec,
    /// Authenticated connections that ended, by reason.
    pub(crate) left: IntCounterVec,
    /// Bytes from devices.
    pub(crate) received_bytes: IntCounter,
    /// Bytes to devices.
    pub(crate) sent_bytes: IntCounter,
    /// Frames from devices.
    pub(crate) received_frames: IntCounter,
    /// Frames to devices that carry a call.
    pub(crate) dispatched: IntCounter,
    /// Calls devices are busy with, as of the last look.
    pub(crate) in_flight: IntGauge,
    /// Results dropped because nothing waited for them, by kind.
    pub(crate) stray_results: IntCounterVec,
    /// Messages from devices that are only counted, by kind.
    pub(crate) notes: IntCounterVec,
    /// What devices said of calls and nobody was told, by the limit that did it.
    pub(crate) notices_dropped: IntCounterVec,
    /// Register messages, by result.
    pub(crate) registrations: IntCounterVec,
    /// Seconds to take in one register message.
    pub(crate) register_seconds: Histogram,
    /// Calls this edge ended, by outcome, in the order of the outcomes' codes.
    calls: [IntCounter; Outcome::ALL.len()],
}

impl Metrics {
    /// Creates and registers them.
    pub(crate) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let calls = vec(
            registry,
            "calls_total",
            "Calls ended by this edge.",
            "outcome",
        )?;
        Ok(Self {
            connections: gauge(registry, "connections", "Device connections.")?,
            unauthenticated: gauge(
                registry,
                "unauthenticated",
                "Device connections before AUTH.",
            )?,
            accept_errors: vec(registry, "accept_errors_total", "Failed accepts.", "kind")?,
            shed: vec(registry, "shed_total", "Connections turned away.", "limit")?,
            refused: vec(registry, "refused_total", "Connections refused.", "reason")?,
            left: vec(registry, "left_total", "Connections ended.", "reason")?,
            received_bytes: counter(registry, "received_bytes_total", "Bytes from devices.")?,
            sent_bytes: counter(registry, "sent_bytes_total", "Bytes to devices.")?,
            received_frames: counter(registry, "received_frames_total", "Frames from devices.")?,
            dispatched: counter(registry, "dispatched_total", "Calls written to devices.")?,
            in_flight: gauge(registry, "calls_in_flight", "Calls devices are busy with.")?,
            stray_results: vec(
                registry,
                "stray_results_total",
                "Results that nothing waited for, dropped.",
                "kind",
            )?,
            notes: vec(
                registry,
                "notes_total",
                "Messages that end no call.",
                "kind",
            )?,
            notices_dropped: vec(
                registry,
                "notices_dropped_total",
                "What devices said of running calls, beyond what they may say.",
                "limit",
            )?,
            registrations: vec(registry, "registrations_total", "Registrations.", "result")?,
            register_seconds: register(
                registry,
                Histogram::with_opts(HistogramOpts::new(
                    name("register_seconds"),
                    "Time to take in one register message.",
                ))?,
            )?,
            calls: Outcome::ALL.map(|outcome| calls.with_label_values(&[outcome.as_str()])),
        })
    }

    /// One more call ended like this.
    pub(crate) fn ended(&self, outcome: Outcome) {
        if let Some(counter) = self.calls.get(usize::from(outcome.code())) {
            counter.inc();
        }
    }
}

fn name(part: &str) -> String {
    format!("switchboard_edge_{part}")
}

fn register<C: Collector + Clone + 'static>(
    registry: &Registry,
    collector: C,
) -> Result<C, prometheus::Error> {
    registry.register(Box::new(collector.clone()))?;
    Ok(collector)
}

fn counter(registry: &Registry, part: &str, help: &str) -> Result<IntCounter, prometheus::Error> {
    register(registry, IntCounter::new(name(part), help)?)
}

fn gauge(registry: &Registry, part: &str, help: &str) -> Result<IntGauge, prometheus::Error> {
    register(registry, IntGauge::new(name(part), help)?)
}

fn vec(
    registry: &Registry,
    part: &str,
    help: &str,
    label: &str,
) -> Result<IntCounterVec, prometheus::Error> {
    register(
        registry,
        IntCounterVec::new(Opts::new(name(part), help), &[label])?,
    )
}

//! What the edge counts about itself.
//! Never: a label whose values an outsider chooses (devices, orgs and services stay out of labels).

use prometheus::{Histogram, IntCounter, IntCounterVec, IntGauge, Registry};
use switchboard_bus::LeftReason;
use switchboard_protocol::outcome::Outcome;
use switchboard_runtime::{
    labels,
    metrics::{Counters, Group, Label},
};

use crate::{
    accept::HEADERS,
    connection::refusals,
    link::{Stray, TurnEnd},
};

/// From services that were seen before to a set that takes all that the budget allows.
const REGISTER_SECONDS: [f64; 14] = [
    0.000_01, 0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025,
    0.05, 0.1, 0.5,
];

labels! {
    /// Why a connection could not be accepted.
    pub(crate) enum AcceptError {
        /// Its peer had gone.
        Peer => "peer",
        /// There are no descriptors, or no memory.
        Resources => "resources",
    }
}

labels! {
    /// The limit that a new connection was beyond.
    pub(crate) enum Limit {
        AcceptsPerAddress => "accepts_per_address",
        MaxConnections => "max_connections",
        MaxUnauthenticated => "max_unauthenticated",
    }
}

labels! {
    /// A message from a device that is only counted.
    pub(crate) enum Note {
        Rejected => "rejected",
        Progress => "progress",
        Log => "log",
        Cancel => "cancel",
        Text => "text",
        Audio => "audio",
        Event => "event",
        EventDropped => "event_dropped",
    }
}

labels! {
    /// The limit that a device's word of a call was beyond.
    pub(crate) enum NoticeLimit {
        Bytes => "bytes",
        Rate => "rate",
    }
}

labels! {
    /// What became of a register message.
    pub(crate) enum Registered {
        Accepted => "accepted",
        /// In force here, and not in the directory.
        Unannounced => "unannounced",
        Refused => "refused",
    }
}

/// How a call ended.
#[derive(Debug, Clone, Copy)]
struct Ended(Outcome);

impl Label for Ended {
    fn all() -> impl Iterator<Item = Self> {
        Outcome::ALL.into_iter().map(Self)
    }

    fn index(self) -> usize {
        self.0.code().into()
    }

    fn as_str(self) -> &'static str {
        self.0.as_str()
    }
}

/// Every metric of one edge.
#[derive(Debug)]
pub(crate) struct Metrics {
    /// Sockets held, authenticated or not.
    pub(crate) connections: IntGauge,
    /// Of those, the ones without a valid AUTH so far.
    pub(crate) unauthenticated: IntGauge,
    /// Accepts that failed.
    pub(crate) accept_errors: Counters<AcceptError>,
    /// Connections turned away at the door, by the limit that did it.
    pub(crate) shed: Counters<Limit>,
    /// What balancers said at the beginning of a connection, by what became of it.
    pub(crate) proxy_headers: IntCounterVec,
    /// Connections that never got as far as AUTH accepted, by reason.
    pub(crate) refused: IntCounterVec,
    /// Authenticated connections that ended, by reason.
    pub(crate) left: Counters<LeftReason>,
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
    /// Calls that wait to be written to devices, as of the last look.
    pub(crate) queued: IntGauge,
    /// Results dropped because nothing waited for them.
    pub(crate) stray_results: Counters<Stray>,
    /// Messages from devices that are only counted.
    pub(crate) notes: Counters<Note>,
    /// Turns of devices, by how they ended.
    pub(crate) turns: Counters<TurnEnd>,
    /// What devices said of calls and nobody was told, by the limit that did it.
    pub(crate) notices_dropped: Counters<NoticeLimit>,
    /// Register messages, by result.
    pub(crate) registrations: Counters<Registered>,
    /// Seconds to take in one register message.
    pub(crate) register_seconds: Histogram,
    /// Calls this edge ended.
    calls: Counters<Ended>,
}

impl Metrics {
    /// Creates and registers them.
    pub(crate) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let group = Group::new(registry, "switchboard_edge");
        let counter = |name, help| group.counter(name, help);
        let gauge = |name, help| group.gauge(name, help);
        let refused = "Connections refused";
        let headers = "PROXY headers of balancers";
        let strays = "Results that nothing waited for, dropped";
        let unheard = "What devices said of running calls, beyond what they may say";
        let registering = "Time to take in one register message";
        let bounds = &REGISTER_SECONDS;
        Ok(Self {
            connections: gauge("connections", "Device connections")?,
            unauthenticated: gauge("unauthenticated", "Device connections before AUTH")?,
            accept_errors: group.counters("accept_errors_total", "Failed accepts", "kind")?,
            shed: group.counters("shed_total", "Connections turned away", "limit")?,
            proxy_headers: group.named_counters(
                "proxy_headers_total",
                headers,
                "outcome",
                HEADERS,
            )?,
            refused: group.named_counters("refused_total", refused, "reason", refusals())?,
            left: group.counters("left_total", "Connections ended", "reason")?,
            received_bytes: counter("received_bytes_total", "Bytes from devices")?,
            sent_bytes: counter("sent_bytes_total", "Bytes to devices")?,
            received_frames: counter("received_frames_total", "Frames from devices")?,
            dispatched: counter("dispatched_total", "Calls written to devices")?,
            in_flight: gauge("calls_in_flight", "Calls devices are busy with")?,
            queued: gauge("calls_queued", "Calls that wait for devices")?,
            stray_results: group.counters("stray_results_total", strays, "kind")?,
            notes: group.counters("notes_total", "Messages that end no call", "kind")?,
            turns: group.counters("turns_total", "Turns of devices that ended", "end")?,
            notices_dropped: group.counters("notices_dropped_total", unheard, "limit")?,
            registrations: group.counters("registrations_total", "Registrations", "result")?,
            register_seconds: group.histogram("register_seconds", registering, bounds)?,
            calls: group.counters("calls_total", "Calls ended by this edge", "outcome")?,
        })
    }

    /// One more call ended like this.
    pub(crate) fn ended(&self, outcome: Outcome) {
        self.calls.inc(Ended(outcome));
    }
}

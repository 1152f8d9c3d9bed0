//! The metrics of an edge.
//!
//! Invariant: no label value comes from outside. Devices, organisations and services are no labels.

use prometheus::{Histogram, IntCounter, IntCounterVec, IntGauge, Registry};
use switchboard_bus::DisconnectReason;
use switchboard_protocol::outcome::Outcome;
use switchboard_runtime::{
    labels,
    metrics::{Counters, Group, Label},
};

use crate::{
    accept::PROXY_HEADER_LABELS,
    connection::refusal_labels,
    handle::{TurnEnd, UnmatchedResult},
    voice::VoiceMetrics,
};

/// From services that another device already registered to a set that uses the whole budget.
const REGISTER_SECONDS: [f64; 14] = [
    0.000_01, 0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025,
    0.05, 0.1, 0.5,
];

labels! {
    /// Why an accept failed.
    pub(crate) enum AcceptError {
        /// The peer disconnected.
        Peer => "peer",
        /// File descriptors or memory are exhausted.
        Resources => "resources",
    }
}

labels! {
    /// The limit that a new connection exceeded.
    pub(crate) enum Limit {
        AcceptsPerAddress => "accepts_per_address",
        MaxConnections => "max_connections",
        MaxUnauthenticated => "max_unauthenticated",
        TlsHandshakes => "tls_handshakes",
    }
}

labels! {
    /// A message of a device that is neither a result nor a registration.
    pub(crate) enum Note {
        Rejected => "rejected",
        Progress => "progress",
        Log => "log",
        Cancel => "cancel",
        Text => "text",
        Audio => "audio",
        Picture => "picture",
        Event => "event",
        EventDropped => "event_dropped",
    }
}

labels! {
    /// The limit that a notification about a call exceeded.
    pub(crate) enum NotificationLimit {
        Bytes => "bytes",
        Rate => "rate",
    }
}

labels! {
    /// Why a result is marked as not matching the output schema of its service.
    pub(crate) enum InvalidResult {
        /// It does not match, or is too large to be checked.
        Mismatch => "mismatch",
        /// There was no time for the check.
        Unchecked => "unchecked",
    }
}

labels! {
    /// The result of a register message.
    pub(crate) enum Registered {
        Accepted => "accepted",
        /// In force here, and not in the directory yet.
        Unannounced => "unannounced",
        Refused => "refused",
    }
}

/// [`Outcome`] as a label.
#[derive(Debug, Clone, Copy)]
struct CallOutcome(Outcome);

impl Label for CallOutcome {
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

/// All metrics of one edge.
#[derive(Debug)]
pub(crate) struct Metrics {
    /// Open sockets, authenticated or not.
    pub(crate) connections: IntGauge,
    /// Open sockets before a valid AUTH.
    pub(crate) unauthenticated: IntGauge,
    pub(crate) accept_errors: Counters<AcceptError>,
    /// Connections that a limit refused at accept.
    pub(crate) shed: Counters<Limit>,
    /// Connections of balancers, by the result of reading the PROXY header.
    pub(crate) proxy_headers: IntCounterVec,
    /// Connections whose handshake failed.
    pub(crate) refused: IntCounterVec,
    /// Authenticated connections that closed.
    pub(crate) left: Counters<DisconnectReason>,
    pub(crate) received_bytes: IntCounter,
    pub(crate) sent_bytes: IntCounter,
    pub(crate) received_frames: IntCounter,
    /// Calls written to devices.
    pub(crate) dispatched: IntCounter,
    /// Calls written and not complete, as of the last sweep.
    pub(crate) in_flight: IntGauge,
    /// Calls that wait to be written, as of the last sweep.
    pub(crate) queued: IntGauge,
    pub(crate) unmatched_results: Counters<UnmatchedResult>,
    /// Results that were delivered with a mark.
    pub(crate) invalid_results: Counters<InvalidResult>,
    pub(crate) notes: Counters<Note>,
    pub(crate) turns: Counters<TurnEnd>,
    /// Notifications about calls that a limit dropped.
    pub(crate) notifications_dropped: Counters<NotificationLimit>,
    pub(crate) registrations: Counters<Registered>,
    /// Time to validate and compile the services of a register message.
    pub(crate) register_seconds: Histogram,
    pub(crate) voice: VoiceMetrics,
    /// Calls that this edge ended.
    calls: Counters<CallOutcome>,
}

impl Metrics {
    /// Creates and registers the metrics.
    pub(crate) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let group = Group::new(registry, "switchboard_edge");
        let counter = |name, help| group.counter(name, help);
        let gauge = |name, help| group.gauge(name, help);
        let refused = "Connections refused during the handshake";
        let headers = "Connections of balancers, by the result of reading the PROXY header";
        let unmatched = "Results dropped because no call in flight matches";
        let invalid = "Results delivered that do not match the output schema of their service";
        let notes = "Messages of devices other than results and registrations";
        let dropped = "Progress and log messages about calls that a limit dropped";
        let registering = "Time to validate and compile a register message";
        let bounds = &REGISTER_SECONDS;
        Ok(Self {
            connections: gauge("connections", "Open device connections")?,
            unauthenticated: gauge("unauthenticated", "Open device connections before AUTH")?,
            accept_errors: group.counters("accept_errors_total", "Failed accepts", "kind")?,
            shed: group.counters("shed_total", "Connections refused by a limit", "limit")?,
            proxy_headers: group.named_counters(
                "proxy_headers_total",
                headers,
                "outcome",
                PROXY_HEADER_LABELS,
            )?,
            refused: group.named_counters("refused_total", refused, "reason", refusal_labels())?,
            left: group.counters("left_total", "Authenticated connections closed", "reason")?,
            received_bytes: counter("received_bytes_total", "Bytes received from devices")?,
            sent_bytes: counter("sent_bytes_total", "Bytes sent to devices")?,
            received_frames: counter("received_frames_total", "Frames received from devices")?,
            dispatched: counter("dispatched_total", "Calls written to devices")?,
            in_flight: gauge(
                "calls_in_flight",
                "Calls written to devices and not complete",
            )?,
            queued: gauge("calls_queued", "Calls waiting to be written to devices")?,
            unmatched_results: group.counters("stray_results_total", unmatched, "kind")?,
            invalid_results: group.counters("invalid_results_total", invalid, "reason")?,
            notes: group.counters("notes_total", notes, "kind")?,
            turns: group.counters("turns_total", "Turns of devices that ended", "end")?,
            notifications_dropped: group.counters("notices_dropped_total", dropped, "limit")?,
            registrations: group.counters("registrations_total", "Registrations", "result")?,
            register_seconds: group.histogram("register_seconds", registering, bounds)?,
            voice: VoiceMetrics::new(registry)?,
            calls: group.counters("calls_total", "Calls ended by this edge", "outcome")?,
        })
    }

    /// Counts a call that ended.
    pub(crate) fn count_call(&self, outcome: Outcome) {
        self.calls.inc(CallOutcome(outcome));
    }
}

//! What the bus counts.
//! Never: a label that grows with devices, nodes or callers.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use prometheus::{Histogram, IntCounter, IntGauge, Registry};
use switchboard_runtime::{
    labels,
    metrics::{Group, Histograms},
};

use crate::{backend::Figures, bus::Node};

/// How all names begin.
const PREFIX: &str = "switchboard_bus";

/// From a Redis on the same machine to one that is about to be given up.
const SECONDS: [f64; 12] = [
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0,
];

/// Counters of one node's bus.
#[derive(Debug, Clone)]
pub(crate) struct Metrics {
    pub(crate) up: IntGauge,
    pub(crate) reconnects: IntCounter,
    pub(crate) packs: IntCounter,
    pub(crate) received: IntCounter,
    pub(crate) malformed: IntCounter,
    pub(crate) late: IntCounter,
    pub(crate) dropped: IntCounter,
    pub(crate) notices_dropped: IntCounter,
    pub(crate) facts_dropped: IntCounter,
    pub(crate) conversations_dropped: IntCounter,
    pub(crate) round_trip: Histogram,
    pub(crate) commands: Histograms<Command>,
    pub(crate) shared: Shared,
    pub(crate) heard: HeardAt,
}

/// When this node's inbox was last known to be heard; clones are one. Inside one process it always is.
#[derive(Debug, Clone)]
pub(crate) struct HeardAt(Arc<Heard>);

#[derive(Debug)]
struct Heard {
    started: Instant,
    after_ms: AtomicU64,
}

/// It is heard at any time.
const ALWAYS: u64 = u64::MAX;

impl HeardAt {
    fn new() -> Self {
        Self(Arc::new(Heard {
            started: Instant::now(),
            after_ms: AtomicU64::new(ALWAYS),
        }))
    }

    /// From here on it has to be heard.
    pub(crate) fn expect(&self) {
        self.note(Instant::now());
    }

    /// It was heard then.
    pub(crate) fn note(&self, at: Instant) {
        let after = at.saturating_duration_since(self.0.started).as_millis();
        let after = u64::try_from(after).unwrap_or(ALWAYS - 1);
        self.0.after_ms.store(after, Ordering::Relaxed);
    }

    fn age(&self, now: Instant) -> Duration {
        match self.0.after_ms.load(Ordering::Relaxed) {
            ALWAYS => Duration::ZERO,
            after => {
                let age = now.saturating_duration_since(self.0.started);
                age.saturating_sub(Duration::from_millis(after))
            }
        }
    }
}

labels! {
    /// What is asked of Redis, and timed.
    pub(crate) enum Command {
        /// A pack, until it is read that Redis has it.
        Publish => "publish",
        /// A device's connection takes its place in the directory.
        Claim => "claim",
        /// Entries go into the directory, or out of it.
        Enter => "enter",
        /// Who holds devices.
        Lookup => "lookup",
        /// A node's lease, and a look for those that have ended.
        Renew => "renew",
        /// Something goes onto a stream, or is struck out there.
        Stream => "stream",
    }
}

/// Registers what is looked up when somebody asks.
///
/// # Errors
/// When the registry has metrics of these names already.
pub(crate) fn watch(node: &Arc<Node>, registry: &Registry) -> Result<(), prometheus::Error> {
    let group = Group::new(registry, PREFIX);
    let gauge = |name: &str, help: &str, look: fn(&Node) -> usize| {
        let node: Weak<Node> = Arc::downgrade(node);
        #[expect(clippy::cast_precision_loss, reason = "exact up to 2⁵³")]
        let value = move || node.upgrade().map_or(0.0, |node| look(&node) as f64);
        group.pulled(name, help, value)
    };
    gauge(
        "remembered_devices",
        "Devices of which this node remembers who holds them",
        |node| node.remembered.len(),
    )?;
    gauge("backlog", "Envelopes that wait to be published", |node| {
        node.courier.waiting()
    })
}

impl Metrics {
    /// Registers them.
    ///
    /// # Errors
    /// When the registry has metrics of these names already.
    pub(crate) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let group = Group::new(registry, PREFIX);
        let counter = |name, help| group.counter(name, help);
        let heard = HeardAt::new();
        let age = heard.clone();
        group.pulled(
            "probe_age_seconds",
            "Time since this node's inbox was last known to be heard, by a probe that came back or by other traffic",
            move || age.age(Instant::now()).as_secs_f64(),
        )?;
        Ok(Self {
            up: group.gauge("up", "Whether this node's inbox is verified to be heard")?,
            reconnects: counter(
                "reconnects_total",
                "Connections to the bus that were built and verified",
            )?,
            packs: counter("packs_sent_total", "Packs published to other nodes")?,
            received: counter(
                "envelopes_received_total",
                "Envelopes that came to this node's inbox",
            )?,
            malformed: counter(
                "malformed_total",
                "Messages at this node's inbox that no node of this version wrote",
            )?,
            late: counter(
                "answers_late_total",
                "Answers to calls that had ended already",
            )?,
            dropped: counter(
                "envelopes_dropped_total",
                "Envelopes given up because their node was not listening or too much waited for it",
            )?,
            notices_dropped: counter(
                "notices_dropped_total",
                "Notices of running calls given up because their caller or the way to it had no room",
            )?,
            facts_dropped: counter(
                "facts_dropped_total",
                "Facts given up because the bus was away for too long",
            )?,
            conversations_dropped: counter(
                "conversations_dropped_total",
                "Conversations given up before their time for new ones of this node, because too many are kept",
            )?,
            round_trip: group.histogram(
                "round_trip_seconds",
                "Time until a probe of this node's own inbox, or of its echo at a shard, came back; each is probed when nothing else is heard there for 2 s",
                &SECONDS,
            )?,
            commands: group.histograms(
                "command_seconds",
                "Time of a command at Redis; of publish until its reply is read, which may be 2 ms after it came",
                "command",
                &SECONDS,
            )?,
            shared: Shared::new(&group)?,
            heard,
        })
    }
}

/// What all nodes share, as this one saw it last: each says the same, so it is not to be added up.
#[derive(Debug, Clone)]
pub(crate) struct Shared {
    devices: IntGauge,
    facts: IntGauge,
    turns: IntGauge,
}

impl Shared {
    fn new(group: &Group<'_>) -> Result<Self, prometheus::Error> {
        Ok(Self {
            devices: group.gauge(
                "directory_devices",
                "Devices in the directory, of all nodes; counted once a minute by one node for all",
            )?,
            facts: group.gauge(
                "facts_waiting",
                "Facts that wait on their stream to be written, of all nodes",
            )?,
            turns: group.gauge(
                "turns_waiting",
                "Turns that wait on their stream for somebody who answers them, of all nodes",
            )?,
        })
    }

    pub(crate) fn show(&self, figures: &Figures) {
        self.devices.set(figures.devices);
        self.facts.set(figures.facts);
        self.turns.set(figures.turns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inbox_that_has_to_be_heard_grows_old() {
        let heard = HeardAt::new();
        let at = |seconds| heard.0.started + Duration::from_secs(seconds);
        assert_eq!(heard.age(at(5)), Duration::ZERO, "inside one process");
        heard.expect();
        assert_eq!(heard.age(at(5)), Duration::from_secs(5));
        heard.note(at(3));
        assert_eq!(heard.age(at(5)), Duration::from_secs(2));
    }
}

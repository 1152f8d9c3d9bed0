//! The metrics of the bus.
//!
//! Invariant: no label has a value for each device, node or caller.

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
    metrics::{Counters, Group, Histograms},
};

use crate::{backend::Stats, bus::Node};

/// The prefix of all names.
const PREFIX: &str = "switchboard_bus";

/// From a Redis server on the same machine to one that is about to time out.
const BUCKETS_SECONDS: [f64; 12] = [
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0,
];

/// The metrics of one node.
#[derive(Debug, Clone)]
pub(crate) struct Metrics {
    pub(crate) up: IntGauge,
    pub(crate) reconnects: IntCounter,
    pub(crate) batches: IntCounter,
    pub(crate) received: IntCounter,
    pub(crate) malformed: IntCounter,
    pub(crate) unknown: IntCounter,
    pub(crate) late: IntCounter,
    pub(crate) dropped: IntCounter,
    pub(crate) notices_dropped: IntCounter,
    pub(crate) key_sets_refused: IntCounter,
    pub(crate) facts_dropped: IntCounter,
    pub(crate) conversations_dropped: IntCounter,
    pub(crate) refused: Counters<BusBudget>,
    pub(crate) round_trip: Histogram,
    pub(crate) commands: Histograms<Command>,
    pub(crate) totals: Totals,
    pub(crate) last_activity: LastActivity,
}

/// When something was last received on this node's own channels; clones share the value. Inside
/// one process the age is always zero.
#[derive(Debug, Clone)]
pub(crate) struct LastActivity(Arc<Activity>);

#[derive(Debug)]
struct Activity {
    created: Instant,
    after_ms: AtomicU64,
}

/// The value of a node that needs no activity.
const ALWAYS: u64 = u64::MAX;

impl LastActivity {
    fn new() -> Self {
        Self(Arc::new(Activity {
            created: Instant::now(),
            after_ms: AtomicU64::new(ALWAYS),
        }))
    }

    /// Begins to measure the age.
    pub(crate) fn start(&self) {
        self.record(Instant::now());
    }

    pub(crate) fn record(&self, at: Instant) {
        let after = at.saturating_duration_since(self.0.created).as_millis();
        let after = u64::try_from(after).unwrap_or(ALWAYS - 1);
        self.0.after_ms.store(after, Ordering::Relaxed);
    }

    fn age(&self, now: Instant) -> Duration {
        match self.0.after_ms.load(Ordering::Relaxed) {
            ALWAYS => Duration::ZERO,
            after => {
                let age = now.saturating_duration_since(self.0.created);
                age.saturating_sub(Duration::from_millis(after))
            }
        }
    }
}

labels! {
    /// The budgets of the bus. What all nodes share is counted in Redis, the rest in each node.
    pub(crate) enum BusBudget {
        /// Turns that wait or are in progress, of all nodes.
        TurnPlaces => "turn_places",
        /// The bytes of the registrations of one organisation, of all nodes.
        Registrations => "registrations",
        /// The bytes of device events that are not stored yet, of all nodes.
        DeviceEvents => "device_events",
        /// The bytes that wait for one receiving node.
        QueuedMessages => "queued_messages",
    }
}

labels! {
    /// The commands of Redis that are timed.
    pub(crate) enum Command {
        /// A batch, until the reply of Redis is read.
        Publish => "publish",
        /// The claim of a device's connection.
        Claim => "claim",
        /// Directory entries are written or released.
        Enter => "enter",
        /// Directory entries are read.
        Lookup => "lookup",
        /// A node's lease is renewed, and expired ones are found.
        Renew => "renew",
        /// A stream is appended to, or entries are deleted.
        Stream => "stream",
    }
}

/// Registers the gauges whose values are computed when they are scraped.
///
/// # Errors
/// When the registry has metrics of these names already.
pub(crate) fn register_gauges(
    node: &Arc<Node>,
    registry: &Registry,
) -> Result<(), prometheus::Error> {
    let group = Group::new(registry, PREFIX);
    let gauge = |name: &str, help: &str, read: fn(&Node) -> usize| {
        let node: Weak<Node> = Arc::downgrade(node);
        #[expect(clippy::cast_precision_loss, reason = "exact up to 2⁵³")]
        let value = move || node.upgrade().map_or(0.0, |node| read(&node) as f64);
        group.pulling_gauge(name, help, value)
    };
    gauge(
        "remembered_devices",
        "Directory entries in this node's presence cache",
        |node| node.presence_cache.len(),
    )?;
    gauge("backlog", "Messages that wait to be published", |node| {
        node.outbox.queued().0
    })?;
    gauge(
        "backlog_bytes",
        "Bytes of the messages that wait to be published",
        |node| node.outbox.queued().1,
    )
}

impl Metrics {
    /// Registers the metrics.
    ///
    /// # Errors
    /// When the registry has metrics of these names already.
    pub(crate) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let group = Group::new(registry, PREFIX);
        let counter = |name, help| group.counter(name, help);
        Ok(Self {
            up: group.gauge(
                "up",
                "1 if the node's pub/sub subscription is verified, else 0",
            )?,
            reconnects: counter(
                "reconnects_total",
                "Connections to Redis that were established and verified",
            )?,
            batches: counter("packs_sent_total", "Batches published to other nodes")?,
            received: counter(
                "envelopes_received_total",
                "Messages received in this node's inbox",
            )?,
            malformed: counter(
                "malformed_total",
                "Batches or messages that could not be decoded",
            )?,
            unknown: counter(
                "envelopes_unknown_total",
                "Messages skipped because this release does not know their kind",
            )?,
            late: counter(
                "answers_late_total",
                "Answers and reply chunks that arrived after their call or turn had ended",
            )?,
            dropped: counter(
                "envelopes_dropped_total",
                "Messages dropped because their node had no subscriber or its queue was full",
            )?,
            notices_dropped: counter(
                "notices_dropped_total",
                "Notifications of running calls dropped because a queue or channel was full",
            )?,
            key_sets_refused: counter(
                "key_sets_refused_total",
                "Published token keys that were refused, because no pinned key has signed them or they are old",
            )?,
            facts_dropped: counter(
                "facts_dropped_total",
                "Device events dropped because the bus was unreachable for too long, or had no room for them",
            )?,
            conversations_dropped: counter(
                "conversations_dropped_total",
                "Conversations evicted before their time, by new ones of this node",
            )?,
            refused: group.counters(
                "budget_refused_total",
                "Turns, registrations, device events and messages without room in a budget of the bus",
                "budget",
            )?,
            round_trip: group.histogram(
                "round_trip_seconds",
                "Round-trip time of a probe to the node itself, sent after 2 s without traffic",
                &BUCKETS_SECONDS,
            )?,
            commands: group.histograms(
                "command_seconds",
                "Duration of a Redis command; of publish, until its reply is read",
                "command",
                &BUCKETS_SECONDS,
            )?,
            totals: Totals::new(&group)?,
            last_activity: last_activity(&group)?,
        })
    }
}

fn last_activity(group: &Group<'_>) -> Result<LastActivity, prometheus::Error> {
    let last_activity = LastActivity::new();
    let age = last_activity.clone();
    group.pulling_gauge(
        "probe_age_seconds",
        "Seconds since the node's pub/sub subscription last received a probe or other traffic",
        move || age.age(Instant::now()).as_secs_f64(),
    )?;
    Ok(last_activity)
}

/// Totals of all nodes, as last read by this one. Every node exports the same values, so they must
/// not be summed.
#[derive(Debug, Clone)]
pub(crate) struct Totals {
    devices: IntGauge,
    events: IntGauge,
    event_bytes: IntGauge,
    turns: IntGauge,
    turn_places: IntGauge,
    conversation_bytes: IntGauge,
}

impl Totals {
    fn new(group: &Group<'_>) -> Result<Self, prometheus::Error> {
        Ok(Self {
            devices: group.gauge(
                "directory_devices",
                "Devices in the directory, over all nodes; counted once a minute by one node",
            )?,
            events: group.gauge(
                "facts_waiting",
                "Device events that wait on their stream to be stored, over all nodes",
            )?,
            event_bytes: group.gauge(
                "facts_waiting_bytes",
                "Bytes of the device events that wait on their stream, over all nodes",
            )?,
            turns: group.gauge(
                "turns_waiting",
                "Turns that wait on their stream for a worker, over all nodes",
            )?,
            turn_places: group.gauge(
                "turn_places_used",
                "Turns on their stream, waiting or in progress, over all nodes",
            )?,
            conversation_bytes: group.gauge(
                "conversation_bytes",
                "Bytes of stored conversations, over all nodes",
            )?,
        })
    }

    pub(crate) fn set(&self, stats: &Stats) {
        self.devices.set(stats.devices);
        self.events.set(stats.events);
        self.event_bytes.set(stats.event_bytes);
        self.turns.set(stats.turns);
        self.turn_places.set(stats.turn_places);
        self.conversation_bytes.set(stats.conversation_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn age_is_measured_from_the_last_activity() {
        let activity = LastActivity::new();
        let at = |seconds| activity.0.created + Duration::from_secs(seconds);
        assert_eq!(activity.age(at(5)), Duration::ZERO, "inside one process");
        activity.start();
        assert_eq!(activity.age(at(5)), Duration::from_secs(5));
        activity.record(at(3));
        assert_eq!(activity.age(at(5)), Duration::from_secs(2));
    }
}

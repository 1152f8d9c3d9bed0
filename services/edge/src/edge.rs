//! The state that all connections of one edge share.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use switchboard_bus::Bus;
use switchboard_runtime::{
    budget::{Budget, Budgets, Kind},
    shutdown::Shutdown,
};
use switchboard_speech::Speech;

use crate::{
    accept::Admission, config::Config, connection::MAX_READ_BYTES, connections::Connections,
    handle::TurnLimits, metrics::Metrics, schemas::Schemas, voice::Voices,
};

/// One edge: its settings, the bus, and its connections.
pub(crate) struct Edge {
    pub(crate) config: Config,
    pub(crate) bus: Bus,
    pub(crate) metrics: Metrics,
    pub(crate) connections: Connections,
    pub(crate) schemas: Arc<Schemas>,
    pub(crate) admission: Admission,
    /// Connections of devices after AUTH.
    pub(crate) devices: Budget,
    /// Incomplete frames of devices, in bytes.
    pub(crate) frames: Budget,
    /// What waits for devices or for the bus, in bytes.
    pub(crate) messages: Budget,
    /// Spoken conversations.
    pub(crate) voice: Voices,
    /// Tracks the connections' tasks; drains and stops with the process.
    pub(crate) tasks: Shutdown,
    started: Instant,
}

impl Edge {
    pub(crate) fn new(
        config: Config,
        bus: Bus,
        metrics: Metrics,
        speech: Speech,
        budgets: &Budgets,
        shutdown: &Shutdown,
    ) -> Self {
        Self {
            voice: Voices::new(&config, speech, budgets),
            admission: Admission::new(&config, budgets),
            devices: devices_budget(&config, budgets),
            frames: frames_budget(&config, budgets),
            messages: messages_budget(&config, budgets),
            schemas: Schemas::new(&config.schema, budgets),
            config,
            bus,
            metrics,
            connections: Connections::default(),
            tasks: shutdown.child(),
            started: Instant::now(),
        }
    }

    /// The edge's clock: milliseconds since it started. Comparable within this edge only.
    pub(crate) fn now_ms(&self) -> u64 {
        millis(self.started.elapsed())
    }

    /// A random reconnect delay for a device that is sent away.
    pub(crate) fn retry_after_ms(&self) -> u32 {
        rand::random_range(0..=self.config.device_retry_within_ms)
    }

    /// The same during a drain: within the time that all connections take at the rate of the drain,
    /// so that few devices need not wait.
    pub(crate) fn drain_retry_after_ms(&self) -> u32 {
        let connections = u64::try_from(self.connections.len()).unwrap_or(u64::MAX);
        let per_s = u64::from(self.config.device_drain_per_s.max(1));
        let within_ms = connections.saturating_mul(1_000) / per_s;
        let within_ms = u32::try_from(within_ms).unwrap_or(u32::MAX);
        rand::random_range(0..=within_ms.min(self.config.device_retry_within_ms))
    }

    pub(crate) const fn turn_limits(&self) -> TurnLimits {
        TurnLimits {
            max_message_bytes: self.config.device_max_turn_bytes,
            max_in_flight: self.config.device_max_turns,
            max_unsent_bytes: self.config.device_max_unsent_bytes,
        }
    }
}

/// The rest of the connections is left to devices of other organisations.
fn devices_budget(config: &Config, budgets: &Budgets) -> Budget {
    let share = config.connections_per_org();
    let capacity = config.device_max_connections;
    budgets.slots("device_connections", capacity, Kind::Held { share })
}

/// One organisation may hold half, at least one frame and the bytes that arrive behind it.
fn frames_budget(config: &Config, budgets: &Budgets) -> Budget {
    let capacity = config.device_incomplete_frame_bytes;
    // A fan-out to many devices has many large results at the same time.
    let share = (capacity / 2).max(config.device_max_frame_bytes as usize + MAX_READ_BYTES);
    budgets.bytes("device_frames", capacity, Kind::Held { share })
}

/// One organisation may hold a quarter, at least all that may wait for one device.
fn messages_budget(config: &Config, budgets: &Budgets) -> Budget {
    let capacity = config.device_messages_bytes;
    let share = (capacity / 4).max(config.device_max_waiting_bytes);
    budgets.bytes("device_messages", capacity, Kind::Held { share })
}

/// A duration in whole milliseconds, saturated.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

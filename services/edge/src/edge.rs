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

use crate::{
    accept::Admission, config::Config, connection::MAX_READ_BYTES, connections::Connections,
    handle::TurnLimits, metrics::Metrics, schemas::Schemas,
};

/// One edge: its settings, the bus, and its connections.
pub(crate) struct Edge {
    pub(crate) config: Config,
    pub(crate) bus: Bus,
    pub(crate) metrics: Metrics,
    pub(crate) connections: Connections,
    pub(crate) schemas: Arc<Schemas>,
    pub(crate) admission: Admission,
    /// Incomplete frames of devices, in bytes.
    pub(crate) frames: Budget,
    /// Tracks the connections' tasks; drains and stops with the process.
    pub(crate) tasks: Shutdown,
    started: Instant,
}

impl Edge {
    pub(crate) fn new(
        config: Config,
        bus: Bus,
        metrics: Metrics,
        budgets: &Budgets,
        shutdown: &Shutdown,
    ) -> Self {
        Self {
            admission: Admission::new(&config, budgets),
            frames: frames_budget(&config, budgets),
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

    pub(crate) const fn turn_limits(&self) -> TurnLimits {
        TurnLimits {
            max_message_bytes: self.config.device_max_turn_bytes,
            max_in_flight: self.config.device_max_turns,
            max_unsent_bytes: self.config.device_max_unsent_bytes,
        }
    }
}

/// One organisation may hold a quarter, at least one frame and the bytes that arrive behind it.
fn frames_budget(config: &Config, budgets: &Budgets) -> Budget {
    let capacity = config.device_incomplete_frame_bytes;
    // Half: a fan-out to many devices has many large results at the same time.
    let share = (capacity / 2).max(config.device_max_frame_bytes as usize + MAX_READ_BYTES);
    budgets.budget("device_frames", capacity, Kind::Held { share })
}

/// A duration in whole milliseconds, saturated.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

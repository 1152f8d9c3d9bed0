//! The state that all connections of one edge share.

use std::time::{Duration, Instant};

use switchboard_bus::Bus;
use switchboard_protocol::schema::{Interner, SchemaLimits};
use switchboard_runtime::shutdown::Shutdown;

use crate::{
    accept::Admission, config::Config, connections::Connections, handle::TurnLimits,
    metrics::Metrics,
};

/// One edge: its settings, the bus, and its connections.
pub(crate) struct Edge {
    pub(crate) config: Config,
    pub(crate) schema_limits: SchemaLimits,
    pub(crate) bus: Bus,
    pub(crate) metrics: Metrics,
    pub(crate) connections: Connections,
    pub(crate) interner: Interner,
    pub(crate) admission: Admission,
    /// Tracks the connections' tasks; drains and stops with the process.
    pub(crate) tasks: Shutdown,
    started: Instant,
}

impl Edge {
    pub(crate) fn new(config: Config, bus: Bus, metrics: Metrics, shutdown: &Shutdown) -> Self {
        Self {
            admission: Admission::new(&config),
            schema_limits: config.schema.limits(),
            config,
            bus,
            metrics,
            connections: Connections::default(),
            interner: Interner::default(),
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

/// A duration in whole milliseconds, saturated.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

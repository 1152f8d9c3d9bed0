//! What all connections of one edge share.
//! Never: anything about a single device beyond its entry in the table.

use std::time::{Duration, Instant};

use switchboard_bus::{Answer, Bus, ReplyTo};
use switchboard_protocol::{
    outcome::{Delivered, Outcome},
    schema::{Interner, SchemaLimits},
};
use switchboard_runtime::shutdown::Shutdown;

use crate::{
    accept::Admission,
    config::Config,
    link::{TurnEnd, TurnLimits, Unsettled},
    metrics::Metrics,
    table::Table,
};

/// One edge: its settings, the bus, and the devices it holds.
pub(crate) struct Edge {
    pub(crate) config: Config,
    pub(crate) schema_limits: SchemaLimits,
    pub(crate) bus: Bus,
    pub(crate) metrics: Metrics,
    pub(crate) table: Table,
    pub(crate) interner: Interner,
    pub(crate) admission: Admission,
    /// Where connections live; it drains and stops with the process.
    pub(crate) connections: Shutdown,
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
            table: Table::default(),
            interner: Interner::default(),
            connections: shutdown.child(),
            started: Instant::now(),
        }
    }

    /// Milliseconds since this edge started: the clock of everything that is only compared here.
    pub(crate) fn now_ms(&self) -> u64 {
        millis(self.started.elapsed())
    }

    /// How long a device sent away is asked to wait, drawn anew for each.
    pub(crate) fn retry_after_ms(&self) -> u32 {
        rand::random_range(0..=self.config.device_retry_within_ms)
    }

    /// What may be under way of conversations on one connection.
    pub(crate) fn turn_limits(&self) -> TurnLimits {
        TurnLimits {
            words: self.config.device_max_turn_bytes,
            under_way: self.config.device_max_turns,
            unsent: self.config.device_max_unsent_bytes,
        }
    }

    pub(crate) fn count_turns(&self, ended: &[TurnEnd]) {
        for end in ended {
            self.metrics.turns.inc(*end);
        }
    }

    /// Ends a call with the device's own result or another ready body.
    pub(crate) fn answer(&self, to: &ReplyTo, answer: Answer) {
        self.metrics.ended(answer.outcome);
        self.bus.answer(to, answer);
    }

    /// Ends a call that got no result, in words for whoever made it.
    pub(crate) fn give_up(&self, call: &Unsettled, outcome: Outcome, detail: &str) {
        let delivered = if call.dispatched {
            Delivered::Unknown
        } else {
            Delivered::No
        };
        self.answer(
            &call.reply,
            Answer::ended(outcome, detail).with_delivered(delivered),
        );
    }
}

/// A duration in whole milliseconds.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

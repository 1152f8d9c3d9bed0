//! Writes device events from the bus to the store, in batches. Organisations take turns.
//!
//! Invariant: an event is acknowledged after its commit. An invalid event does not block others.

mod batch;
mod turns;

use std::time::Duration;

use chrono::Utc;
use switchboard_bus::{Bus, BusError, DeviceEvent, EventId};
use switchboard_runtime::{backoff::Backoff, shutdown::Shutdown};
use switchboard_store::{DeviceEvent as StoredEvent, Store, StoreError};
use tokio::time::Instant;

use self::turns::EventTurns;
use crate::metrics::BackgroundMetrics;

/// Maximum number of events of one read.
const READ_EVENTS: usize = 1_000;
/// Events that wait to be written, beyond which no more are read. The events of an organisation may be
/// behind many thousands of another one. Fewer than are written before the bus delivers those that wait
/// to another process.
const MAX_WAITING_EVENTS: usize = 16 * READ_EVENTS;
/// How long a read from the bus waits for events.
const READ_TIMEOUT: Duration = Duration::from_secs(2);
/// How long the writer collects events after it began a transaction, unless a full batch has been
/// read. An event after a pause is written at once, and a storm in few transactions: the costs of one
/// are those of a hundred rows.
const COLLECT_TIME: Duration = Duration::from_millis(100);
/// How long the last read waits, while the process drains, for the events of this process. Those of
/// others are delivered to another process.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(300);

/// Writes device events until the process drains.
pub(super) struct EventWriter {
    store: Store,
    bus: Bus,
    batch: usize,
    metrics: BackgroundMetrics,
    waiting: EventTurns,
    /// The kind of the last failure. A log line is written when it changes.
    failure: Option<&'static str>,
}

impl EventWriter {
    pub(super) fn new(store: Store, bus: Bus, batch: u16, metrics: BackgroundMetrics) -> Self {
        Self {
            store,
            bus,
            batch: batch.into(),
            metrics,
            waiting: EventTurns::default(),
            failure: None,
        }
    }

    /// Ends when the events that were on the bus when draining began are written, or immediately
    /// when that is not possible: events without an acknowledgement are delivered again, to any
    /// process.
    pub(super) async fn run(mut self, shutdown: Shutdown) {
        let mut backoff = Backoff::new();
        loop {
            let draining = shutdown.is_draining();
            let read = self.read_waiting(&shutdown).await;
            if !self.waiting.is_empty() {
                backoff.reset();
                let next_write = Instant::now() + COLLECT_TIME;
                if !self.write_next(&shutdown).await {
                    return;
                }
                self.collect(next_write, &shutdown).await;
                continue;
            }
            if read.is_ok() {
                backoff.reset();
                self.report(None, "");
            }
            if draining || read.is_err() && !backoff.pause(&shutdown).await {
                return;
            }
        }
    }

    /// Waits until this time, or until the process drains, while less than a batch waits.
    async fn collect(&self, next_write: Instant, shutdown: &Shutdown) {
        if self.waiting.len() < self.batch {
            tokio::select! {
                biased;
                () = shutdown.draining() => {}
                () = tokio::time::sleep_until(next_write) => {}
            }
        }
    }

    /// Reads the events that wait on the bus, those of all organisations.
    async fn read_waiting(&mut self, shutdown: &Shutdown) -> Result<(), ()> {
        while self.waiting.len() < MAX_WAITING_EVENTS {
            let events = self.next(shutdown).await?;
            let is_last = events.len() < READ_EVENTS;
            self.waiting.extend(events);
            if is_last {
                break;
            }
        }
        Ok(())
    }

    /// The next events; none after the timeout, or when draining begins. It does not wait while
    /// there are events to write. Events of a dropped read are not lost: without an acknowledgement,
    /// they are delivered again.
    async fn next(&mut self, shutdown: &Shutdown) -> Result<Vec<(EventId, DeviceEvent)>, ()> {
        let read = if !self.waiting.is_empty() {
            self.read(Duration::ZERO).await
        } else if shutdown.is_draining() {
            let _ = tokio::time::timeout(DRAIN_TIMEOUT, self.bus.events_written()).await;
            self.read(Duration::ZERO).await
        } else {
            tokio::select! {
                biased;
                read = self.read(READ_TIMEOUT) => read,
                () = shutdown.draining() => return Ok(Vec::new()),
            }
        };
        read.map_err(|error| self.report(Some("bus"), &error.to_string()))
    }

    async fn read(&self, timeout: Duration) -> Result<Vec<(EventId, DeviceEvent)>, BusError> {
        let consumer = self.bus.node().as_str();
        self.bus.read_events(consumer, READ_EVENTS, timeout).await
    }

    /// Writes and acknowledges a batch. False when the process drains before that was possible.
    async fn write_next(&mut self, shutdown: &Shutdown) -> bool {
        let (ids, events) = self.waiting.next(self.batch);
        let received = events.len();
        let events: Vec<StoredEvent> = events.into_iter().filter_map(batch::convert).collect();
        self.metrics
            .events_skipped
            .inc_by((received - events.len()) as u64);
        // A stack of parts to write. The last one is the next one, so events stay in order.
        let mut parts: Vec<&[StoredEvent]> = vec![&events];
        let mut backoff = Backoff::new();
        while let Some(part) = parts.pop() {
            if part.len() > 1 && batch::is_too_big(part) {
                parts.extend(batch::halves(part));
                continue;
            }
            match self.store.record_device_events(part).await {
                Ok(()) => self.count(part),
                Err(StoreError::Refused(_)) if part.len() > 1 => parts.extend(batch::halves(part)),
                Err(error @ StoreError::Refused(_)) => self.skip(part, &error),
                Err(error) => {
                    self.report(Some(error.kind()), &error.report());
                    parts.push(part);
                    if !backoff.pause(shutdown).await {
                        return false;
                    }
                }
            }
        }
        match self.bus.ack_events(&ids).await {
            Ok(()) => self.report(None, ""),
            // The events are delivered again; writing them twice has no effect.
            Err(error) => self.report(Some("bus"), &error.to_string()),
        }
        true
    }

    fn count(&self, part: &[StoredEvent]) {
        self.metrics.events_written.inc_by(part.len() as u64);
        self.metrics.events_batch_size.observe(part.len() as f64);
        if let Some(oldest) = part.iter().map(|event| event.at).min() {
            let lag = (Utc::now() - oldest).num_milliseconds().max(0);
            self.metrics.events_lag_seconds.set(lag as f64 / 1_000.0);
        }
    }

    fn skip(&self, part: &[StoredEvent], error: &StoreError) {
        self.metrics.events_skipped.inc();
        for event in part {
            tracing::error!(
                device.key = %event.device,
                error = error.report(),
                "device event skipped: the database cannot store it"
            );
        }
    }

    /// Logs changes of the failure, not every attempt.
    fn report(&mut self, failure: Option<&'static str>, cause: &str) {
        match failure {
            Some(_) if failure != self.failure => {
                tracing::warn!(
                    cause,
                    "device events cannot be written; retrying, none is lost"
                );
            }
            None if self.failure.is_some() => {
                tracing::info!("device events are written again")
            }
            _ => {}
        }
        self.failure = failure;
    }
}

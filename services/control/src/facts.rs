//! Writes what edges told of their devices to the store, in batches.
//! Never: an acknowledgement before the commit, or one bad fact that stops the others.

mod batch;

use std::time::Duration;

use chrono::Utc;
use switchboard_bus::{Bus, BusError, Fact, FactId};
use switchboard_runtime::{backoff::Backoff, shutdown::Shutdown};
use switchboard_store::{DeviceFact, Store, StoreError};

use crate::metrics::BackgroundMetrics;

/// How long one question to the bus waits for facts.
const WAIT: Duration = Duration::from_secs(2);
/// How long the last question waits, when the process drains: for what the nodes have still to hand over.
const LAST_WAIT: Duration = Duration::from_millis(300);

/// Writes facts until it is told to stop.
pub(crate) struct Recorder {
    store: Store,
    bus: Bus,
    batch: usize,
    metrics: BackgroundMetrics,
    /// The kind of the last failure; a log line is written when it changes.
    trouble: Option<&'static str>,
}

impl Recorder {
    pub(crate) fn new(store: Store, bus: Bus, batch: u16, metrics: BackgroundMetrics) -> Self {
        Self {
            store,
            bus,
            batch: batch.into(),
            metrics,
            trouble: None,
        }
    }

    /// Ends when the facts that were there when draining began are written, or at once when that is not possible:
    /// facts without an acknowledgement come again, to whoever asks next.
    pub(crate) async fn run(mut self, shutdown: Shutdown) {
        let mut backoff = Backoff::new();
        loop {
            let draining = shutdown.is_draining();
            let Ok(facts) = self.next(&shutdown).await else {
                if draining || !backoff.pause(&shutdown).await {
                    return;
                }
                continue;
            };
            backoff.reset();
            if facts.is_empty() {
                self.note(None, "");
                if draining {
                    return;
                }
                continue;
            }
            if !self.write(facts, &shutdown).await {
                return;
            }
        }
    }

    /// The next facts; none when there are none for a while, or when draining begins. What the bus gave up
    /// meanwhile is not lost: facts without an acknowledgement come again.
    async fn next(&mut self, shutdown: &Shutdown) -> Result<Vec<(FactId, Fact)>, ()> {
        let asked = if shutdown.is_draining() {
            self.ask(LAST_WAIT).await
        } else {
            tokio::select! {
                biased;
                asked = self.ask(WAIT) => asked,
                () = shutdown.draining() => return Ok(Vec::new()),
            }
        };
        asked.map_err(|error| self.note(Some("bus"), &error.to_string()))
    }

    async fn ask(&self, wait: Duration) -> Result<Vec<(FactId, Fact)>, BusError> {
        let consumer = self.bus.node().as_str();
        self.bus.facts(consumer, self.batch, wait).await
    }

    /// Writes and acknowledges; false when the process ends before that was possible.
    async fn write(&mut self, facts: Vec<(FactId, Fact)>, shutdown: &Shutdown) -> bool {
        let (ids, facts): (Vec<FactId>, Vec<Fact>) = facts.into_iter().unzip();
        let told = facts.len();
        let facts: Vec<DeviceFact> = facts.into_iter().filter_map(batch::convert).collect();
        self.metrics
            .facts_skipped
            .inc_by((told - facts.len()) as u64);
        // Parts still to be written; the last one is next, so that facts stay in order.
        let mut parts: Vec<&[DeviceFact]> = vec![&facts];
        let mut backoff = Backoff::new();
        while let Some(part) = parts.pop() {
            if part.len() > 1 && batch::is_too_big(part) {
                parts.extend(batch::halves(part));
                continue;
            }
            match self.store.record(part).await {
                Ok(()) => self.count(part),
                Err(StoreError::Refused(_)) if part.len() > 1 => parts.extend(batch::halves(part)),
                Err(error @ StoreError::Refused(_)) => self.skip(part, &error),
                Err(error) => {
                    self.note(Some(error.kind()), &error.report());
                    parts.push(part);
                    if !backoff.pause(shutdown).await {
                        return false;
                    }
                }
            }
        }
        match self.bus.acknowledge(&ids).await {
            Ok(()) => self.note(None, ""),
            // They come again and change nothing.
            Err(error) => self.note(Some("bus"), &error.to_string()),
        }
        true
    }

    fn count(&self, part: &[DeviceFact]) {
        self.metrics.facts_written.inc_by(part.len() as u64);
        self.metrics.facts_batch_size.observe(part.len() as f64);
        if let Some(oldest) = part.iter().map(|fact| fact.at).min() {
            let lag = (Utc::now() - oldest).num_milliseconds().max(0);
            self.metrics.facts_lag_seconds.set(lag as f64 / 1_000.0);
        }
    }

    fn skip(&self, part: &[DeviceFact], error: &StoreError) {
        self.metrics.facts_skipped.inc();
        for fact in part {
            tracing::error!(
                device.key = %fact.device,
                error = error.report(),
                "a fact about a device was skipped because the database will never take it"
            );
        }
    }

    /// Logs when something changed, not at each attempt.
    fn note(&mut self, trouble: Option<&'static str>, cause: &str) {
        match trouble {
            Some(_) if trouble != self.trouble => {
                tracing::warn!(
                    cause,
                    "facts about devices cannot be written; retrying, none is lost"
                );
            }
            None if self.trouble.is_some() => {
                tracing::info!("facts about devices are written again")
            }
            _ => {}
        }
        self.trouble = trouble;
    }
}

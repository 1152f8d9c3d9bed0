//! Delivers events to webhooks: claims due deliveries, many at a time, a few per webhook and no
//! more per organisation than its share, and deletes old ones.
//!
//! Invariant: no attempt starts after draining has begun.

mod active_attempts;
mod attempt;
mod authorities;
mod client;
mod contact;
mod destination;
mod networks;
mod public_address;
mod schedule;
mod secret;

use std::{sync::Arc, time::Duration};

use switchboard_bus::Bus;
use switchboard_runtime::{
    backoff::Backoff,
    budget::{Budgets, Kind},
    shutdown::Shutdown,
};
use switchboard_store::{Store, StoreError};
use tokio::time::Instant;

use active_attempts::ActiveAttempts;
use attempt::AttemptContext;
pub use authorities::Authorities;
use client::{ATTEMPT_TIMEOUT, WebhookClient};
pub use contact::WebhookContacts;
pub(crate) use destination::{Destination, MAX_URL_BYTES};
pub(crate) use networks::Networks;
pub(crate) use secret::{Secret, SecretVault};

use crate::{Config, metrics::WebhookMetrics};

/// How long a claimed delivery belongs to a worker: longer than an attempt and the
/// write of its result can take.
const DELIVERY_LEASE: Duration = ATTEMPT_TIMEOUT.saturating_add(Duration::from_secs(45));
/// How often a worker with free capacity looks for deliveries.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// How long deliveries are stored.
const DELIVERY_TTL: Duration = Duration::from_secs(7 * 24 * 3600);
/// The maximum number of stored deliveries of a webhook.
const MAX_DELIVERIES: i64 = 10_000;
/// Between deletions of old deliveries.
const PURGE_INTERVAL: Duration = Duration::from_secs(3600);
/// Between two updates of the gauges.
const GAUGE_INTERVAL: Duration = Duration::from_secs(15);

/// Delivers events until the process drains.
pub(super) struct Worker {
    context: Arc<AttemptContext>,
    active: ActiveAttempts,
    /// The cause of the last failure. A log line is written when it changes.
    failure: Option<String>,
    next_purge: Instant,
    next_gauge_update: Instant,
}

impl Worker {
    pub(super) fn new(
        config: &Config,
        (store, bus): (Store, Bus),
        metrics: WebhookMetrics,
        budgets: &Budgets,
    ) -> Self {
        let senders = usize::from(config.webhooks_senders);
        let budget = budgets.slots("webhook_attempts", senders, Kind::quarter_of(senders));
        let client = WebhookClient::new(&config.webhooks);
        Self {
            context: Arc::new(AttemptContext {
                store,
                bus,
                client,
                metrics,
            }),
            active: ActiveAttempts::new(budget),
            failure: None,
            next_purge: Instant::now() + PURGE_INTERVAL,
            next_gauge_update: Instant::now(),
        }
    }

    /// When draining begins, attempts in flight are completed and no others start. An attempt that
    /// is cut short is repeated after its lease, by any process.
    pub(super) async fn run(mut self, shutdown: Shutdown) {
        let Some(vault) = self.load_vault(&shutdown).await else {
            return;
        };
        let mut backoff = Backoff::new();
        while !shutdown.is_draining() {
            let free = self.active.free();
            if free == 0 {
                self.active.wait(&shutdown, POLL_INTERVAL).await;
                continue;
            }
            self.maintain().await;
            let limit = u32::try_from(free).unwrap_or(u32::MAX);
            let in_flight = self.active.in_flight();
            let claim = self
                .context
                .store
                .claim_deliveries(&in_flight, DELIVERY_LEASE, limit);
            match claim.await {
                Ok(claimed) => {
                    backoff.reset();
                    self.report(None);
                    let is_idle = claimed.is_empty();
                    for delivery in claimed {
                        self.active
                            .start(&self.context, &vault, delivery, &shutdown);
                    }
                    if is_idle {
                        self.active.wait(&shutdown, POLL_INTERVAL).await;
                    }
                }
                Err(error) => {
                    self.report(Some(&error));
                    backoff.pause(&shutdown).await;
                }
            }
        }
        self.active.finish().await;
    }

    /// Loads the sealing key; waits until the database is available.
    async fn load_vault(&mut self, shutdown: &Shutdown) -> Option<Arc<SecretVault>> {
        let mut backoff = Backoff::new();
        loop {
            match SecretVault::load(&self.context.store).await {
                Ok(vault) => return Some(Arc::new(vault)),
                Err(error) => self.report(Some(&error)),
            }
            if !backoff.pause(shutdown).await {
                return None;
            }
        }
    }

    /// Updates the gauges and deletes old deliveries, when they are due.
    async fn maintain(&mut self) {
        let store = &self.context.store;
        if Instant::now() >= self.next_gauge_update {
            self.next_gauge_update = Instant::now() + GAUGE_INTERVAL;
            if let Ok(figures) = store.webhook_stats().await {
                self.context.metrics.pending.set(figures.pending);
                self.context.metrics.dropped.set(figures.dropped);
            }
        }
        if Instant::now() >= self.next_purge {
            self.next_purge = Instant::now() + PURGE_INTERVAL;
            self.active.forget_answer_times();
            if let Err(error) = store.purge_deliveries(DELIVERY_TTL, MAX_DELIVERIES).await {
                tracing::warn!(
                    error = error.report(),
                    "old webhook deliveries cannot be deleted; retrying in an hour"
                );
            }
        }
    }

    /// Logs changes of the failure, not every attempt.
    fn report(&mut self, failure: Option<&StoreError>) {
        let kind = failure.map(|error| error.kind().to_owned());
        match failure {
            Some(error) if kind != self.failure => tracing::warn!(
                error = error.report(),
                "webhook deliveries cannot be claimed; retrying, none is lost"
            ),
            None if self.failure.is_some() => {
                tracing::info!("webhook deliveries are claimed again")
            }
            _ => {}
        }
        self.failure = kind;
    }
}

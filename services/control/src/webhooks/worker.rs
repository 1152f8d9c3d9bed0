//! Takes deliveries that are due, many at a time, a few for each webhook, and forgets old ones.
//! Never: more hands than it was given, or a delivery begun once draining has begun.

use std::{sync::Arc, time::Duration};

use switchboard_runtime::{backoff::Backoff, shutdown::Shutdown};
use switchboard_store::{Store, StoreError};
use tokio::time::Instant;

use super::{
    attempt::Desk,
    networks::Networks,
    post::{Post, WHOLE_LIMIT},
    secret::Vault,
    under_way::UnderWay,
};
use crate::{Config, metrics::WebhookMetrics};

/// How long a delivery belongs to a worker: longer than an attempt and what is written of it can take.
const LEASE: Duration = WHOLE_LIMIT.saturating_add(Duration::from_secs(45));
/// How often a worker with free hands looks for deliveries.
const LOOK: Duration = Duration::from_millis(500);
/// How long deliveries stay on record.
const KEPT: Duration = Duration::from_secs(7 * 24 * 3600);
/// How many of a webhook do.
const MOST_KEPT: i64 = 10_000;
/// Between purges.
const PURGE: Duration = Duration::from_secs(3600);
/// Between looks at what waits altogether.
const COUNT: Duration = Duration::from_secs(15);

/// Attempts deliveries until it is told to stop.
pub(crate) struct Worker {
    desk: Arc<Desk>,
    /// How many attempts may be under way.
    hands: usize,
    /// The cause of the last failure; a log line is written when it changes.
    trouble: Option<String>,
    next_purge: Instant,
    next_count: Instant,
}

impl Worker {
    pub(crate) fn new(config: &Config, store: Store, metrics: WebhookMetrics) -> Self {
        let networks = Networks::new(&config.webhooks_allow);
        let post = Post::new(networks, config.webhooks_ca.clone());
        Self {
            desk: Arc::new(Desk {
                store,
                post,
                metrics,
            }),
            hands: config.webhooks_senders.into(),
            trouble: None,
            next_purge: Instant::now() + PURGE,
            next_count: Instant::now(),
        }
    }

    /// When draining begins, what is under way is finished and nothing else begun. What is cut short is attempted again
    /// when its time is up, by whichever process.
    pub(crate) async fn run(mut self, shutdown: Shutdown) {
        let Some(vault) = self.vault(&shutdown).await else {
            return;
        };
        let mut under_way = UnderWay::default();
        let mut backoff = Backoff::new();
        while !shutdown.is_draining() {
            let free = self.hands.saturating_sub(under_way.count());
            if free == 0 {
                under_way.rest(&shutdown, LOOK).await;
                continue;
            }
            self.upkeep().await;
            let limit = u32::try_from(free).unwrap_or(u32::MAX);
            let busy = under_way.busy();
            let claim = self.desk.store.claim_deliveries(&busy, LEASE, limit);
            match claim.await {
                Ok(claimed) => {
                    backoff.reset();
                    self.note(None);
                    let found = !claimed.is_empty();
                    for delivery in claimed {
                        under_way.begin(&self.desk, &vault, delivery, &shutdown);
                    }
                    if !found {
                        under_way.rest(&shutdown, LOOK).await;
                    }
                }
                Err(error) => {
                    self.note(Some(&error));
                    backoff.pause(&shutdown).await;
                }
            }
        }
        under_way.finish().await;
    }

    /// What secrets are sealed with, as soon as the database says it.
    async fn vault(&mut self, shutdown: &Shutdown) -> Option<Arc<Vault>> {
        let mut backoff = Backoff::new();
        loop {
            match Vault::open(&self.desk.store).await {
                Ok(vault) => return Some(Arc::new(vault)),
                Err(error) => self.note(Some(&error)),
            }
            if !backoff.pause(shutdown).await {
                return None;
            }
        }
    }

    /// Counts what waits, and forgets what is old, now and then.
    async fn upkeep(&mut self) {
        let store = &self.desk.store;
        if Instant::now() >= self.next_count {
            self.next_count = Instant::now() + COUNT;
            if let Ok(figures) = store.webhook_figures().await {
                self.desk.metrics.pending.set(figures.pending);
                self.desk.metrics.dropped.set(figures.dropped);
            }
        }
        if Instant::now() >= self.next_purge {
            self.next_purge = Instant::now() + PURGE;
            if let Err(error) = store.purge_deliveries(KEPT, MOST_KEPT).await {
                tracing::warn!(
                    error = error.report(),
                    "old deliveries of webhooks stay on record for another hour"
                );
            }
        }
    }

    /// Logs when something changed, not at each attempt.
    fn note(&mut self, trouble: Option<&StoreError>) {
        let kind = trouble.map(|error| error.kind().to_owned());
        match trouble {
            Some(error) if kind != self.trouble => tracing::warn!(
                error = error.report(),
                "webhooks are not told anything at the moment; trying again, nothing is lost"
            ),
            None if self.trouble.is_some() => tracing::info!("webhooks are told again"),
            _ => {}
        }
        self.trouble = kind;
    }
}

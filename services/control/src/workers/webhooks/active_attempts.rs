//! The attempts in flight, limited per webhook so that a slow webhook does not delay others.

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures_util::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use switchboard_protocol::id::WebhookId;
use switchboard_runtime::shutdown::Shutdown;
use switchboard_store::ClaimedDelivery;

use super::{attempt::AttemptContext, secret::SecretVault};

/// The maximum number of concurrent attempts per webhook.
const MAX_PER_WEBHOOK: usize = 4;

/// The attempts in flight.
#[derive(Default)]
pub(super) struct ActiveAttempts {
    attempts: FuturesUnordered<BoxFuture<'static, WebhookId>>,
    /// For each webhook: the number of attempts, and its limit.
    by_webhook: HashMap<WebhookId, (usize, usize)>,
}

impl ActiveAttempts {
    pub(super) fn start(
        &mut self,
        context: &Arc<AttemptContext>,
        vault: &Arc<SecretVault>,
        delivery: ClaimedDelivery,
        shutdown: &Shutdown,
    ) {
        // A failing webhook gets one attempt at a time.
        let max = if delivery.is_failing {
            1
        } else {
            MAX_PER_WEBHOOK
        };
        let (count, limit) = self.by_webhook.entry(delivery.webhook).or_default();
        (*count, *limit) = (count.saturating_add(1), max);
        let (context, vault, stop) = (Arc::clone(context), Arc::clone(vault), shutdown.clone());
        let webhook = delivery.webhook;
        let attempt = shutdown.spawn(async move {
            tokio::select! {
                () = context.attempt(&vault, &delivery) => {}
                () = stop.stopping() => {}
            }
        });
        self.attempts.push(Box::pin(async move {
            // The attempt has stored its own result.
            drop(attempt.await);
            webhook
        }));
    }

    pub(super) fn count(&self) -> usize {
        self.attempts.len()
    }

    /// Waits for all attempts in flight.
    pub(super) async fn finish(mut self) {
        while self.attempts.next().await.is_some() {}
    }

    fn end(&mut self, webhook: WebhookId) {
        if let Some((count, _)) = self.by_webhook.get_mut(&webhook) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.by_webhook.remove(&webhook);
            }
        }
    }

    /// The webhooks that have reached their limit.
    pub(super) fn busy(&self) -> Vec<WebhookId> {
        let busy = self
            .by_webhook
            .iter()
            .filter(|(_, (count, max))| count >= max);
        busy.map(|(webhook, _)| *webhook).collect()
    }

    /// Waits until an attempt completes, the time has passed, or draining begins.
    pub(super) async fn wait(&mut self, shutdown: &Shutdown, timeout: Duration) {
        tokio::select! {
            Some(webhook) = self.attempts.next() => self.end(webhook),
            () = tokio::time::sleep(timeout) => {}
            () = shutdown.draining() => {}
        }
    }
}

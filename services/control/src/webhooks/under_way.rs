//! The attempts that are under way, and at which webhooks.
//! Never: one slow webhook that keeps others waiting.

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures_util::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use switchboard_protocol::id::WebhookId;
use switchboard_runtime::shutdown::Shutdown;
use switchboard_store::ClaimedDelivery;

use super::{attempt::Desk, secret::Vault};

/// How many attempts at one webhook are under way at a time.
const MOST_AT_ONE: usize = 4;

/// What is under way.
#[derive(Default)]
pub(super) struct UnderWay {
    attempts: FuturesUnordered<BoxFuture<'static, WebhookId>>,
    /// At each webhook: how many, and how many there may be.
    at: HashMap<WebhookId, (usize, usize)>,
}

impl UnderWay {
    pub(super) fn begin(
        &mut self,
        desk: &Arc<Desk>,
        vault: &Arc<Vault>,
        delivery: ClaimedDelivery,
        shutdown: &Shutdown,
    ) {
        // One that fails is tried out carefully.
        let most = if delivery.is_failing { 1 } else { MOST_AT_ONE };
        let (count, limit) = self.at.entry(delivery.webhook).or_default();
        (*count, *limit) = (count.saturating_add(1), most);
        let (desk, vault, stop) = (Arc::clone(desk), Arc::clone(vault), shutdown.clone());
        let webhook = delivery.webhook;
        let attempt = shutdown.spawn(async move {
            tokio::select! {
                () = desk.attempt(&vault, &delivery) => {}
                () = stop.stopping() => {}
            }
        });
        self.attempts.push(Box::pin(async move {
            // Whatever became of it, it is over.
            drop(attempt.await);
            webhook
        }));
    }

    pub(super) fn count(&self) -> usize {
        self.attempts.len()
    }

    /// Waits for all that is under way.
    pub(super) async fn finish(mut self) {
        while self.attempts.next().await.is_some() {}
    }

    fn end(&mut self, webhook: WebhookId) {
        if let Some((count, _)) = self.at.get_mut(&webhook) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.at.remove(&webhook);
            }
        }
    }

    /// The webhooks at which there are as many as may be.
    pub(super) fn busy(&self) -> Vec<WebhookId> {
        let busy = self.at.iter().filter(|(_, (count, most))| count >= most);
        busy.map(|(webhook, _)| *webhook).collect()
    }

    /// Waits until one attempt is over, if there is one, or for a while.
    pub(super) async fn rest(&mut self, shutdown: &Shutdown, while_idle: Duration) {
        tokio::select! {
            Some(webhook) = self.attempts.next() => self.end(webhook),
            () = tokio::time::sleep(while_idle) => {}
            () = shutdown.draining() => {}
        }
    }
}

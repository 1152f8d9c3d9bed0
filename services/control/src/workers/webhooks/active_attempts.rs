//! The attempts in flight: limited per webhook, so that a slow webhook does not delay others, and
//! per organisation.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use switchboard_protocol::id::{OrgId, WebhookId};
use switchboard_runtime::{
    budget::{Budget, Owner},
    shutdown::Shutdown,
};
use switchboard_store::{AttemptsInFlight, ClaimedDelivery};

use super::{attempt::AttemptContext, secret::SecretVault};

/// The maximum number of concurrent attempts per webhook; fewer if that is more than a quarter of
/// the share of its organisation.
const MAX_PER_WEBHOOK: usize = 4;
/// A webhook whose attempts take longer on average gets one at a time, like a failing one.
const SLOW_TIMEOUT: Duration = Duration::from_secs(5);
/// The average is not kept below this.
const QUICK_TIMEOUT: Duration = Duration::from_millis(500);

/// The attempts in flight.
pub(super) struct ActiveAttempts {
    attempts: FuturesUnordered<BoxFuture<'static, FinishedAttempt>>,
    by_webhook: HashMap<WebhookId, WebhookAttempts>,
    /// How long attempts at webhooks that are not quick take: an average in which the last attempt
    /// counts for a quarter.
    answer_times: HashMap<WebhookId, Duration>,
    /// One for each attempt.
    budget: Budget,
}

struct FinishedAttempt {
    webhook: WebhookId,
    took: Duration,
}

#[derive(Default)]
struct WebhookAttempts {
    count: usize,
    is_failing: bool,
}

impl ActiveAttempts {
    pub(super) fn new(budget: Budget) -> Self {
        Self {
            attempts: FuturesUnordered::new(),
            by_webhook: HashMap::new(),
            answer_times: HashMap::new(),
            budget,
        }
    }

    /// Starts an attempt. A delivery beyond the share of its organisation is not attempted; it is
    /// due again after its lease.
    pub(super) fn start(
        &mut self,
        context: &Arc<AttemptContext>,
        vault: &Arc<SecretVault>,
        delivery: ClaimedDelivery,
        shutdown: &Shutdown,
    ) {
        let owner = Owner::Org(delivery.org.uuid());
        let Ok(permit) = self.budget.try_acquire(owner, 1) else {
            return;
        };
        let active = self.by_webhook.entry(delivery.webhook).or_default();
        active.count = active.count.saturating_add(1);
        active.is_failing = delivery.is_failing;
        let (context, vault, stop) = (Arc::clone(context), Arc::clone(vault), shutdown.clone());
        let (webhook, started) = (delivery.webhook, Instant::now());
        let attempt = shutdown.spawn(async move {
            let _permit = permit;
            tokio::select! {
                () = context.attempt(&vault, &delivery) => {}
                () = stop.stopping() => {}
            }
        });
        self.attempts.push(Box::pin(async move {
            // The attempt has stored its own result.
            drop(attempt.await);
            let took = started.elapsed();
            FinishedAttempt { webhook, took }
        }));
    }

    /// How many more attempts can start.
    pub(super) fn free(&self) -> usize {
        self.budget.free()
    }

    /// Waits for all attempts in flight.
    pub(super) async fn finish(mut self) {
        while self.attempts.next().await.is_some() {}
    }

    /// Forgets averages: those of deleted webhooks would be kept forever.
    pub(super) fn forget_answer_times(&mut self) {
        self.answer_times.clear();
    }

    fn end(&mut self, FinishedAttempt { webhook, took }: FinishedAttempt) {
        if let Some(active) = self.by_webhook.get_mut(&webhook) {
            active.count = active.count.saturating_sub(1);
            if active.count == 0 {
                self.by_webhook.remove(&webhook);
            }
        }
        let before = self.answer_times.get(&webhook).copied();
        let average = before.map_or(took, |before| (before * 3 + took) / 4);
        if average < QUICK_TIMEOUT {
            self.answer_times.remove(&webhook);
        } else {
            self.answer_times.insert(webhook, average);
        }
    }

    fn is_slow(&self, webhook: WebhookId) -> bool {
        let average = self.answer_times.get(&webhook);
        average.is_some_and(|average| *average > SLOW_TIMEOUT)
    }

    /// What the next claim has to leave out.
    pub(super) fn in_flight(&self) -> AttemptsInFlight {
        let max = (self.budget.share() / 4).clamp(1, MAX_PER_WEBHOOK);
        let busy = self.by_webhook.iter().filter(|(webhook, active)| {
            let is_limited = active.is_failing || self.is_slow(**webhook);
            active.count >= if is_limited { 1 } else { max }
        });
        let holders = self.budget.holders().into_iter();
        let by_org = holders.filter_map(|(owner, attempts)| match owner {
            Owner::Org(org) => Some((OrgId::from_uuid(org), attempts)),
            _ => None,
        });
        AttemptsInFlight {
            busy: busy.map(|(webhook, _)| *webhook).collect(),
            by_org: by_org.collect(),
            share: self.budget.share(),
        }
    }

    /// Waits until an attempt completes, the time has passed, or draining begins.
    pub(super) async fn wait(&mut self, shutdown: &Shutdown, timeout: Duration) {
        tokio::select! {
            Some(attempt) = self.attempts.next() => {
                self.end(attempt);
                while let Some(Some(attempt)) = self.attempts.next().now_or_never() {
                    self.end(attempt);
                }
            }
            () = tokio::time::sleep(timeout) => {}
            () = shutdown.draining() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use prometheus::Registry;
    use switchboard_runtime::budget::{Budgets, Kind};
    use uuid::Uuid;

    use super::*;

    #[test]
    fn slow_webhook_is_busy_with_one_attempt() {
        let budgets = Budgets::new(&Registry::new()).unwrap();
        let budget = budgets.slots("webhook_attempts", 64, Kind::quarter_of(64));
        let mut active = ActiveAttempts::new(budget);
        let webhook = WebhookId::from_uuid(Uuid::now_v7());
        let took = |seconds| FinishedAttempt {
            webhook,
            took: Duration::from_secs(seconds),
        };
        let mut check = |ended: FinishedAttempt, expected: bool| {
            active.by_webhook.entry(webhook).or_default().count = 2;
            active.end(ended);
            assert_eq!(!active.in_flight().busy.is_empty(), expected);
        };
        check(took(4), false);
        check(took(15), true);
        check(took(0), true);
        check(took(0), false);
        for _ in 0..20 {
            check(took(0), false);
        }
        assert!(active.answer_times.is_empty());
    }
}

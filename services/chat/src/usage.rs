//! What each organisation's conversations come to, counted and written to the record.
//! Never: a statement for each turn.

use std::sync::Arc;

use chrono::Utc;
use prometheus::{IntCounter, Registry};
use switchboard_completions::Usage;
use switchboard_protocol::id::OrgId;
use switchboard_runtime::shutdown::Shutdown;
use switchboard_store::{CountedTurns, UsageCounter};

use crate::Chat;

/// Counts turns, and has them written by [`run`].
pub(crate) struct TurnUsage {
    counter: UsageCounter<CountedTurns>,
    lost: IntCounter,
}

impl TurnUsage {
    pub(crate) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let lost = IntCounter::new(
            "switchboard_chat_usage_lost_total",
            "Turns that are missing in the usage of their organisations, because too many sums wait",
        )?;
        registry.register(Box::new(lost.clone()))?;
        Ok(Self {
            counter: UsageCounter::default(),
            lost,
        })
    }

    /// Counts a turn that has ended.
    pub(crate) fn count_turn(&self, org: OrgId) {
        self.count(&counted(org, &Usage::default()));
    }

    /// Counts what models read and wrote, for turns and beside them, whatever becomes of it.
    pub(crate) fn count_used(&self, org: OrgId, used: &Usage) {
        self.count(&CountedTurns {
            turns: 0,
            ..counted(org, used)
        });
    }

    fn count(&self, one: &CountedTurns) {
        if !self.counter.count(one) {
            self.lost.inc();
        }
    }
}

fn counted(org: OrgId, used: &Usage) -> CountedTurns {
    let tokens = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
    CountedTurns::one(
        org,
        Utc::now(),
        tokens(used.prompt_tokens),
        tokens(used.completion_tokens),
        used.cost,
    )
}

/// Writes what is counted until draining begins and the last turns have ended.
pub(crate) async fn run(chat: Arc<Chat>, shutdown: Shutdown) {
    let under_way = || chat.metrics.under_way.get() > 0;
    let store = chat.store.clone();
    chat.usage.counter.run(under_way, store, shutdown).await;
}

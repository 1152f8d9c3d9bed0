//! What each organisation's conversations come to, and the calls made in them, counted and written to the record.
//! Never: a statement for each turn or call.

use std::{sync::Arc, time::Duration};

use chrono::Utc;
use prometheus::{IntCounter, Registry};
use switchboard_completions::Usage;
use switchboard_protocol::id::OrgId;
use switchboard_runtime::shutdown::Shutdown;
use switchboard_store::{CountedCalls, CountedTurns, UsageCounter};

use crate::Chat;

/// Counts turns and calls, and has them written by [`run`].
pub(crate) struct TurnUsage {
    turns: UsageCounter<CountedTurns>,
    calls: UsageCounter<CountedCalls>,
    lost: IntCounter,
}

impl TurnUsage {
    pub(crate) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let lost = IntCounter::new(
            "switchboard_chat_usage_lost_total",
            "Turns and calls that are missing in the usage of their organisations, because too many sums wait",
        )?;
        registry.register(Box::new(lost.clone()))?;
        Ok(Self {
            turns: UsageCounter::default(),
            calls: UsageCounter::default(),
            lost,
        })
    }

    /// Counts a turn that has ended.
    pub(crate) fn count_turn(&self, org: OrgId) {
        let turn = counted(org, &Usage::default());
        self.note(self.turns.count(&turn));
    }

    /// Counts what models read and wrote, for turns and beside them, whatever becomes of it.
    pub(crate) fn count_used(&self, org: OrgId, used: &Usage) {
        let used = CountedTurns {
            turns: 0,
            ..counted(org, used)
        };
        self.note(self.turns.count(&used));
    }

    /// Counts a call that has ended.
    pub(crate) fn count_call(&self, org: OrgId, outcome: &'static str, took: Duration) {
        let call = CountedCalls::one(org, Utc::now(), outcome, took);
        self.note(self.calls.count(&call));
    }

    fn note(&self, is_counted: bool) {
        if !is_counted {
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
    let usage = &chat.usage;
    tokio::join!(
        usage
            .turns
            .run(under_way, chat.store.clone(), shutdown.clone()),
        usage.calls.run(under_way, chat.store.clone(), shutdown),
    );
}

//! Usage of turns, tokens and calls by organisation. Counted in memory and written periodically.

use std::{sync::Arc, time::Duration};

use chrono::Utc;
use prometheus::{IntCounter, Registry};
use switchboard_completions::Usage;
use switchboard_protocol::id::OrgId;
use switchboard_runtime::shutdown::Shutdown;
use switchboard_store::{CountedCalls, CountedTurns, UsageCounter};

use crate::Chat;

/// Counts turns and calls. [`run`] writes the sums.
pub(crate) struct TurnUsage {
    turns: UsageCounter<CountedTurns>,
    calls: UsageCounter<CountedCalls>,
    lost: IntCounter,
}

impl TurnUsage {
    pub(crate) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let lost = IntCounter::new(
            "switchboard_chat_usage_lost_total",
            "Turns and calls missing in the usage of organisations because the buffer was full",
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
        self.record(self.turns.count(&turn));
    }

    /// Counts tokens and cost of a request to a model, whether or not its turn succeeds.
    pub(crate) fn count_tokens(&self, org: OrgId, usage: &Usage) {
        let usage = CountedTurns {
            turns: 0,
            ..counted(org, usage)
        };
        self.record(self.turns.count(&usage));
    }

    /// Counts milliseconds of speech that a message has reported.
    pub(crate) fn count_speech(&self, org: OrgId, milliseconds: u32) {
        if milliseconds > 0 {
            let speech = CountedTurns::speech(org, Utc::now(), milliseconds);
            self.record(self.turns.count(&speech));
        }
    }

    /// Counts a call that has ended.
    pub(crate) fn count_call(&self, org: OrgId, outcome: &'static str, elapsed: Duration) {
        let call = CountedCalls::new(org, Utc::now(), outcome, elapsed);
        self.record(self.calls.count(&call));
    }

    fn record(&self, is_counted: bool) {
        if !is_counted {
            self.lost.inc();
        }
    }
}

fn counted(org: OrgId, usage: &Usage) -> CountedTurns {
    let tokens = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
    CountedTurns::new(
        org,
        Utc::now(),
        tokens(usage.prompt_tokens),
        tokens(usage.completion_tokens),
        usage.cost,
    )
}

/// Writes the sums until the last turns of a drain have ended.
pub(crate) async fn run(chat: Arc<Chat>, shutdown: Shutdown) {
    let in_flight = || chat.metrics.in_flight.get() > 0;
    let usage = &chat.usage;
    tokio::join!(
        usage
            .turns
            .run(in_flight, chat.store.clone(), shutdown.clone()),
        usage.calls.run(in_flight, chat.store.clone(), shutdown),
    );
}

//! Usage of turns, tokens and calls by organisation. Counted in memory and written periodically.

use std::{sync::Arc, time::Duration};

use chrono::Utc;
use prometheus::{IntCounter, Registry};
use switchboard_completions::Usage;
use switchboard_protocol::id::{DeviceId, NpcId, OrgId};
use switchboard_runtime::shutdown::Shutdown;
use switchboard_store::{
    CountedCalls, CountedTurns, UsageByCounter, UsageCounter, UsageDimension, UsageSums,
};

use crate::Chat;

/// Counts turns and calls. [`run`] writes the sums.
pub(crate) struct TurnUsage {
    turns: UsageCounter<CountedTurns>,
    calls: UsageCounter<CountedCalls>,
    by: UsageByCounter,
    lost: IntCounter,
}

/// Whose usage it is, besides the organisation's.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UsageOf<'a> {
    pub(crate) org: OrgId,
    /// The device whose user sent the message, or that was called.
    pub(crate) device: Option<&'a DeviceId>,
    pub(crate) npc: Option<NpcId>,
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
            by: UsageByCounter::default(),
            lost,
        })
    }

    /// Counts a turn that has ended.
    pub(crate) fn count_turn(&self, of: UsageOf<'_>) {
        self.count_turns(of, &counted(of.org, &Usage::default()));
    }

    /// Counts tokens and cost of a request to a model, whether or not its turn succeeds.
    pub(crate) fn count_tokens(&self, of: UsageOf<'_>, usage: &Usage) {
        let usage = CountedTurns {
            turns: 0,
            ..counted(of.org, usage)
        };
        self.count_turns(of, &usage);
    }

    fn count_turns(&self, of: UsageOf<'_>, counted: &CountedTurns) {
        self.record(self.turns.count(counted));
        self.count_by(of, "", &UsageSums::turns(counted));
    }

    /// Counts milliseconds of speech that a message has reported.
    pub(crate) fn count_speech(&self, org: OrgId, milliseconds: u32) {
        if milliseconds > 0 {
            let speech = CountedTurns::speech(org, Utc::now(), milliseconds);
            self.record(self.turns.count(&speech));
        }
    }

    /// Counts a call that has ended.
    pub(crate) fn count_call(
        &self,
        (of, service): (UsageOf<'_>, &str),
        outcome: &'static str,
        elapsed: Duration,
    ) {
        let now = Utc::now();
        let call = CountedCalls::new(of.org, now, outcome, elapsed);
        self.record(self.calls.count(&call));
        let sums = UsageSums::call(elapsed);
        self.count_by(of, outcome, &sums);
        let service = (UsageDimension::Service, service);
        self.record(self.by.count((of.org, now), service, outcome, &sums));
    }

    fn count_by(&self, of: UsageOf<'_>, outcome: &'static str, sums: &UsageSums) {
        let now = (of.org, Utc::now());
        if let Some(device) = of.device {
            let device = (UsageDimension::Device, device.as_str());
            self.record(self.by.count(now, device, outcome, sums));
        }
        if let Some(npc) = of.npc {
            let npc = npc.to_string();
            let npc = (UsageDimension::Npc, npc.as_str());
            self.record(self.by.count(now, npc, outcome, sums));
        }
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

/// Writes the sums and the journal until the last turns of a drain have ended.
pub(crate) async fn run(chat: Arc<Chat>, shutdown: Shutdown) {
    let in_flight = || chat.metrics.in_flight.get() > 0;
    let usage = &chat.usage;
    tokio::join!(
        usage
            .turns
            .run(in_flight, chat.store.clone(), shutdown.clone()),
        usage
            .calls
            .run(in_flight, chat.store.clone(), shutdown.clone()),
        usage
            .by
            .run(in_flight, chat.store.clone(), shutdown.clone()),
        chat.journal.run(in_flight, chat.store.clone(), shutdown),
    );
}

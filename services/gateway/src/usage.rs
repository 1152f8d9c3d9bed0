//! What each organisation's calls come to.
//! Never: a statement for each call.

use std::time::Duration;

use chrono::Utc;
use prometheus::{IntCounter, IntGauge, Registry};
use switchboard_protocol::id::OrgId;
use switchboard_runtime::{metrics::Group, shutdown::Shutdown};
use switchboard_store::{CountedCalls, Store, UsageCounter};

/// Counts calls, and has them written by [`Usage::run`].
pub(crate) struct Usage {
    counter: UsageCounter<CountedCalls>,
    lost: IntCounter,
}

impl Usage {
    pub(crate) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let group = Group::new(registry, "switchboard_gateway");
        let lost = "Calls that are missing in the usage of their organisations, because too many sums wait";
        Ok(Self {
            counter: UsageCounter::default(),
            lost: group.counter("usage_lost_total", lost)?,
        })
    }

    /// Counts a call that has ended.
    pub(crate) fn count(&self, org: OrgId, outcome: &'static str, took: Duration) {
        let call = CountedCalls::one(org, Utc::now(), outcome, took);
        if !self.counter.count(&call) {
            self.lost.inc();
        }
    }

    /// Writes until draining begins and the calls under way have ended, or everything is to end now.
    pub(crate) async fn run(&self, under_way: &IntGauge, store: Store, shutdown: Shutdown) {
        let under_way = || under_way.get() > 0;
        self.counter.run(under_way, store, shutdown).await;
    }
}

//! What an attacked process uses: its memory, and what one owner holds of a budget.

use std::{
    fs,
    sync::{Arc, Mutex},
    time::Duration,
};

use serde_json::Value;
use switchboard_test_support::{eventually::eventually, switchboard::Program};
use tokio::task::JoinSet;

use super::{Takes, Target};
use crate::hostile::{resident_kib, status_kib};

/// Interval between two samples.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(50);
/// What the bus has refused, by budget.
const BUS_REFUSALS: &str = "switchboard_bus_budget_refused_total";
/// Within this time an attack takes its share.
const SHARE_TIMEOUT: Duration = Duration::from_secs(20);

/// The largest usage of a process since this was started.
pub(super) struct PeakUsage {
    peak: Arc<Mutex<Peak>>,
    _sampler: JoinSet<()>,
}

#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Peak {
    pub(super) memory_kib: u64,
    /// The most that one owner held.
    held: u64,
    /// What the attack may take.
    share: u64,
    capacity: u64,
}

impl PeakUsage {
    /// Takes samples of the attacked process and of a budget until it is dropped.
    pub(super) fn start(target: &Target, takes: Takes) -> Self {
        let peak = Arc::<Mutex<Peak>>::default();
        let process = target.process();
        let admin = |process: &Program| process.address("admin_url");
        let (own, edge) = (admin(process), admin(&target.cluster.edges[0]));
        let (pid, sampled) = (process.pid(), Arc::clone(&peak));
        let sampler = JoinSet::from_iter([async move {
            let mut ticks = tokio::time::interval(SAMPLE_INTERVAL);
            loop {
                ticks.tick().await;
                let memory_kib = memory_kib(pid);
                let held = match takes {
                    Takes::Share(budget) | Takes::All(budget) => top_holder(&own, budget).await,
                    Takes::Slot(budget) => Peak {
                        share: 1,
                        ..top_holder(&own, budget).await
                    },
                    Takes::BusShare(budget) => {
                        let series = format!("{BUS_REFUSALS}{{budget=\"{budget}\"}}");
                        counted(&edge, &series).await
                    }
                    Takes::Rate(series) => counted(&edge, series).await,
                };
                let mut peak = sampled.lock().unwrap();
                peak.memory_kib = peak.memory_kib.max(memory_kib);
                peak.held = peak.held.max(held.held);
                (peak.share, peak.capacity) = (held.share, held.capacity);
            }
        }]);
        Self {
            peak,
            _sampler: sampler,
        }
    }

    pub(super) fn peak(&self) -> Peak {
        *self.peak.lock().unwrap()
    }

    /// Waits until an owner holds three quarters of what it may take, or more.
    pub(super) async fn is_taken(&self) {
        let peak = async || self.peak();
        let is_taken = |peak: &Peak| peak.share > 0 && 4 * peak.held >= 3 * peak.share;
        eventually(SHARE_TIMEOUT, peak, is_taken).await;
    }

    /// Asserts that a fifth of the budget is left to others.
    pub(super) fn assert_room_for_others(&self) {
        let peak = self.peak();
        assert!(5 * peak.held <= 4 * peak.capacity, "{peak:?}");
    }
}

/// What the largest owner of a budget holds. The process itself is no owner.
async fn top_holder(admin: &str, name: &str) -> Peak {
    let url = format!("{admin}/debug/budgets");
    let report: Value = reqwest::get(url).await.unwrap().json().await.unwrap();
    let mut budgets = report.as_array().unwrap().iter();
    let budget = budgets.find(|budget| budget["budget"] == name);
    let budget = budget.unwrap_or_else(|| panic!("no budget {name} in {report}"));
    let owners = budget["owners"].as_array().unwrap().iter();
    let held = owners
        .filter(|owner| owner["owner"] != "system")
        .map(|owner| owner["held"].as_u64().unwrap());
    Peak {
        memory_kib: 0,
        held: held.max().unwrap_or_default(),
        share: budget["share"].as_u64().unwrap(),
        capacity: budget["capacity"].as_u64().unwrap(),
    }
}

/// What an edge has counted in a series. The first refusal shows that everything is taken.
async fn counted(admin: &str, series: &str) -> Peak {
    let url = format!("{admin}/metrics");
    let metrics = reqwest::get(url).await.unwrap().text().await.unwrap();
    let mut lines = metrics.lines();
    let count = lines.find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    Peak {
        held: count.unwrap().parse().unwrap(),
        share: 1,
        ..Peak::default()
    }
}

/// The resident memory of a process and its child processes, which are in the same container.
pub(super) fn memory_kib(pid: u32) -> u64 {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let children: u64 = threads
        .filter_map(|thread| fs::read_to_string(thread.ok()?.path().join("children")).ok())
        .flat_map(|children| {
            let pids = children.split_whitespace().map(str::parse);
            pids.collect::<Vec<_>>()
        })
        .filter_map(|child| status_kib(child.ok()?, "VmRSS:"))
        .sum();
    resident_kib(pid) + children
}

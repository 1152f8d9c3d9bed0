//! What an attacked process uses: its memory, and what one owner holds of a budget.

use std::{
    fs,
    sync::{Arc, Mutex},
    time::Duration,
};

use serde_json::Value;
use switchboard_test_support::{eventually::eventually, switchboard::Program};
use tokio::task::JoinSet;

use crate::hostile::{resident_kib, status_kib};

/// Interval between two samples.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(50);
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
    share: u64,
    capacity: u64,
}

impl PeakUsage {
    /// Takes samples of a process and of a budget until it is dropped.
    pub(super) fn start(process: &Program, budget: &'static str) -> Self {
        let peak = Arc::<Mutex<Peak>>::default();
        let url = format!("{}/debug/budgets", process.address("admin_url"));
        let (pid, sampled) = (process.pid(), Arc::clone(&peak));
        let sampler = JoinSet::from_iter([async move {
            let mut ticks = tokio::time::interval(SAMPLE_INTERVAL);
            loop {
                ticks.tick().await;
                let memory_kib = memory_kib(pid);
                let held = top_holder(&url, budget).await;
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

    /// Waits until an owner holds three quarters of its share, or more.
    pub(super) async fn share_is_taken(&self) {
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
async fn top_holder(url: &str, name: &str) -> Peak {
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

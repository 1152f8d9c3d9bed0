//! All budgets of a process: their metrics, and the report of the admin port.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use prometheus::{IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};
use serde::Serialize;

use super::{Budget, Kind, Scope};
use crate::metrics::Counters;

/// Owners of a budget in a report: the largest ones.
const REPORTED_OWNERS: usize = 10;

/// The budgets of a process; cheap to clone.
#[derive(Debug, Clone)]
pub struct Budgets {
    families: Arc<Families>,
    budgets: Arc<Mutex<BTreeMap<&'static str, Budget>>>,
}

#[derive(Debug)]
struct Families {
    used: IntGaugeVec,
    capacity: IntGaugeVec,
    refused: IntCounterVec,
    reserved: IntGaugeVec,
}

/// The metrics of one budget.
pub(super) struct Metrics {
    used: IntGauge,
    pub(super) refused: Counters<Scope>,
}

/// What the amounts of a budget count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// Bytes of memory. The memory limit of a container covers the sum of these budgets.
    Bytes,
    /// Connections, jobs and other things that are counted.
    Slots,
}

/// A budget in the response of `/debug/budgets`.
#[derive(Debug, Serialize)]
pub struct BudgetReport {
    /// Its name.
    pub budget: &'static str,
    /// What its amounts count.
    pub unit: Unit,
    /// The total amount.
    pub capacity: usize,
    /// The most that one owner may hold.
    pub share: usize,
    /// What is held.
    pub used: usize,
    /// Requests that wait.
    pub waiting: usize,
    /// The owners that hold most, in descending order.
    pub owners: Vec<OwnerReport>,
}

/// What one owner holds.
#[derive(Debug, Serialize)]
pub struct OwnerReport {
    /// An organisation id, a network, a connection of a proxy, or `system`.
    pub owner: String,
    /// The amount.
    pub held: usize,
}

impl Budgets {
    /// Registers the metrics of budgets; there is no budget yet.
    ///
    /// # Errors
    /// When the registry already has metrics of these names.
    pub fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let gauges = |name, help| IntGaugeVec::new(Opts::new(name, help), &["budget"]);
        let families = Families {
            used: gauges(
                "switchboard_budget_used",
                "Bytes or slots of a budget that are held.",
            )?,
            capacity: gauges("switchboard_budget_capacity", "Bytes or slots of a budget.")?,
            refused: IntCounterVec::new(
                Opts::new(
                    "switchboard_budget_refused_total",
                    "Requests that a budget refused, by the bound that was reached: the share of one organisation or address, or the total.",
                ),
                &["budget", "scope"],
            )?,
            reserved: IntGaugeVec::new(
                Opts::new(
                    "switchboard_memory_reserved_bytes",
                    "The most that a cache or a buffer takes, by its use.",
                ),
                &["use"],
            )?,
        };
        registry.register(Box::new(families.used.clone()))?;
        registry.register(Box::new(families.capacity.clone()))?;
        registry.register(Box::new(families.refused.clone()))?;
        registry.register(Box::new(families.reserved.clone()))?;
        Ok(Self {
            families: Arc::new(families),
            budgets: Arc::default(),
        })
    }

    /// Returns the budget of this name, in bytes. Creates it with `capacity` and `kind` at first
    /// use.
    #[must_use]
    pub fn bytes(&self, name: &'static str, capacity: usize, kind: Kind) -> Budget {
        self.budget(name, Unit::Bytes, capacity, kind)
    }

    /// Returns the budget of this name, in slots. Creates it with `capacity` and `kind` at first
    /// use.
    #[must_use]
    pub fn slots(&self, name: &'static str, capacity: usize, kind: Kind) -> Budget {
        self.budget(name, Unit::Slots, capacity, kind)
    }

    /// States the most that a cache or a buffer takes. Memory limits cover the sum of these and of the
    /// budgets in bytes.
    pub fn reserve(&self, name: &'static str, bytes: usize) {
        let reserved = self.families.reserved.with_label_values(&[name]);
        reserved.set(gauge_value(bytes));
    }

    fn budget(&self, name: &'static str, unit: Unit, capacity: usize, kind: Kind) -> Budget {
        let mut budgets = self.budgets.lock();
        let budget = budgets.entry(name).or_insert_with(|| {
            let metrics = Metrics {
                used: self.families.used.with_label_values(&[name]),
                refused: Counters::of(&self.families.refused, &[name]),
            };
            let total = self.families.capacity.with_label_values(&[name]);
            total.set(gauge_value(capacity));
            Budget::new(name, unit, capacity, kind, metrics)
        });
        budget.clone()
    }

    /// Describes all budgets, in the order of their names.
    #[must_use]
    pub fn report(&self) -> Vec<BudgetReport> {
        let budgets: Vec<_> = self.budgets.lock().values().cloned().collect();
        budgets.iter().map(BudgetReport::of).collect()
    }
}

impl BudgetReport {
    fn of(budget: &Budget) -> Self {
        let shared = &budget.shared;
        let state = shared.state.lock();
        let (used, waiting) = (state.used(), state.waiting());
        let mut owners: Vec<_> = state.owners().collect();
        drop(state);
        owners.sort_unstable_by_key(|(_, held)| std::cmp::Reverse(*held));
        owners.truncate(REPORTED_OWNERS);
        let owners = owners.into_iter().map(|(owner, held)| OwnerReport {
            owner: owner.to_string(),
            held,
        });
        Self {
            budget: shared.name,
            unit: shared.unit,
            capacity: shared.capacity,
            share: shared.share(),
            used,
            waiting,
            owners: owners.collect(),
        }
    }
}

impl Metrics {
    pub(super) fn set_used(&self, used: usize) {
        self.used.set(gauge_value(used));
    }
}

fn gauge_value(amount: usize) -> i64 {
    i64::try_from(amount).unwrap_or(i64::MAX)
}

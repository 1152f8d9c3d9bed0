//! The order in which the jobs of owners are claimed.

use switchboard_runtime::budget;
use uuid::Uuid;

use crate::Owner;

/// Whose job a worker claims next: owners with due jobs take turns in the order of their ids, and
/// the jobs of one owner in the order in which they are due. So a job waits for at most one job of
/// each other owner, however many these have.
///
/// The statements that claim jobs walk an index from owner to owner. Their cost does not depend on
/// the number of jobs.
#[derive(Debug, Clone, Default)]
pub struct JobTurn {
    /// The owner that was served last. The turns begin again without one.
    last: Option<Uuid>,
    busy: Vec<Uuid>,
}

impl JobTurn {
    /// Passes over owners that hold their share of this budget.
    pub fn pass_over_full_shares(&mut self, budget: &budget::Budget) {
        let share = budget.share();
        let full = budget
            .holders()
            .into_iter()
            .filter(|(_, held)| *held >= share);
        self.busy = full.filter_map(|(owner, _)| id(owner)).collect();
    }

    /// The lowest id whose turn it can be.
    pub(crate) fn first(&self) -> Uuid {
        self.last.map_or(Uuid::nil(), |last| {
            Uuid::from_u128(last.as_u128().saturating_add(1))
        })
    }

    /// The owners that are passed over.
    pub(crate) fn busy(&self) -> &[Uuid] {
        &self.busy
    }

    pub(crate) fn served(&mut self, owner: Owner) {
        self.last = Some(owner.key());
    }

    /// Begins with the first owner again. Returns false if the turns did so already.
    pub(crate) const fn restart(&mut self) -> bool {
        self.last.take().is_some()
    }
}

const fn id(owner: budget::Owner) -> Option<Uuid> {
    match owner {
        budget::Owner::Org(id) => Some(id),
        _ => None,
    }
}
